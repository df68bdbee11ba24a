//! Pods that are being deleted.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PodCondition;
use podward_core::keys::PROT_FINALIZER_PREFIX;

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::events::{message, shown};
use crate::snapshot::Snapshot;
use crate::words::{age, shortened, span};

use super::node;
use crate::pod_view::{containers, disruption};

/// Finalizers of Kubernetes and who removes them.
const FINALIZERS: [(&str, &str); 3] = [
    ("batch.kubernetes.io/job-tracking", "the Job controller, when it has counted the pod"),
    ("foregroundDeletion", "the garbage collector, when what the pod owns is gone"),
    ("orphan", "the garbage collector"),
];

/// `operation` is the message of the lifecycle condition.
pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot, operation: Option<&str>) {
    let pod = &snapshot.pod;
    let commands = Commands(pod);
    let Some(ends) = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0) else { return };
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let asked = ends - SignedDuration::from_secs(grace);
    let running: Vec<&str> = containers(pod)
        .filter(|it| it.state().is_some_and(|state| state.running.is_some()))
        .map(|it| it.name())
        .collect();
    let lost = node::cause(snapshot);
    let name = format!("pod {}", snapshot.pod_name());
    if let Some(lost) = lost.clone().filter(|_| !running.is_empty()) {
        let what = format!("is being deleted, but {}", lost.what);
        causes.push(Cause { what, since: Some(asked), ..lost });
    } else if !running.is_empty() {
        let left = ends.duration_since(snapshot.now).as_secs();
        let names = running.join(", ");
        let pre_stop = snapshot.events.newest(&["FailedPreStopHook"]);
        let has_hook = hooks(snapshot, &running);
        let because = disruption(pod).map_or("", because);
        let what = match (left > 0, has_hook) {
            (true, true) => {
                format!(
                    "is stopping{because}: container {names} runs its preStop hook or handles SIGTERM, killed in {}",
                    span(left)
                )
            }
            (true, false) => {
                format!("is stopping{because}: container {names} handles SIGTERM, killed in {}", span(left))
            }
            (false, _) => {
                format!("container {names} still runs {} after its grace period", age(ends, snapshot.now))
            }
        };
        let case = if left > 0 && has_hook { Case::PreStop } else { Case::Stopping };
        let killing = snapshot.events.newest(&["FailedKillPod", "ExceededGracePeriod"]);
        let preempted = snapshot.events.newest(&["Preempted"]);
        let evidence = [pre_stop, killing, preempted].into_iter().flatten().map(shown);
        let cause = Cause::new(case, name.clone(), what).since(Some(asked)).evidence(evidence);
        let cause = cause.evidence(disruption(pod).map(shown_disruption));
        causes.push(cause.next(commands.logs(running.first().copied().unwrap_or_default(), false)));
    }
    let finalizers = pod.metadata.finalizers.as_deref().unwrap_or_default();
    if !finalizers.is_empty() {
        let cause = finalizer_cause(snapshot, finalizers, &commands).since(Some(asked));
        causes.push(cause.evidence(operation.map(|text| shortened(text, 600))));
    }
    if let Some(event) =
        snapshot.events.newest(&["FailedUnmount", "FailedUnMount"]).filter(|_| running.is_empty())
    {
        let what = format!("its volume is not unmounted: {}", shortened(message(event), 200));
        let cause = Cause::new(Case::Mount, name.clone(), what).since(Some(asked)).next(commands.describe());
        causes.push(cause.evidence([shown(event)]));
    }
    if causes.is_empty() {
        let what = "has stopped, and the kubelet is about to remove it";
        causes.push(lost.unwrap_or_else(|| {
            Cause::new(Case::Stopping, name, what).since(Some(asked)).next(commands.describe())
        }));
    }
}

/// Returns who deletes the pod, if the control plane has said so.
fn because(disruption: &PodCondition) -> &'static str {
    match disruption.reason.as_deref() {
        Some("PreemptionByScheduler") => ", preempted by the scheduler for a pod of higher priority",
        Some("DeletionByTaintManager") => ", deleted for a taint of its node",
        Some("EvictionByEvictionAPI") => ", evicted",
        Some("DeletionByPodGC") => ", deleted by the garbage collector of pods",
        _ => "",
    }
}

fn shown_disruption(condition: &PodCondition) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    shortened(
        &format!("condition DisruptionTarget ({}): {}", text(&condition.reason), text(&condition.message)),
        300,
    )
}

fn hooks(snapshot: &Snapshot, running: &[&str]) -> bool {
    let containers = snapshot.pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    containers.iter().any(|container| {
        running.contains(&container.name.as_str())
            && container.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.pre_stop.is_some())
    })
}

fn finalizer_cause(snapshot: &Snapshot, finalizers: &[String], commands: &Commands<'_>) -> Cause {
    let owner = |finalizer: &str| -> String {
        if finalizer.starts_with(PROT_FINALIZER_PREFIX) {
            return "a consumer, when it sends the pod no traffic any more".to_owned();
        }
        let known = FINALIZERS.iter().find(|(name, _)| *name == finalizer);
        known.map_or_else(|| writer(snapshot, finalizer), |(_, owner)| (*owner).to_owned())
    };
    let named: Vec<String> =
        finalizers.iter().map(|it| format!("finalizer {it}: removed by {}", owner(it))).collect();
    let first = finalizers.first().map(String::as_str).unwrap_or_default();
    let more = match finalizers.len() {
        1 => String::new(),
        number => format!(" and {} more", number - 1),
    };
    let what = format!("is deleted when finalizer {first}{more} is removed, by {}", owner(first));
    let next = commands.kubectl(&format!("get pod {} -o yaml --show-managed-fields", commands.name()));
    Cause::new(Case::Finalizer, format!("pod {}", snapshot.pod_name()), what).next(next).evidence(named)
}

/// Returns who has added a finalizer, from the managed fields.
fn writer(snapshot: &Snapshot, finalizer: &str) -> String {
    let key = format!("v:\"{finalizer}\"");
    let entries = snapshot.pod.metadata.managed_fields.as_deref().unwrap_or_default();
    let entry = entries.iter().find(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields["f:metadata"]["f:finalizers"].get(&key).is_some())
    });
    match entry.and_then(|entry| entry.manager.as_deref()) {
        Some(manager) => format!("its owner, which {manager} set it for"),
        None => "its owner, which is not known".to_owned(),
    }
}
