//! A pod of a set.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use podward_api::CloneSet;
use podward_api::clone_set::{HookOptions, PriorityStrategy, UpdateType};
use podward_core::Operations;
use podward_core::busy::BusyClaim;
use podward_core::cloneset::{
    HookKind, Operation, PodRevision, PutBack, SetPod, State, UpdateProgress, keys,
};
use podward_core::keys::{
    CONTROL_LABEL, CONTROL_VALUE, DELETION_REQUEST, POD_DELETION_COST, SERVICE_AVAILABLE, SERVICE_READY_GATE,
    Stage,
};
use podward_kube_util::unix_nanos;

use super::ready::{condition, is_true, not_ready};
use super::set::unsigned;
use crate::pod::Pod;
use crate::template::{
    Change, InPlaceChange, Progress, Report, change, claims_changed, progress, template_of,
};

#[cfg(test)]
mod tests;

/// The pods of a set that are neither finished nor terminating.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) pods: Vec<ObservedPod>,
    /// What the plan reads of them, in the same order.
    pub(crate) seen: Vec<SetPod>,
}

/// A pod of a set.
#[derive(Clone, Debug)]
pub(crate) struct ObservedPod {
    pub(crate) pod: Arc<Pod>,
    pub(crate) report: Report,
    /// When it changes by itself: it becomes available, or its grace period ends.
    pub(crate) wake: Option<Timestamp>,
}

/// What pods of a set are compared with.
#[derive(Debug)]
pub(crate) struct Observer<'a> {
    set: &'a CloneSet,
    /// The revision of the template.
    update: &'a ControllerRevision,
    /// What has to change in pods of other revisions, by the hash of their revision. `None`: they have to be recreated.
    changes: HashMap<String, Option<InPlaceChange>>,
    options: HookOptions,
    now: Timestamp,
    /// The labels and finalizers that the plan compares. A set has thousands of pods: others are not copied.
    compared: BTreeSet<&'a str>,
}

impl<'a> Observer<'a> {
    /// Returns an observer for the pods of `set` whose template has the revision `update`.
    pub(crate) fn new(
        set: &'a CloneSet,
        update: &'a ControllerRevision,
        revisions: &[Arc<ControllerRevision>],
        options: HookOptions,
        now: Timestamp,
    ) -> Self {
        let changes = revisions.iter().map(|revision| {
            let name = revision.name_any();
            (crate::template::short_hash(&name).to_owned(), in_place(revision, update, set))
        });
        Self { set, update, changes: changes.collect(), options, now, compared: compared(set) }
    }

    /// Returns what has to change in a pod for the revision of the template. `None` if it has to be recreated.
    pub(crate) fn change(&self, pod: &Pod) -> Option<&InPlaceChange> {
        let revision = pod.labels().get(keys::REVISION_HASH)?;
        self.changes.get(crate::template::short_hash(revision))?.as_ref()
    }

    /// Returns when the deadline passes of the hook for which the pod waits in this state.
    fn deadline(&self, pod: &Pod, state: State) -> Option<Timestamp> {
        let lifecycle = self.set.spec.lifecycle.as_ref()?;
        let (hook, option) = match HookKind::of(state)? {
            HookKind::PreNormal => (&lifecycle.pre_normal, self.options.pre_normal),
            HookKind::InPlaceUpdate => (&lifecycle.in_place_update, self.options.in_place_update),
            HookKind::PreDelete => (&lifecycle.pre_delete, self.options.pre_delete),
        };
        hook.as_ref()?;
        let written = pod.annotations().get(keys::STATE_TIME).and_then(|text| text.parse().ok());
        let since = written.or(pod.metadata.creation_timestamp.as_ref().map(|time| time.0))?;
        since.checked_add(SignedDuration::from_secs(i64::from(option.deadline_seconds))).ok()
    }

    fn revision(&self, pod: &Pod) -> PodRevision {
        let update = self.update.name_any();
        match pod.labels().get(keys::REVISION_HASH) {
            Some(revision) if crate::template::is_same_revision(revision, &update) => PodRevision::Update,
            _ => PodRevision::Other { in_place: self.change(pod).is_some() },
        }
    }
}

