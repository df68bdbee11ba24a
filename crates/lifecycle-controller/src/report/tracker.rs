//! What the report remembers of each pod between two reconciliations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use kube::ResourceExt;
use parking_lot::Mutex;
use podward_core::hooks::{HookPhase, has_hook_finalizer};
use podward_core::{Explanation, HookEvent, HookReport, Operations, UnixNanos};
use podward_kube_util::{CachedPod, PodKey, now};
use podward_traces::OperationTraces;

use super::condition_throttle::{ConditionThrottle, StoredWait};
use super::metrics::Metrics;
use super::operation_state::OperationState;
use super::phase_history::{HistoryEvent, PhaseHistory};
use super::refusals::Refusals;
use super::waits::Waits;

/// A history that continues is reported after this time. A pod that waits has a condition by then.
const HISTORY_DELAY: Duration = Duration::from_secs(30);

/// Identifies a report of a hook: hook, phase, time of the request, kind.
type HookReportKey = (String, HookPhase, UnixNanos, &'static str);

#[derive(Debug)]
struct TrackedPod {
    uid: String,
    operations: BTreeMap<String, OperationState>,
    is_available: bool,
    history: PhaseHistory,
    condition: ConditionThrottle,
    hook_reports: BTreeSet<HookReportKey>,
    /// True if the last version has a finalizer of a hook.
    is_held_by_hook: bool,
    waits: Waits,
    /// True if the pod was being deleted when it was first seen, or its end was reported.
    is_ending: bool,
    /// What was wrong with the annotations in the last version.
    fault: Option<String>,
    refusals: Refusals,
}

/// What a version of a pod means for others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// The UID of the pod that this one has replaced under the same name.
    pub(crate) replaced: Option<String>,
    /// True if the pod is in service, and was not in the version before.
    pub(crate) comes_into_service: bool,
}

/// A pod that is gone, was replaced, or is not opted in any more.
#[derive(Debug)]
pub(crate) struct GonePod {
    pub(crate) key: PodKey,
    pub(crate) uid: String,
    /// True if the last known version has a finalizer of a hook.
    pub(crate) is_held_by_hook: bool,
}

/// The pods of a leader.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    pods: Mutex<HashMap<PodKey, TrackedPod>>,
    traces: OperationTraces,
}

impl Tracker {
    /// Returns the tracker of a new leader.
    pub(super) fn new(traces: OperationTraces) -> Self {
        Tracker { traces, ..Tracker::default() }
    }

    /// Compares a version of `pod` with the previous one and updates metrics, spans and the phase history.
    pub(super) fn observe(&self, pod: &CachedPod, metrics: &Metrics) -> Observed {
        let labels = pod.labels();
        let operations = Operations::parse(labels);
        let present = OperationState::of_all(labels, &operations);
        let is_held_by_hook = has_hook_finalizer(pod.finalizers());
        let mut pods = self.pods.lock();
        let key = pod.key();
        let is_known = pods.get(&key).is_some_and(|tracked| tracked.uid == pod.uid());
        self.traces.observe(pod, &operations, is_known, now());
        if !is_known {
            let replaced = pods.remove(&key).map(|replaced| {
                leave_all(&replaced, metrics);
                self.traces.gone(&replaced.uid);
                replaced.uid
            });
            present
                .values()
                .for_each(|state| metrics.entered(&state.operation_type, state.phase, state.since));
            let mut tracked = TrackedPod::new(pod.uid(), present, operations.is_service_available());
            tracked.is_ending = pod.view().terminating;
            tracked.is_held_by_hook = is_held_by_hook;
            pods.insert(key, tracked);
            return Observed { replaced, comes_into_service: false };
        }
        let Some(tracked) = pods.get_mut(&key) else { return Observed::default() };
        for (id, before) in &tracked.operations {
            let after = present.get(id);
            if after != Some(before) {
                let left_at = after.map_or_else(|| Some(now().0), |after| after.since);
                let trace = self.traces.trace_of(pod.uid(), id);
                metrics.left(&before.operation_type, before.phase, before.since, left_at, trace);
                tracked.history.left(id, before, left_at);
                if after.is_none() {
                    tracked.history.ended(id, before);
                }
            }
        }
        for (id, after) in &present {
            if tracked.operations.get(id) != Some(after) {
                metrics.entered(&after.operation_type, after.phase, after.since);
                tracked.history.entered(id, after);
            }
        }
        let comes_into_service = operations.is_service_available() && !tracked.is_available;
        if comes_into_service {
            tracked.history.became_available();
        }
        tracked.operations = present;
        tracked.is_held_by_hook = is_held_by_hook;
        tracked.is_available = operations.is_service_available();
        Observed { replaced: None, comes_into_service }
    }

