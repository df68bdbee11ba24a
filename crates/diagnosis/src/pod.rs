//! The causes of one pod, from Pending to Terminating.

mod budgets;
mod config;
mod crash;
mod finished;
mod gates;
mod images;
mod node;
mod operation;
mod probes;
mod scheduling;
mod starting;
mod terminating;

use k8s_openapi::api::core::v1::Pod;

use crate::cause::Cause;
use crate::pod_view::{is_finished, phase};
use crate::snapshot::Snapshot;
use crate::traffic;

pub use crate::pod_view::{is_ready, is_scheduled};
pub(crate) use budgets::selects;
pub use operation::{is_held, is_live};
pub use scheduling::claim_names;

/// Returns the causes why the pod of `snapshot` does not run, serve or end, the most probable one first. Empty for a pod
/// that is in order.
///
/// `operation` is the message of the lifecycle condition, if an operation or a deletion of Podward waits.
#[must_use]
pub fn diagnose(snapshot: &Snapshot, operation: Option<&str>) -> Vec<Cause> {
    let pod = &snapshot.pod;
    let mut causes = Vec::new();
    if pod.metadata.deletion_timestamp.is_some() {
        terminating::add(&mut causes, snapshot, operation);
        return causes;
    }
    if is_finished(pod) {
        finished::add(&mut causes, snapshot);
        return causes;
    }
    if !is_scheduled(pod) {
        scheduling::add(&mut causes, snapshot);
        return causes;
    }
    if !is_ready(pod) {
        node::add(&mut causes, snapshot);
        starting::add(&mut causes, snapshot);
        crash::add(&mut causes, snapshot, false);
        probes::add(&mut causes, snapshot);
        crash::add(&mut causes, snapshot, true);
    }
    // Containers that run wait for nothing else than Podward.
    operation::add(&mut causes, snapshot, operation);
    if !is_ready(pod) {
        gates::add(&mut causes, snapshot, operation.is_some());
        if causes.is_empty() {
            starting::add_unknown(&mut causes, snapshot);
        }
        traffic::add(&mut causes, snapshot);
    } else {
        // A kubelet whose runtime is down still reports its pods as Ready.
        let of_node = node::cause(snapshot);
        causes.extend(of_node.map(|cause| Cause { what: format!("is Ready, and {}", cause.what), ..cause }));
        traffic::add(&mut causes, snapshot);
        if causes.is_empty() {
            // Nothing is wrong with it, but a drain of its node waits.
            causes.extend(
                budgets::cause(snapshot)
                    .map(|cause| Cause { what: format!("is Ready; {}", cause.what), ..cause }),
            );
        }
    }
    causes
}

/// Returns whether `diagnose` can find something: the pod is not Ready, ends, or Podward holds it.
#[must_use]
pub fn may_have_causes(pod: &Pod) -> bool {
    let phase = phase(pod);
    let is_done = phase == "Succeeded" && pod.metadata.deletion_timestamp.is_none();
    !is_done && (pod.metadata.deletion_timestamp.is_some() || !is_ready(pod) || is_held(pod))
}