/// Returns the keys of labels, and the finalizers, that the spec of the set names.
fn compared(set: &CloneSet) -> BTreeSet<&str> {
    let hooks =
        set.spec.lifecycle.iter().flat_map(|it| [&it.pre_normal, &it.in_place_update, &it.pre_delete]);
    let markers = hooks.flatten().flat_map(|hook| hook.labels_handler.keys().chain(&hook.finalizers_handler));
    let scattered = set.spec.update_strategy.scatter_strategy.iter().map(|it| &it.key);
    markers.chain(scattered).map(String::as_str).collect()
}

fn in_place(old: &ControllerRevision, new: &ControllerRevision, set: &CloneSet) -> Option<InPlaceChange> {
    // A pod that is never recreated keeps its volumes.
    if set.spec.update_strategy.type_ != UpdateType::InPlaceOnly && claims_changed(old, new) {
        return None;
    }
    match change(&template_of(old)?, &set.spec.template) {
        Change::Unchanged => Some(InPlaceChange::default()),
        // The kubelet starts a container again only for another image.
        Change::InPlace(change) if change.restarts().is_empty() => Some(change),
        Change::InPlace(_) | Change::Recreate(_) => None,
    }
}

/// Returns the pods of a set, without those that have ended or are terminating.
pub(crate) fn observe(observer: &Observer<'_>, pods: &[Arc<Pod>]) -> Observed {
    let mut on_node: BTreeMap<&str, u32> = BTreeMap::new();
    let mut observed = Observed::default();
    for pod in pods.iter().filter(|pod| is_active(pod)) {
        let node = pod.node_name().unwrap_or_default();
        let before = on_node.entry(node).or_default();
        let (pod, seen) = observe_pod(observer, pod, *before);
        observed.pods.push(pod);
        observed.seen.push(seen);
        *before += 1;
    }
    observed
}

/// Returns true if the pod has neither ended nor is terminating.
pub(crate) fn is_active(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !matches!(pod.phase(), Some("Succeeded" | "Failed"))
}