    /// Returns the event for the phase history of `pod`, if the operations have ended or the history is old enough.
    pub(super) fn due_history(&self, pod: &CachedPod) -> HistoryEvent {
        let mut pods = self.pods.lock();
        let Some(tracked) = pods.get_mut(&pod.key()) else { return HistoryEvent::None };
        let is_over = tracked.operations.is_empty() && tracked.is_available;
        let delay = if is_over { Duration::ZERO } else { HISTORY_DELAY };
        tracked.history.take_event(delay)
    }

    /// Returns how long the wait in `explanation` has to last until the condition is written for its own sake, zero if
    /// it is due. `None` if the condition is stored already.
    pub(super) fn condition_due(&self, pod: &CachedPod, explanation: &Explanation) -> Option<Duration> {
        let mut pods = self.pods.lock();
        let tracked = pods.get_mut(&pod.key())?;
        let wait = (explanation.status, explanation.reason);
        if pod.has_condition(explanation) {
            tracked.condition.stored(wait);
            return None;
        }
        let stored = StoredWait::of(pod, explanation);
        Some(tracked.condition.due(wait, stored, Instant::now()))
    }

    /// Records that the condition of the pod is stored with `explanation`.
    pub(super) fn condition_stored(&self, key: &PodKey, explanation: &Explanation) {
        if let Some(tracked) = self.pods.lock().get_mut(key) {
            tracked.condition.stored((explanation.status, explanation.reason));
        }
    }

    /// Records that the condition is written for its own sake.
    pub(super) fn condition_written(&self, key: &PodKey) {
        if let Some(tracked) = self.pods.lock().get_mut(key) {
            tracked.condition.written(Instant::now());
        }
    }

