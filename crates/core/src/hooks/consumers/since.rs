//! The time at which a question was first asked. It is read from the pod, so that a deadline does not start again with
//! a new process: from labels and conditions, or else from a request that is stored with the write that causes the
//! question.

use crate::hooks::hook::{GateTiming, Hook, HookPhase};
use crate::hooks::question::HookQuestion;
use crate::model::keys::{SERVICE_AVAILABLE, Stage};
use crate::model::time::UnixNanos;
use crate::model::view::ConditionStatus;

use super::requests::HookRequestState;
use super::round::{HookRound, NEVER};

impl HookRound<'_> {
    /// Returns the question that `hook` has been asked since `since`.
    pub(crate) fn question(
        &self,
        hook: &Hook,
        phase: HookPhase,
        operations: Vec<(String, String)>,
        since: UnixNanos,
    ) -> HookQuestion {
        let deadline = UnixNanos(since.0.saturating_add(hook.deadline_nanoseconds));
        HookQuestion { hook: hook.name.clone(), phase, operations, since, deadline }
    }

    /// Returns since when the hook is asked to release the pod. The request is stored with the change that causes the
    /// question (`preparing`, the gate, or the finalizer of the hook before).
    pub(crate) fn prepare_since(&mut self, hook: &Hook) -> UnixNanos {
        self.draft.marks.since(&hook.name, HookRequestState::Prepare, self.now)
    }

    /// Returns since when the hook is asked to add the pod to traffic, and whether the pod waits for it.
    pub(crate) fn complete_since(&mut self, hook: &Hook, is_first: bool) -> (UnixNanos, bool) {
        let facts = self.pod.facts;
        let waits = !self.draft.labels.contains_key(SERVICE_AVAILABLE);
        let latest = |times: &[Option<UnixNanos>]| times.iter().flatten().max().copied().unwrap_or_default();
        let completing = self.draft.oldest(Stage::Completing);
        // A hook that has released the pod since the conditions changed has answered an earlier question with their time.
        let was_drained = self.draft.marks.is(&hook.name, HookRequestState::Drained);
        let is_marked = was_drained || self.draft.marks.leaves_in_doubt(&hook.name);
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
            // The gate was never written: the pod is new.
            None if !after_gate && self.pod.has_gate => {
                Some(latest(&[facts.created_at, facts.containers_ready_since]))
            }
            _ => None,
        };
        let since = by_state
            .unwrap_or_else(|| self.draft.marks.since(&hook.name, HookRequestState::Complete, self.now));
        (since, waits)
    }

    /// Returns the question to add the pod to traffic. A pod in service does not wait for a hook that comes later, so
    /// that question has no deadline.
    pub(crate) fn complete_question(&mut self, hook: &Hook, is_first: bool) -> HookQuestion {
        let (since, waits) = self.complete_since(hook, is_first);
        let question = self.question(hook, HookPhase::Complete, self.completing(), since);
        if waits { question } else { HookQuestion { deadline: NEVER, ..question } }
    }

    /// Returns since when the hook is asked to forget the pod.
    pub(crate) fn release_since(&mut self, hook: &Hook) -> UnixNanos {
        // A pod that has finished and is then deleted is not asked about again.
        let is_asked = self.pod.facts.finished && self.draft.marks.is(&hook.name, HookRequestState::Release);
        match self.pod.facts.terminating_since {
            Some(since) if self.pod.terminating && !is_asked => since,
            _ => self.draft.marks.since(&hook.name, HookRequestState::Release, self.now),
        }
    }

    fn completing(&self) -> Vec<(String, String)> {
        self.operations_with(&[Stage::Completing])
    }
}