fn observe_pod(observer: &Observer<'_>, pod: &Arc<Pod>, spread_rank: u32) -> (ObservedPod, SetPod) {
    let Observer { set, now, .. } = observer;
    let (labels, annotations) = (pod.labels(), pod.annotations());
    let report = progress(pod, *now);
    let ready = is_true(pod, "Ready") == Some(true);
    let since = condition(pod, "Ready").and_then(|it| it.last_transition_time.as_ref()).map(|time| time.0);
    let min_ready = SignedDuration::from_secs(i64::from(set.spec.min_ready_seconds));
    let available_at = match (ready, since) {
        (true, Some(since)) => since.checked_add(min_ready).ok(),
        _ => None,
    };
    let ready_long_enough = ready && (min_ready.is_zero() || available_at.is_some_and(|at| at <= *now));
    let grace = match &report.progress {
        Progress::Grace { until } => Some(*until),
        _ => None,
    };
    let state = labels.get(keys::STATE_LABEL).and_then(|text| text.parse::<State>().ok());
    let deadline = state.and_then(|state| observer.deadline(pod, state));
    let wake = available_at.into_iter().chain(grace).chain(deadline).filter(|at| at > now).min();
    let is_present = |key: &str| annotations.contains_key(key);
    let is_compared = |name: &str| observer.compared.contains(name);
    let seconds = |time: Option<Timestamp>| time.map_or(0, Timestamp::as_second);
    let busy = BusyClaim::parse(
        annotations.get(podward_core::keys::BUSY_UNTIL).map(String::as_str),
        annotations.get(podward_core::keys::BUSY_REASON).map(String::as_str),
    );
    let seen = SetPod {
        name: pod.name_any(),
        state,
        previous: annotations.get(keys::PREVIOUS_STATE).and_then(|text| text.parse().ok()),
        unconfirmed: is_present(keys::UNCONFIRMED),
        rearmed: annotations.get(keys::REARMED).map(|text| PutBack::parse(text)),
        past_deadline: deadline.is_some_and(|at| at <= *now),
        awaits_service: awaits_service(pod),
        delete_hold: annotations.get(keys::DELETE_HOLD).cloned(),
        revision: observer.revision(pod),
        progress: match &report.progress {
            Progress::Complete => UpdateProgress::Done,
            Progress::Waits(_) | Progress::Blocked(_) => UpdateProgress::Running,
            Progress::NextBatch => UpdateProgress::NextBatch,
            Progress::Grace { .. } => UpdateProgress::Grace,
        },
        labels: labels
            .iter()
            .filter(|(key, _)| is_compared(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        finalizers: pod.finalizers().iter().filter(|it| is_compared(it)).cloned().collect(),
        scheduled: pod.node_name().is_some(),
        pending: pod.phase() == Some("Pending"),
        ready,
        ready_long_enough,
        update_ready: is_true(pod, keys::UPDATE_READY),
        has_update_gate: pod.has_gate(keys::UPDATE_READY),
        not_ready: not_ready(pod),
        has_not_ready_gate: pod.has_gate(keys::POD_READY),
        specified_delete: labels.contains_key(keys::SPECIFIED_DELETE),
        deletion_requested: is_present(DELETION_REQUEST),
        // `HeldDeletions` knows it.
        deletion_sent: false,
        busy: busy.at(unix_nanos(*now)).is_some(),
        operation: operation(labels),
        update_rank: rank(set.spec.update_strategy.priority_strategy.as_ref(), labels),
        deletion_cost: annotations
            .get(POD_DELETION_COST)
            .and_then(|cost| cost.parse().ok())
            .unwrap_or_default(),
        spread_rank,
        ready_since: if ready { seconds(since) } else { 0 },
        created: seconds(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
        restarts: restarts(pod),
    };
    (ObservedPod { pod: Arc::clone(pod), report, wake }, seen)
}

/// Returns the state of the operation that updates an opted-in pod in place.
fn operation(labels: &BTreeMap<String, String>) -> Operation {
    if labels.get(CONTROL_LABEL).map(String::as_str) != Some(CONTROL_VALUE) {
        return Operation::NotNeeded;
    }
    let operations = Operations::parse(labels);
    let Some(operation) = operations.get(keys::UPDATE_OPERATION) else { return Operation::None };
    match (operation.has(Stage::Operating), operation.has(Stage::Operate)) {
        (true, true) => Operation::Granted,
        (true, false) => Operation::Begun,
        (false, _) if operation.is_live() => Operation::Finished,
        (false, _) => Operation::None,
    }
}

/// Returns true if the pod has opted in, and Podward has not put it into service.
fn awaits_service(pod: &Pod) -> bool {
    pod.labels().get(CONTROL_LABEL).map(String::as_str) == Some(CONTROL_VALUE)
        && pod.has_gate(SERVICE_READY_GATE)
        && !pod.labels().contains_key(SERVICE_AVAILABLE)
}

fn restarts(pod: &Pod) -> u32 {
    pod.container_statuses().iter().map(|status| unsigned(status.restart_count)).fold(0, u32::saturating_add)
}

/// Returns the rank of a pod in the order of updates. The lowest comes first.
fn rank(strategy: Option<&PriorityStrategy>, labels: &BTreeMap<String, String>) -> i128 {
    /// Above all numbers.
    const KEY: i128 = 1 << 64;
    let Some(strategy) = strategy else { return 0 };
    if !strategy.weight_priority.is_empty() {
        let matches = |selector| podward_api::compile_selector(selector).is_ok_and(|it| it.matches(labels));
        let weights = strategy.weight_priority.iter().filter(|term| matches(&term.match_selector));
        return -weights.map(|term| i128::from(term.weight)).sum::<i128>();
    }
    let found = (1..).zip(&strategy.order_priority).find_map(|(place, order)| {
        let digits = |it: char| it.is_ascii_digit();
        let value = labels.get(&order.ordered_key)?;
        let number = value.get(value.trim_end_matches(digits).len()..)?;
        // The highest number comes first. One that is too large is none, as for OpenKruise.
        Some(KEY * place - i128::from(number.parse::<i64>().unwrap_or_default()))
    });
    // Pods without any of the keys come first.
    found.unwrap_or_default()
}