    /// Returns those of `notes` that were not reported yet, and forgets the reported ones that are not among them. Counts
    /// the overdue questions among `notes` instead of those before.
    pub(super) fn new_hook_reports<'n>(
        &self,
        key: &PodKey,
        notes: &'n [HookReport],
        metrics: &Metrics,
    ) -> Vec<&'n HookReport> {
        let mut pods = self.pods.lock();
        let Some(tracked) = pods.get_mut(key) else { return Vec::new() };
        let key_of = |note: &HookReport| (note.hook.clone(), note.phase, note.since, note.event.as_str());
        let reported = std::mem::take(&mut tracked.hook_reports);
        tracked.hook_reports = notes.iter().map(key_of).collect();
        overdue(&tracked.hook_reports).for_each(|(hook, phase)| metrics.overdue.add(hook, phase));
        overdue(&reported).for_each(|(hook, phase)| metrics.overdue.remove(hook, phase));
        notes.iter().filter(|note| !reported.contains(&key_of(note))).collect()
    }

    /// Returns the result of `update` on the waits of a pod, or `None` if the pod is not known.
    pub(super) fn waits<T>(
        &self,
        key: &PodKey,
        metrics: &Metrics,
        update: impl FnOnce(&mut Waits) -> T,
    ) -> Option<T> {
        let mut pods = self.pods.lock();
        let tracked = pods.get_mut(key)?;
        let before = tracked.waits.include_busy();
        let updated = update(&mut tracked.waits);
        match (before, tracked.waits.include_busy()) {
            (false, true) => drop(metrics.busy_waiting.inc()),
            (true, false) => drop(metrics.busy_waiting.dec()),
            _ => {}
        }
        Some(updated)
    }

    /// Records that the end of `pod` is reported. Returns true if it was not reported before, and the pod was seen before
    /// its deletion began.
    pub(super) fn begins_to_end(&self, pod: &CachedPod) -> bool {
        let mut pods = self.pods.lock();
        let tracked = pods.get_mut(&pod.key()).filter(|tracked| tracked.uid == pod.uid());
        tracked.is_some_and(|tracked| !std::mem::replace(&mut tracked.is_ending, true))
    }

    /// Returns true if `fault`, an error in the annotations of the pod, is new.
    pub(super) fn is_new_fault(&self, key: &PodKey, fault: Option<&str>) -> bool {
        let mut pods = self.pods.lock();
        let Some(tracked) = pods.get_mut(key).filter(|tracked| tracked.fault.as_deref() != fault) else {
            return false;
        };
        tracked.fault = fault.map(ToOwned::to_owned);
        fault.is_some()
    }

    /// Returns true if the refusal `text` of a write is reported now.
    pub(super) fn is_due_refusal(&self, key: &PodKey, text: &str) -> bool {
        let mut pods = self.pods.lock();
        pods.get_mut(key).is_none_or(|tracked| tracked.refusals.is_due(text, Instant::now()))
    }

    /// Records that no write of the pod is refused now.
    pub(super) fn refusals_ended(&self, key: &PodKey) {
        if let Some(tracked) = self.pods.lock().get_mut(key) {
            tracked.refusals.ended();
        }
    }

    /// Forgets the pods that do not exist any more under their name and UID, and returns them.
    pub(super) fn retain(&self, metrics: &Metrics, exists: impl Fn(&PodKey, &str) -> bool) -> Vec<GonePod> {
        let mut pods = self.pods.lock();
        let gone = pods.extract_if(|key, tracked| !exists(key, &tracked.uid)).map(|(key, tracked)| {
            leave_all(&tracked, metrics);
            self.traces.gone(&tracked.uid);
            let TrackedPod { uid, is_held_by_hook, .. } = tracked;
            GonePod { key, uid, is_held_by_hook }
        });
        gone.collect()
    }
}

impl TrackedPod {
    fn new(uid: &str, operations: BTreeMap<String, OperationState>, is_available: bool) -> Self {
        TrackedPod {
            uid: uid.to_owned(),
            operations,
            is_available,
            history: PhaseHistory::default(),
            condition: ConditionThrottle::default(),
            hook_reports: BTreeSet::new(),
            is_held_by_hook: false,
            waits: Waits::default(),
            is_ending: false,
            fault: None,
            refusals: Refusals::default(),
        }
    }
}

/// Removes a pod from the gauges.
fn leave_all(tracked: &TrackedPod, metrics: &Metrics) {
    if tracked.waits.include_busy() {
        metrics.busy_waiting.dec();
    }
    overdue(&tracked.hook_reports).for_each(|(hook, phase)| metrics.overdue.remove(hook, phase));
    for state in tracked.operations.values() {
        metrics.left(&state.operation_type, state.phase, state.since, None, None);
    }
}

/// Returns hook and phase of each question that is past its deadline while the pod waits.
fn overdue(reports: &BTreeSet<HookReportKey>) -> impl Iterator<Item = (&str, HookPhase)> {
    let is_overdue = |(_, _, _, event): &&HookReportKey| *event == HookEvent::Overdue.as_str();
    reports.iter().filter(is_overdue).map(|(hook, phase, ..)| (hook.as_str(), *phase))
}

