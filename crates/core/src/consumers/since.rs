//! Since when a question is open. The time is on the pod, so that a deadline doesn't start anew with a new process: in the labels
//! and conditions by which the question came up where these tell it, otherwise in a mark that goes with the write that brings it up.

use crate::hooks::{GateTiming, Hook, Phase, Question};
use crate::keys::{SERVICE_AVAILABLE, Stage};
use crate::time::UnixNanos;
use crate::view::ConditionStatus;

use super::marks::Asked;
use super::round::{NEVER, Round};

impl Round<'_> {
    /// A question that `hook` has been asked since `since`.
    pub(crate) fn question(
        &self,
        hook: &Hook,
        phase: Phase,
        operations: Vec<(String, String)>,
        since: UnixNanos,
    ) -> Question {
        let deadline = UnixNanos(since.0.saturating_add(hook.deadline_nanoseconds));
        Question { hook: hook.name.clone(), phase, operations, since, deadline }
    }

    /// Since when it is asked to let go: by its mark, which is written with what brings the question up (`preparing`, the gate, or
    /// the finalizer of the one before).
    pub(crate) fn prepare_since(&mut self, hook: &Hook) -> UnixNanos {
        self.draft.marks.since(&hook.name, Asked::Prepare, self.now)
    }

    /// Since when it is asked to take the pod in, and whether the pod waits for that.
    pub(crate) fn complete_since(&mut self, hook: &Hook, is_first: bool) -> (UnixNanos, bool) {
        let facts = self.pod.facts;
        let waits = !self.draft.labels.contains_key(SERVICE_AVAILABLE);
        let latest = |times: &[Option<UnixNanos>]| times.iter().flatten().max().copied().unwrap_or_default();
        let completing = self.draft.oldest(Stage::Completing);
        let is_marked = self.draft.marks.leaves_in_doubt(&hook.name);
        let after_gate = hook.complete_timing == GateTiming::AfterGate;
        let by_state = match self.pod.gate {
            _ if is_marked || (!is_first && waits) => None,
            _ if !waits => Some(latest(&[facts.created_at, facts.gate_since])),
            gate if after_gate && (completing.is_some() || gate == Some(ConditionStatus::True)) => {
                Some(latest(&[completing, facts.created_at, facts.gate_since, facts.ready_since]))
            }
            _ if !after_gate && completing.is_some() => {
                Some(latest(&[completing, facts.containers_ready_since]))
            }
            // Nobody has ever written the gate: the pod is new.
            None if !after_gate && self.pod.has_gate => {
                Some(latest(&[facts.created_at, facts.containers_ready_since]))
            }
            _ => None,
        };
        let since = by_state.unwrap_or_else(|| self.draft.marks.since(&hook.name, Asked::Complete, self.now));
        (since, waits)
    }

    /// The question to take the pod in. A pod that is in service waits for nobody who comes later, so there is no deadline then.
    pub(crate) fn complete_question(&mut self, hook: &Hook, is_first: bool) -> Question {
        let (since, waits) = self.complete_since(hook, is_first);
        let question = self.question(hook, Phase::Complete, self.completing(), since);
        if waits { question } else { Question { deadline: NEVER, ..question } }
    }

    /// Since when it is asked to forget the pod.
    pub(crate) fn release_since(&mut self, hook: &Hook) -> UnixNanos {
        match self.pod.facts.terminating_since {
            Some(since) if self.pod.terminating => since,
            _ => self.draft.marks.since(&hook.name, Asked::Release, self.now),
        }
    }

    fn completing(&self) -> Vec<(String, String)> {
        self.operations_with(&[Stage::Completing])
    }
}
