//! The requests in flight: the pod reports them, or its node-agent reports its connections, or nothing is known.

use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::EvidenceLevel::{Assumed, Bounded, Proven};

use super::prepare_progress::PrepareProgress;
use super::text::count as counted;
use super::traffic_verdict::VerdictPart;
use super::wait_times::WaitTimes;
use crate::clock::{after, before, between};
use crate::proxy::WATCH_LAG;

/// What is known of the requests in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InFlightCount {
    /// Nothing is reported: the pod has no label with a port, and there is no node-agent.
    NotReported,
    /// The pod reports the number. It has not been read yet.
    Unknown,
    /// The number that the pod reports, and when it was requested.
    Count(u64, UnixNanos),
    /// The number could not be read from the pod. The text is the error.
    Failed(String),
    /// The node-agent reports the connections to the pod. They have not been read yet.
    ConnectionsUnknown,
    /// The connections to the pod, and when they were requested.
    Connections(OpenConnections, UnixNanos),
    /// The connections are not known. The text is the reason.
    ConnectionsFailed(String),
}

/// The connections to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenConnections {
    /// The number of connections.
    pub(crate) open: u32,
    /// The time since data was received or sent on any of them.
    pub(crate) silent_for: Duration,
    /// The number of connections that have rested since they were requested: requests there that are older have ended.
    pub(crate) rested: u32,
}

impl InFlightCount {
    /// Returns true if the pod itself reports the number.
    pub(crate) fn is_of_pod(&self) -> bool {
        matches!(self, InFlightCount::Unknown | InFlightCount::Count(..) | InFlightCount::Failed(_))
    }

    /// Returns true if the node-agent reports the connections.
    pub(crate) fn is_of_agent(&self) -> bool {
        !self.is_of_pod() && *self != InFlightCount::NotReported
    }
}

/// Checks that requests in flight have ended. No new requests arrive after `since`.
pub(super) fn requests_ended(
    count: &InFlightCount,
    since: UnixNanos,
    progress: &mut PrepareProgress,
    wait_times: &WaitTimes,
    now: UnixNanos,
) -> VerdictPart {
    let wait = |reason: &str| VerdictPart::Wait(reason.to_owned(), None);
    let why = match count {
        InFlightCount::Unknown => return wait("reading the number of requests in flight from the pod"),
        InFlightCount::Count(0, at) if *at >= since => {
            progress.last_data = None;
            let first = *progress.idle_since.get_or_insert(*at);
            if between(first, *at) >= WATCH_LAG {
                return VerdictPart::Done(Proven, "the pod reports no requests in flight".to_owned());
            }
            return wait("the pod has reported once that no requests are in flight");
        }
        InFlightCount::Count(0, _) => {
            return wait("reading the number of requests in flight from the pod again");
        }
        InFlightCount::Count(count, at) => {
            progress.idle_since = None;
            progress.last_data = Some(*at);
            return wait(&format!("the pod reports {count} requests in flight"));
        }
        InFlightCount::Failed(why) => {
            progress.idle_since = None;
            format!(" (could not read the number from the pod: {why})")
        }
        InFlightCount::ConnectionsUnknown => {
            return wait("reading the connections to the pod from its node-agent");
        }
        InFlightCount::Connections(connections, at) => {
            progress.last_data = (connections.open > 0).then(|| before(now, connections.silent_for));
            return connections_ended(connections, *at, since, wait_times, now);
        }
        InFlightCount::ConnectionsFailed(why) => {
            format!(" (the connections to the pod are not known: {why})")
        }
        InFlightCount::NotReported => String::new(),
    };
    // A read that fails, as while the node-agent restarts, does not end the wait for requests or a connection in use.
    let since = progress.last_data.map_or(since, |data| data.max(since));
    let (end, seconds) = (after(since, wait_times.quiet), wait_times.quiet.as_secs_f64());
    if now >= end {
        return VerdictPart::Done(Bounded, format!("waited {seconds} s for requests in flight{why}"));
    }
    let waited = between(since, now).as_secs_f64();
    VerdictPart::Wait(format!("waiting for requests in flight ({waited:.1} of {seconds} s){why}"), Some(end))
}

/// Returns when the connections may be read that say whether requests are in flight: a packet that opens a connection may
/// be on its way when the data paths have applied the change.
pub(crate) fn connections_count_from(propagated_since: UnixNanos) -> UnixNanos {
    after(propagated_since, WATCH_LAG)
}

/// Checks the connections that were requested at `at`.
fn connections_ended(
    connections: &OpenConnections,
    at: UnixNanos,
    since: UnixNanos,
    wait_times: &WaitTimes,
    now: UnixNanos,
) -> VerdictPart {
    let OpenConnections { open, silent_for, rested } = *connections;
    if at < connections_count_from(since) {
        return VerdictPart::Wait("reading the connections to the pod again".to_owned(), None);
    }
    if open == 0 {
        return VerdictPart::Done(Proven, "no connection to the pod is left".to_owned());
    }
    // Only the pod can end connections that clients keep alive and use. Waiting would not change that.
    let all_rested = rested >= open;
    let (open, silent) = (counted(open as usize, "connection"), silent_for.as_secs_f64());
    if silent_for >= wait_times.quiet {
        let words = format!("no data on the {open} to the pod for {silent:.1} s");
        return VerdictPart::Done(Bounded, words);
    }
    if all_rested && now >= after(since, wait_times.quiet) {
        let words = format!(
            "the older requests have ended, and clients send new ones on the {open} that they keep alive"
        );
        return VerdictPart::Done(Assumed, words);
    }
    let (end, limit) = (after(since, wait_times.connections), wait_times.connections.as_secs_f64());
    if now >= end {
        let words =
            format!("waited {limit} s for requests in flight, and {open} to the pod still carry data");
        return VerdictPart::Done(Assumed, words);
    }
    let waited = between(since, now).as_secs_f64();
    let reason = format!(
        "{open} to the pod, the last data {silent:.1} s ago: waiting for it ({waited:.1} of {limit} s)"
    );
    // The end is not known: the connections decide.
    VerdictPart::Wait(reason, None)
}
