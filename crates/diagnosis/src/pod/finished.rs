//! Pods that have ended.

use podward_core::keys::PROT_FINALIZER_PREFIX;

use crate::cause::{Case, Cause};
use crate::command::{Commands, owner};
use crate::snapshot::Snapshot;
use crate::words::shortened;

use crate::pod_view::{containers, phase};

pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot) {
    let pod = &snapshot.pod;
    let commands = Commands(pod);
    let status = pod.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref()).unwrap_or_default();
    let message = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
    let name = format!("pod {}", snapshot.pod_name());
    let ends = containers(pod).filter_map(|it| Some((it, it.state()?.terminated.as_ref()?)));
    let last = ends.clone().filter_map(|(_, ended)| ended.finished_at.as_ref().map(|time| time.0)).max();
    let kept = kept_by(snapshot);
    let cause = if reason == "Evicted" {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let what = format!("the kubelet of node {node} evicted it: {}", shortened(message.trim(), 300));
        // Otherwise the pod has used more than its own limit.
        let of_node = message.starts_with("The node ");
        let start = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        let event = snapshot.events.newest(&["Evicted"]).and_then(crate::events::last_seen);
        Cause::new(Case::Evicted, format!("node {node}"), what)
            .since(event.or(last).or(start))
            .next(if of_node { format!("kubectl describe node {node}") } else { commands.describe() })
    } else if phase(pod) == "Failed" {
        let failed = ends.clone().find(|(_, ended)| ended.exit_code != 0);
        let what = match failed {
            Some((container, ended)) => {
                format!("failed: {} ended with exit code {}", container.words(), ended.exit_code)
            }
            None if reason.is_empty() && message.is_empty() => "failed".to_owned(),
            None => shortened(&format!("failed: {reason} {message}"), 300),
        };
        let next = failed
            .map_or_else(|| commands.describe(), |(container, _)| commands.logs(container.name(), false));
        Cause::new(Case::Finished, name, what).since(last).next(next)
    } else {
        let what = "has succeeded, and is kept until its owner or the garbage collector deletes it";
        let next = match owner(pod) {
            Some(owner) => commands.kubectl(&format!("get {owner}")),
            None => commands.kubectl(&format!("delete pod {}", commands.name())),
        };
        Cause::new(Case::Finished, name, what).since(last).next(next)
    };
    let logs = snapshot.previous_logs.iter().flat_map(|(name, log)| {
        log.lines().map(move |line| format!("last log of {name}: {}", shortened(line, 300)))
    });
    causes.push(cause.evidence(kept).evidence(logs));
}

/// Returns who keeps the object of a pod that has ended.
fn kept_by(snapshot: &Snapshot) -> Vec<String> {
    let finalizers = snapshot.pod.metadata.finalizers.as_deref().unwrap_or_default();
    let mut kept: Vec<String> = finalizers
        .iter()
        .map(|finalizer| match finalizer.as_str() {
            "batch.kubernetes.io/job-tracking" => {
                "finalizer batch.kubernetes.io/job-tracking: until the Job controller has counted it"
                    .to_owned()
            }
            it if it.starts_with(PROT_FINALIZER_PREFIX) => {
                format!("finalizer {it}: until a consumer has released the pod")
            }
            it => format!("finalizer {it}: until its owner removes it"),
        })
        .collect();
    if owner(&snapshot.pod).is_some_and(|owner| owner.starts_with("job/")) {
        kept.push(
            "its Job keeps it until the Job is deleted (ttlSecondsAfterFinished, or by hand)".to_owned(),
        );
    }
    kept
}
