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
    /// A proxy that received anything since then has received this change, too. It is later than `not_before` if the
    /// change may have happened at any time until `seen`.
    pub(crate) received_from: UnixNanos,
}

impl EndpointChange {
    /// Returns a change that was observed at `seen` and happened since `not_before`.
    pub(crate) fn dated(seen: UnixNanos, not_before: UnixNanos) -> Self {
        Self { seen, not_before: Some(not_before), received_from: not_before }
    }

    /// Returns a change that was observed at `seen`. When it happened is not known.
    pub(crate) fn undated(seen: UnixNanos) -> Self {
        Self { seen, not_before: None, received_from: seen }
    }

    /// Returns this change if there may have been another one until `time`.
    pub(super) fn or_until(self, time: UnixNanos) -> Self {
        if time <= self.seen { self } else { Self { seen: time, received_from: time, ..self } }
    }
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
        match self {
            ChangeOrigin::Watched => EndpointChange::dated(now, before(now, WATCH_SKEW)),
            ChangeOrigin::Listed(Some(trigger)) => EndpointChange::dated(now, before(trigger, CLOCK_SKEW)),
            ChangeOrigin::Listed(None) => EndpointChange::undated(now),
        }
    }
}
