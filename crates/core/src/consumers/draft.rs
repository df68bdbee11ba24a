//! The pod as a plan is making it.

use std::collections::BTreeMap;

use crate::expected::{ExpectedFinalizers, with_consumers};
use crate::hooks::{employer_of, finalizer_of};
use crate::keys::{Key, Stage};
use crate::operations::{Operation, Operations};
use crate::refusals::Refusals;
use crate::time::UnixNanos;
use crate::view::{ConditionStatus, Facts, PodView};

use super::marks::{Evidences, Marks};

/// What a plan may change, as it is so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) gate: Option<ConditionStatus>,
    pub(crate) gate_since: Option<UnixNanos>,
    /// The annotation of expected finalizers with the hooks that it has to name.
    pub(crate) expected: Option<String>,
    /// The same, with those that can't be met yet though their finalizer is there.
    in_doubt: Option<String>,
    /// Which hooks these two are for: all of them, and those in doubt.
    expected_for: Option<(Vec<String>, Vec<String>)>,
    pub(crate) marks: Marks,
    pub(crate) evidence: Evidences,
    /// Who has refused the results that wait to be judged.
    pub(crate) refusals: Refusals,
}

impl Draft {
    pub(crate) fn of(pod: &PodView<'_>) -> Self {
        let text = pod.available_conditions.map(ToOwned::to_owned);
        Draft {
            labels: pod.labels.clone(),
            finalizers: pod.finalizers.to_vec(),
            gate: pod.gate,
            gate_since: pod.facts.gate_since,
            in_doubt: text.clone(),
            expected: text,
            expected_for: None,
            marks: Marks::parse(pod.facts.asked),
            evidence: Evidences::parse(pod.facts.evidence),
            refusals: Refusals::of(pod),
        }
    }

    /// The pod as it is to be.
    pub(crate) fn view<'d>(&'d self, pod: &PodView<'d>) -> PodView<'d> {
        PodView {
            labels: &self.labels,
            available_conditions: self.in_doubt.as_deref(),
            finalizers: &self.finalizers,
            gate: self.gate,
            facts: Facts { gate_since: self.gate_since, ..pod.facts },
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
        self.has(&finalizer_of(hook))
    }

    pub(crate) fn add(&mut self, hook: &str) {
        let finalizer = finalizer_of(hook);
        if !self.has(&finalizer) {
            self.finalizers.push(finalizer);
        }
    }

    pub(crate) fn remove(&mut self, finalizer: &str) {
        self.finalizers.retain(|present| present != finalizer);
    }

    /// Names exactly these hooks as expected; the ones in doubt can't be met.
    pub(crate) fn expect(&mut self, stored: Option<&str>, hooks: Vec<String>) {
        let doubted: Vec<String> =
            hooks.iter().filter(|hook| self.marks.leaves_in_doubt(hook)).cloned().collect();
        let expected_for = Some((hooks, doubted));
        if self.expected_for == expected_for {
            return;
        }
        if let Some((hooks, doubted)) = &expected_for {
            // What can't be read stays as it is: the pod isn't available before somebody corrects it.
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

    /// Undoes the operation `id`: nothing of it is left.
    pub(crate) fn undo(&mut self, id: &str) {
        self.labels.retain(|key, _| !matches!(Key::parse(key), Key::Stage(_, other) if other == id));
    }

    /// The earliest value among these labels of `stage`.
    pub(crate) fn oldest(&self, stage: Stage) -> Option<UnixNanos> {
        let values = self
            .labels
            .iter()
            .filter(|(key, _)| matches!(Key::parse(key), Key::Stage(found, _) if found == stage));
        values.filter_map(|(_, value)| value.parse().ok().map(UnixNanos)).min()
    }
}

/// The expectations in `text` with a finalizer for `hooks` that nobody ever sets.
fn unmet(text: &str, hooks: &[String]) -> String {
    let Ok(mut document) = serde_json::from_str::<serde_json::Value>(text) else {
        return text.to_owned();
    };
    for hook in hooks {
        document["expectedFinalizers"][employer_of(hook)] = "not yet".into();
    }
    document.to_string()
}

/// The hooks that the annotation `text` names.
pub(crate) fn named_in(text: Option<&str>) -> Vec<String> {
    let expected = text.and_then(|text| ExpectedFinalizers::parse(text).ok()).unwrap_or_default();
    expected.hooks().map(ToOwned::to_owned).collect()
}

/// Whether an operation keeps the pod out of service in these labels, or has done so and waits to be judged.
pub(crate) fn is_out(operations: &Operations<'_>) -> bool {
    let is_out = |operation: &Operation<'_>| {
        operation.has_any(&[Stage::Preparing, Stage::Operate])
            || (operation.has(Stage::Operated) && !operation.has(Stage::Completing))
    };
    operations.iter().any(|(_, operation)| is_out(operation))
}
