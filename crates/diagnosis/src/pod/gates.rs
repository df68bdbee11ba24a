//! Readiness gates.

use jiff::Timestamp;
use podward_core::cloneset::keys::{POD_READY, UPDATE_READY};
use podward_core::keys::SERVICE_READY_GATE;

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::snapshot::Snapshot;
use crate::words::{age, shortened};

use crate::pod_view::condition;

/// The start of gates, who writes their conditions, and the next command. From the documentation of each project.
const OWNERS: [(&str, &str, &str); 6] = [
    (SERVICE_READY_GATE, "Podward's lifecycle-controller", "kubectl podward doctor"),
    (
        "target-health.elbv2.k8s.aws/",
        "the AWS Load Balancer Controller",
        "kubectl -n kube-system logs deployment/aws-load-balancer-controller",
    ),
    (
        "target-health.alb.ingress.k8s.aws/",
        "the AWS ALB Ingress Controller",
        "kubectl -n kube-system logs deployment/alb-ingress-controller",
    ),
    ("cloud.google.com/load-balancer-neg-ready", "the NEG controller of GKE", "kubectl get svcneg -A"),
    (UPDATE_READY, EITHER, FIND_EITHER),
    (POD_READY, EITHER, FIND_EITHER),
];

/// The gates of CloneSets have no domain: OpenKruise and Podward's cloneset-controller write them.
const EITHER: &str = "OpenKruise or Podward's cloneset-controller";
const FIND_EITHER: &str = "kubectl get pods -A | grep -E 'kruise-controller-manager|cloneset-controller'";

/// The field managers of these two, which are the first parts of their user agents, and the commands for their logs.
const MANAGERS: [(&str, &str, &str); 2] = [
    (
        "podward-cloneset-controller",
        "Podward's cloneset-controller",
        "kubectl -n podward-system logs -l app.kubernetes.io/name=cloneset-controller --tail=-1",
    ),
    ("kruise-manager", "OpenKruise", "kubectl -n kruise-system logs deployment/kruise-controller-manager"),
];

/// `is_explained` if the gate of Podward has a cause already.
pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot, is_explained: bool) {
    let pod = &snapshot.pod;
    let containers_ready = condition(pod, "ContainersReady").is_some_and(|it| it.status == "True");
    if !containers_ready {
        return;
    }
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let ready =
        condition(pod, "ContainersReady").and_then(|it| it.last_transition_time.as_ref()).map(|time| time.0);
    for gate in gates {
        let kind = gate.condition_type.as_str();
        if is_explained && kind == SERVICE_READY_GATE {
            continue;
        }
        let writer = writer(snapshot, kind);
        let (owner, next) = owner(kind, writer.as_ref().map(|(who, _)| who.as_str()));
        let commands = Commands(pod);
        let look = commands.kubectl(&format!("get pod {} -o yaml --show-managed-fields", commands.name()));
        let next = next.map_or(look, str::to_owned);
        let activity = match &writer {
            Some((who, Some(at))) => format!("last write by {who} {} ago", age(*at, snapshot.now)),
            Some((who, None)) => format!("written by {who}"),
            None => "nobody has written the condition".to_owned(),
        };
        let object = format!("readiness gate {kind}");
        let cause = match condition(pod, kind) {
            Some(found) if found.status == "True" => continue,
            Some(found) => {
                let text = [found.reason.as_deref(), found.message.as_deref()];
                let text =
                    text.into_iter().flatten().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
                let text =
                    if text.is_empty() { String::new() } else { format!(" ({})", shortened(&text, 200)) };
                let what = format!("its readiness gate {kind} is {}, which {owner} sets{text}", found.status);
                let since = found.last_transition_time.as_ref().map(|time| time.0);
                Cause::new(Case::ReadinessGate, object, what).since(since)
            }
            None => {
                let what = format!(
                    "the condition of its readiness gate {kind} was never written, which {owner} does"
                );
                Cause::new(Case::ReadinessGateMissing, object, what).since(ready)
            }
        };
        causes.push(cause.next(next).evidence([activity]));
    }
}

/// Returns who sets a gate, and the next command if there is one. The writer decides, unless the gate has the domain of
/// its owner.
fn owner<'w>(kind: &str, writer: Option<&'w str>) -> (&'w str, Option<&'static str>) {
    let known = OWNERS.iter().find(|(start, ..)| kind.starts_with(start));
    let manager = MANAGERS.iter().find(|(name, ..)| writer == Some(*name));
    match (manager, known, writer) {
        (Some((_, owner, next)), ..) => (owner, Some(next)),
        (None, Some((_, owner, next)), _) if *owner != EITHER || writer.is_none() => (owner, Some(next)),
        (None, _, Some(writer)) => (writer, None),
        (None, _, None) => ("an unknown controller", None),
    }
}

/// Returns who has written a condition, from the managed fields of the pod.
fn writer(snapshot: &Snapshot, kind: &str) -> Option<(String, Option<Timestamp>)> {
    let key = format!("k:{{\"type\":\"{kind}\"}}");
    let entries = snapshot.pod.metadata.managed_fields.as_deref().unwrap_or_default();
    let entry = entries.iter().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields["f:status"]["f:conditions"].get(&key).is_some())
    });
    let newest = entry.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    Some((newest.manager.clone().unwrap_or_default(), newest.time.as_ref().map(|time| time.0)))
}
