//! Events and metrics of busy pods.

use podward_core::busy::{BusyClaim, BusyOverrun};
use podward_kube_util::{CachedPod, Events};

use super::metrics::Metrics;
use super::tracker::Tracker;

/// Reports the operations that proceed although `pod` is busy, and an annotation that cannot be parsed.
pub(super) fn report(
    events: &Events,
    metrics: &Metrics,
    tracker: &Tracker,
    pod: &CachedPod,
    overruns: &[BusyOverrun],
) {
    for BusyOverrun { operation_type, words, .. } in overruns {
        metrics.overran(operation_type);
        events.warning(pod, "BusyPodInterrupted", words.clone());
    }
    let fault = BusyClaim::of(&pod.view()).fault();
    if tracker.is_new_fault(&pod.key(), fault.as_deref()) {
        events.warning(pod, "BusyUnreadable", fault.unwrap_or_default());
    }
}
