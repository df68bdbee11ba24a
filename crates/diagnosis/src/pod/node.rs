//! The node of a pod.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};

use super::scheduling::tolerates;
use crate::cause::{Case, Cause};
use crate::snapshot::Snapshot;
use crate::words::{age, shortened, span};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    causes.extend(cause(snapshot));
}

/// Returns the cause if the node of the pod is lost or not Ready.
pub(super) fn cause(snapshot: &Snapshot) -> Option<Cause> {
    let spec = snapshot.pod.spec.as_ref()?;
    let name = spec.node_name.as_deref()?;
    let Some(node) = &snapshot.node else {
        if snapshot.is_unread("nodes") {
            return None;
        }
        let what = format!("its node {name} does not exist any more");
        let next = "kubectl -n kube-system get pods -l component=kube-controller-manager";
        return Some(Cause::new(Case::LostNode, format!("node {name}"), what).next(next));
    };
    let ready = ready(node)?;
    if ready.status == "True" {
        return None;
    }
    let since = ready.last_transition_time.as_ref().map(|time| time.0);
    let mut evidence = vec![format!(
        "node {name}: Ready {} ({}): {}",
        ready.status,
        ready.reason.as_deref().unwrap_or_default(),
        shortened(ready.message.as_deref().unwrap_or_default(), 300)
    )];
    let renewed = snapshot.lease.as_ref().and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref());
    evidence.extend(renewed.map(|at| format!("kubelet lease: renewed {} ago", age(at.0, snapshot.now))));
    evidence.push(eviction(snapshot, node));
    let describe = format!("kubectl describe node {name}");
    if ready.status == "Unknown" {
        let what = format!("its node {name} does not report");
        evidence.push(format!(
            "deleting the pod by force is safe only if the node is off: kubectl taint node {name} \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        ));
        return Some(
            Cause::new(Case::LostNode, format!("node {name}"), what)
                .since(since)
                .next(describe)
                .evidence(evidence),
        );
    }
    let why = shortened(ready.message.as_deref().unwrap_or_default(), 200);
    let why = if why.is_empty() { why } else { format!(": {why}") };
    let what = format!("its node {name} is not Ready{why}");
    Some(
        Cause::new(Case::NodeNotReady, format!("node {name}"), what)
            .since(since)
            .next(describe)
            .evidence(evidence),
    )
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Returns when the pod is deleted because of the taint of its node.
fn eviction(snapshot: &Snapshot, node: &Node) -> String {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let taint = taints
        .iter()
        .find(|taint| taint.effect == "NoExecute" && [UNREACHABLE, NOT_READY].contains(&taint.key.as_str()));
    let Some(taint) = taint else { return "the node has no taint that deletes pods".to_owned() };
    let tolerations =
        snapshot.pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    // The first one counts, as for the controller that deletes the pod, even if another one is shorter.
    let Some(tolerated) = tolerations.iter().find(|it| tolerates(it, taint)) else {
        return format!(
            "taint {}: the pod does not tolerate it, and Kubernetes deletes it at once",
            taint.key
        );
    };
    let Some(seconds) = tolerated.toleration_seconds else {
        return format!("it tolerates {} without an end", taint.key);
    };
    let Some(added) = taint.time_added.as_ref().map(|time| time.0) else {
        return format!("taint {}: the pod is deleted {} after it", taint.key, span(seconds));
    };
    let at: Timestamp = added + SignedDuration::from_secs(seconds);
    match at.duration_since(snapshot.now).as_secs() {
        left if left > 0 => format!("taint {}: the pod is deleted in {}", taint.key, span(left)),
        _ => format!("taint {}: the pod was to be deleted {} ago", taint.key, age(at, snapshot.now)),
    }
}
