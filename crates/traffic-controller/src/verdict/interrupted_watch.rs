//! Watches that are interrupted.

use super::traffic_verdict::TrafficVerdict;
use crate::index::{NodeObject, PodEndpoints, WatchedObject};

/// Returns the answer while a watch is interrupted without which `endpoints` may be out of date. `None` if all work.
pub(super) fn interrupted_watch(endpoints: &PodEndpoints) -> Option<TrafficVerdict> {
    let kind = endpoints.interrupted?;
    let reason = format!(
        "the watch of kind {kind} is interrupted; waiting until the traffic-controller has listed these objects again"
    );
    Some(TrafficVerdict::pending(reason, None))
}

/// The same for an answer that does not depend on nodes.
pub(super) fn interrupted_watch_but_nodes(endpoints: &PodEndpoints) -> Option<TrafficVerdict> {
    interrupted_watch(endpoints).filter(|_| endpoints.interrupted != Some(NodeObject::KIND))
}
