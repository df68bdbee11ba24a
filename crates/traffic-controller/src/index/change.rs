//! When an endpoint changed, as far as this process knows.

use std::time::Duration;

use podward_core::UnixNanos;

use crate::clock::before;

/// Upper bound for the lag between two watches of the same API server.
const WATCH_SKEW: Duration = Duration::from_secs(1);
/// Upper bound for the difference between the clocks of a cluster.
const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// The last change of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndpointChange {
    /// When this process observed the change. The API server had stored it by then.
    pub(crate) seen: UnixNanos,
    /// A lower bound for the time of the change: a proxy that received nothing since then cannot have received this
    /// change. `None` when there is no such bound.
    pub(crate) not_before: Option<UnixNanos>,
}

/// The source from which this process learned of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChangeOrigin {
    /// A watch event: the object has just changed.
    Watched,
    /// A list: the object may have changed long ago. The value is the time of the change, if the slice states it
    /// (annotation `endpoints.kubernetes.io/last-change-trigger-time`).
    Listed(Option<UnixNanos>),
}

impl ChangeOrigin {
    /// Returns the change that is observed at `now`.
    pub(super) fn change(self, now: UnixNanos) -> EndpointChange {
        let not_before = match self {
            ChangeOrigin::Watched => Some(before(now, WATCH_SKEW)),
            ChangeOrigin::Listed(trigger) => trigger.map(|time| before(time, CLOCK_SKEW)),
        };
        EndpointChange { seen: now, not_before }
    }
}
