//! What the controller does about busy pods besides letting operations wait for them (which [`podward_core::busy::BusyChecks`] decides).

use std::time::Duration;

use podward_core::busy::{BusyChecks, Claim, Overrun, keep_cost};
use podward_core::keys::{DELETE_OPERATION, POD_DELETION_COST};
use podward_core::{NoRules, Plan, UnixNanos};

use crate::cached_pod::CachedPod;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::tracker::Tracker;

/// Whether the deletion of `pod`, if somebody wishes it, waits because the pod is busy.
pub(crate) fn holds_deletion(pod: &CachedPod, max_busy: Duration, now: UnixNanos) -> bool {
    BusyChecks::new(&pod.view(), max_busy, now, &NoRules).holds(DELETE_OPERATION).is_some()
}

/// The annotations that keep the cost in step by which the pod's workload chooses who goes. `is_busy` says how it is to be.
pub(crate) fn costs(pod: &CachedPod, is_busy: bool, now: UnixNanos) -> Vec<(&'static str, Option<String>)> {
    let wish = pod.wish();
    keep_cost(is_busy && pod.is_chosen_by_cost(), &pod.cost(wish.as_ref()), now)
}

/// Keeps that cost in step within the write of `plan`, unless a wish changes it there.
pub(crate) fn keep_in_step(pod: &CachedPod, plan: &mut Plan) {
    let work = Claim::of(&pod.view()).at(plan.now);
    let changes = costs(pod, work.is_some(), plan.now);
    // It falls when the time has passed, unless the application says before that it is done.
    let has_risen = pod.cost(None).idle.is_some() || !changes.is_empty();
    let falls = work.filter(|_| has_risen).map(|work| work.until);
    plan.wake = plan.wake.into_iter().chain(falls).min();
    if !plan.annotations.iter().any(|(key, _)| *key == POD_DELETION_COST) {
        plan.annotations.extend(changes);
    }
}

/// Tells people and metrics of operations that go on although `pod` is busy, and of an annotation that can't be read.
pub(crate) fn tell(
    events: &Events,
    metrics: &Metrics,
    tracker: &Tracker,
    pod: &CachedPod,
    overruns: Vec<Overrun>,
) {
    for Overrun { operation_type, words, .. } in overruns {
        metrics.overran(&operation_type);
        events.warning(pod, "BusyPodInterrupted", words);
    }
    let fault = Claim::of(&pod.view()).fault();
    if tracker.is_new_fault(&pod.key(), fault.as_deref()) {
        events.warning(pod, "BusyUnreadable", fault.unwrap_or_default());
    }
}
