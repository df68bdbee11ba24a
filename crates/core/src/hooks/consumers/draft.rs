//! The state of a pod while a plan is being made.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::hooks::evidence_record::EvidenceRecord;
use crate::model::expected_finalizers::{ExpectedFinalizers, with_consumers};
use crate::model::hook_keys::{consumer_key_of, hook_finalizer};
use crate::model::keys::{Key, PREPARING_TO_DELETE, Stage};
use crate::model::operations::{Operation, Operations};
use crate::model::time::UnixNanos;
use crate::model::view::{ConditionStatus, PodFacts, PodView};
use crate::protocol::preparing_to_delete::is_left_over;
use crate::protocol::refusals::ResultRefusals;

use super::requests::HookRequests;

/// The parts of a pod that a plan may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodDraft {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) gate: Option<ConditionStatus>,
    pub(crate) gate_since: Option<UnixNanos>,
    /// The annotation of expected finalizers with the hooks that it must name.
    pub(crate) expected: Option<String>,
    /// The same annotation, in which the hooks in doubt cannot be met although their finalizer is present.
    in_doubt: Option<String>,
    /// The hooks for which the two annotations were computed: all hooks, and those in doubt.
    expected_for: Option<(Vec<String>, Vec<String>)>,
    pub(crate) marks: HookRequests,
    pub(crate) evidence: EvidenceRecord,
    /// The refusals of results that are being checked.
    pub(crate) refusals: ResultRefusals,
}

impl PodDraft {
    pub(crate) fn of(pod: &PodView<'_>) -> Self {
        let text = pod.available_conditions.map(ToOwned::to_owned);
        PodDraft {
            labels: pod.labels.clone(),
            finalizers: pod.finalizers.to_vec(),
            gate: pod.gate,
            gate_since: pod.facts.gate_since,
            in_doubt: text.clone(),
            expected: text,
            expected_for: None,
            marks: HookRequests::parse(pod.facts.hook_requests),
            evidence: EvidenceRecord::parse(pod.facts.evidence),
            refusals: ResultRefusals::of(pod),
        }
    }

    /// Returns the view of the planned pod.
    pub(crate) fn view<'d>(&'d self, pod: &PodView<'d>) -> PodView<'d> {
        PodView {
            labels: &self.labels,
            available_conditions: self.in_doubt.as_deref(),
            finalizers: &self.finalizers,
            gate: self.gate,
            facts: PodFacts { gate_since: self.gate_since, ..pod.facts },
            ..*pod
        }
    }

    pub(crate) fn operations(&self) -> Operations<'_> {
        Operations::parse(&self.labels)
    }

    pub(crate) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|present| present == finalizer)
    }

    pub(crate) fn is_held_by(&self, hook: &str) -> bool {
        self.has(&hook_finalizer(hook))
    }

    pub(crate) fn add(&mut self, hook: &str) {
        let finalizer = hook_finalizer(hook);
        if !self.has(&finalizer) {
            self.finalizers.push(finalizer);
        }
    }

    pub(crate) fn remove(&mut self, finalizer: &str) {
        self.finalizers.retain(|present| present != finalizer);
    }

    /// Sets exactly these hooks as expected. The hooks in doubt cannot be met.
    pub(crate) fn expect(&mut self, stored: Option<&str>, hooks: Vec<String>) {
        let doubted: Vec<String> =
            hooks.iter().filter(|hook| self.marks.leaves_in_doubt(hook)).cloned().collect();
        let expected_for = Some((hooks, doubted));
        if self.expected_for == expected_for {
            return;
        }
        if let Some((hooks, doubted)) = &expected_for {
            // An annotation that cannot be read stays as it is; the pod is not available until it is corrected.
            self.expected = match with_consumers(stored, hooks.iter().map(String::as_str)) {
                Ok(Some(text)) => text,
                Ok(None) | Err(_) => stored.map(ToOwned::to_owned),
            };
            self.in_doubt = match self.expected.as_deref() {
                Some(text) if !doubted.is_empty() => Some(unmet(text, doubted)),
                _ => self.expected.clone(),
            };
        }
        self.expected_for = expected_for;
    }

    /// Undoes the operations `ids`: removes all their labels.
    pub(crate) fn undo(&mut self, ids: &BTreeSet<String>) {
        self.labels.retain(|key, _| !matches!(Key::parse(key), Key::Stage(_, id) if ids.contains(id)));
        if is_left_over(&self.labels, &self.operations()) {
            self.labels.remove(PREPARING_TO_DELETE);
        }
    }

    /// Returns the earliest value of the labels of `stage`.
    pub(crate) fn oldest(&self, stage: Stage) -> Option<UnixNanos> {
        let values = self
            .labels
            .iter()
            .filter(|(key, _)| matches!(Key::parse(key), Key::Stage(found, _) if found == stage));
        values.filter_map(|(_, value)| value.parse().ok().map(UnixNanos)).min()
    }
}

/// Returns `text` with a finalizer for `hooks` that no consumer sets. A text that cannot be read stays as it is: the pod
/// is not available with it. Anybody who may write the pod can write any text.
fn unmet(text: &str, hooks: &[String]) -> String {
    let Ok(members) = serde_json::from_str::<Option<Map<String, Value>>>(text) else {
        return text.to_owned();
    };
    let mut members = members.unwrap_or_default();
    let expected = members.entry("expectedFinalizers").or_insert_with(|| Map::new().into());
    if expected.is_null() {
        *expected = Map::new().into();
    }
    let Some(expected) = expected.as_object_mut() else { return text.to_owned() };
    expected.extend(hooks.iter().map(|hook| (consumer_key_of(hook), Value::from("not yet"))));
    Value::Object(members).to_string()
}

/// Returns the hooks that the annotation `text` names.
pub(crate) fn expected_hooks(text: Option<&str>) -> Vec<String> {
    let expected = text.and_then(|text| ExpectedFinalizers::parse(text).ok()).unwrap_or_default();
    expected.hooks().map(ToOwned::to_owned).collect()
}

/// Returns whether an operation keeps the pod out of service, or has finished and its result is being checked.
pub(crate) fn is_out(operations: &Operations<'_>) -> bool {
    let is_out = |operation: &Operation<'_>| {
        operation.has_any(&[Stage::Preparing, Stage::Operate])
            || (operation.has(Stage::Operated) && !operation.has(Stage::Completing))
    };
    operations.iter().any(|(_, operation)| is_out(operation))
}