#[cfg(test)]
mod tests {
    use podward_core::hooks::hook_finalizer;
    use podward_core::keys::{CONTROL_LABEL, SERVICE_AVAILABLE};
    use podward_support::metrics_text;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_are_gone_tell_whether_a_hook_held_them_last() {
        let (tracker, metrics) = (Tracker::default(), Metrics::new());
        let hook = hook_finalizer("hook");
        for (name, finalizers) in [
            ("held", vec![hook.as_str()]),
            ("added", vec![]),
            ("added", vec![hook.as_str()]),
            ("released", vec![hook.as_str(), "other"]),
            ("released", vec!["other"]),
            ("there", vec![]),
        ] {
            let metadata = json!({"namespace": "shop", "name": name, "uid": name, "finalizers": finalizers});
            tracker.observe(&serde_json::from_value(json!({"metadata": metadata})).unwrap(), &metrics);
        }
        let gone = tracker.retain(&metrics, |key, _| key.name == "there");
        let mut gone: Vec<_> = gone.iter().map(|pod| (pod.uid.as_str(), pod.is_held_by_hook)).collect();
        gone.sort_unstable();
        assert_eq!(gone, [("added", true), ("held", true), ("released", false)]);
        assert!(tracker.retain(&metrics, |key, _| key.name == "there").is_empty());
    }

    #[test]
    fn a_version_shows_a_replaced_pod_and_the_way_into_service() {
        let (tracker, metrics) = (Tracker::default(), Metrics::new());
        let observe = |uid: &str, labels: serde_json::Value| {
            let metadata = json!({"namespace": "shop", "name": "web-0", "uid": uid, "labels": labels});
            tracker.observe(&serde_json::from_value(json!({"metadata": metadata})).unwrap(), &metrics)
        };
        let out = || json!({CONTROL_LABEL: "true"});
        let serving = || json!({CONTROL_LABEL: "true", SERVICE_AVAILABLE: "1"});
        let nothing = Observed::default;
        assert_eq!(observe("old", serving()), nothing(), "a new leader knows no version before");
        assert_eq!(observe("old", out()), nothing());
        let comes = Observed { comes_into_service: true, ..nothing() };
        assert_eq!(observe("old", serving()), comes);
        assert_eq!(observe("old", serving()), nothing());
        let replaces = Observed { replaced: Some("old".to_owned()), ..nothing() };
        assert_eq!(observe("new", out()), replaces);
        assert_eq!(observe("new", serving()), comes);

        // The cleanup knows a pod that was replaced and has not been observed since.
        assert!(tracker.retain(&metrics, |_, uid| uid == "new").is_empty());
        let gone = tracker.retain(&metrics, |_, uid| uid == "newer");
        assert_eq!(gone.iter().map(|pod| pod.uid.as_str()).collect::<Vec<_>>(), ["new"]);
    }

    #[test]
    fn overdue_questions_are_counted_while_their_pods_wait() {
        let (tracker, metrics) = (Tracker::default(), Metrics::new());
        let mut registry = Registry::with_prefix("podward");
        metrics.register(&mut registry);
        let key = |name: &str| PodKey { namespace: "shop".to_owned(), name: name.to_owned() };
        let note = |phase, event| HookReport { hook: "mesh".to_owned(), phase, since: UnixNanos(1), event };
        let report = |name: &str, notes: &[HookReport]| {
            let metadata = json!({"namespace": "shop", "name": name, "uid": name});
            tracker.observe(&serde_json::from_value(json!({"metadata": metadata})).unwrap(), &metrics);
            tracker.new_hook_reports(&key(name), notes, &metrics);
        };
        let line = |phase: &str, count: usize| {
            // The hook is not registered here.
            format!("podward_hook_overdue_questions{{hook=\"other\",phase=\"{phase}\"}} {count}\n")
        };
        let has = |line: &str| metrics_text(&registry).contains(line);
        for name in ["web-0", "web-1", "web-0"] {
            report(name, &[note(HookPhase::Complete, HookEvent::Overdue)]);
        }
        report("web-2", &[note(HookPhase::Prepare, HookEvent::Proceeded)]);
        report("web-3", &[note(HookPhase::Release, HookEvent::Overdue)]);
        assert!(has(&line("COMPLETE", 2)) && has(&line("RELEASE", 1)) && !has("PREPARE\"} 1"));
        report("web-0", &[]);
        assert!(has(&line("COMPLETE", 1)));
        tracker.retain(&metrics, |key, _| key.name != "web-1");
        assert!(!has("podward_hook_overdue_questions{hook=\"other\",phase=\"COMPLETE\""));
        metrics.forget_operations();
        assert!(!has("podward_hook_overdue_questions"));
    }
}
