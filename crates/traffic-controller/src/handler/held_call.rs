//! Limits the number of calls that are held open.

use crate::metrics::TrafficMetrics;

/// The maximum number of calls that are held open. Further calls are answered immediately, so that no pod waits for the
/// call of another pod.
const MAX_HELD_CALLS: i64 = 192;

/// A call that is held open. It is counted in the metrics until it is dropped.
pub(super) struct HeldCall<'a>(&'a TrafficMetrics);

impl<'a> HeldCall<'a> {
    /// Returns `None` if [`MAX_HELD_CALLS`] calls are held open.
    pub(super) fn new(metrics: &'a TrafficMetrics) -> Option<Self> {
        (metrics.held.inc() < MAX_HELD_CALLS).then_some(Self(metrics)).or_else(|| {
            metrics.held.dec();
            None
        })
    }
}

impl Drop for HeldCall<'_> {
    fn drop(&mut self) {
        self.0.held.dec();
    }
}
