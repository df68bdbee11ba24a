//! One round: the questions about a pod, and the effect of their answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::hooks::evidence::{Evidence, EvidenceLevel};
use crate::hooks::hook::{DeadlinePolicy, Hook, HookPhase};
use crate::hooks::question::{HookAnswer, HookQuestion};
use crate::model::hook_keys::hook_finalizer;
use crate::model::keys::Stage;
use crate::model::time::UnixNanos;
use crate::model::view::PodView;
use crate::protocol::objection::{Objection, PostCheckRejection};

use super::draft::{PodDraft, expected_hooks};
use crate::hooks::plan::OpenHookQuestion;
use crate::hooks::pod_hooks::PodHooks;
use crate::hooks::report::{HookEvent, HookReport};

/// The time, in nanoseconds, before the policy applies to a question that is past its deadline and was not asked yet
/// because the process is new.
const LAST_CHANCE: i64 = 1_000_000_000;

/// The effect of the state of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuestionVerdict {
    /// The pod waits for the hook.
    Open,
    /// The pod continues.
    Done(Evidence),
    /// The operations of the question are undone.
    Cancel,
}

/// The state of one round of planning.
pub(crate) struct HookRound<'a> {
    pub(crate) pod: PodView<'a>,
    pub(crate) consumers: PodHooks<'a>,
    pub(crate) now: UnixNanos,
    pub(crate) draft: PodDraft,
    /// The hooks that the stored pod expects.
    pub(crate) named: Vec<String>,
    /// The draft before any step. The round starts again from it when a deadline cancels an operation.
    pub(crate) released: PodDraft,
    pub(crate) open: Vec<OpenHookQuestion>,
    /// Answered questions that have no effect until others are answered, too.
    pub(crate) kept: Vec<HookQuestion>,
    pub(crate) reports: Vec<HookReport>,
    pub(crate) wake: Option<UnixNanos>,
    /// The operations that a deadline cancels.
    pub(crate) cancelled: BTreeSet<String>,
}

impl<'a> HookRound<'a> {
    pub(crate) fn new(pod: &PodView<'a>, consumers: &PodHooks<'a>, now: UnixNanos) -> Self {
        HookRound {
            pod: *pod,
            consumers: *consumers,
            now,
            named: expected_hooks(pod.available_conditions),
            released: PodDraft::of(pod),
            draft: PodDraft::of(pod),
            open: Vec::new(),
            kept: Vec::new(),
            reports: Vec::new(),
            wake: None,
            cancelled: BTreeSet::new(),
        }
    }

    /// Returns the hooks that use this pod while it is in service.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &'a Arc<Hook>> + use<'a> {
        self.consumers.hooks.iter().filter(|hook| hook.is_consumer())
    }

    /// Returns whether the pod never serves again: it is being deleted, or it has finished.
    pub(crate) fn has_ended(&self) -> bool {
        self.pod.terminating || self.pod.facts.finished
    }

    pub(crate) fn is_holder(&self, hook: &str) -> bool {
        self.holders().any(|holder| holder.name == hook)
    }

    /// Returns whether the finalizer of `hook` is on the pod in the present draft.
    pub(crate) fn is_held_by(&self, hook: &Hook) -> bool {
        self.draft.has(&hook_finalizer(&hook.name))
    }

    /// Asks `hook` the `question`, and returns the effect of the known answer.
    pub(crate) fn put(&mut self, hook: &Hook, question: HookQuestion) -> QuestionVerdict {
        let answer = self.consumers.answers.answer(&question);
        let (message, rejected) = match &answer {
            Some(HookAnswer::Done(evidence)) => {
                self.note(&question, HookEvent::Done(evidence.level));
                return QuestionVerdict::Done(evidence.clone());
            }
            Some(HookAnswer::Rejected { reason }) => (reason.clone(), true),
            Some(HookAnswer::Open { message }) => (message.clone(), false),
            None => (String::new(), false),
        };
        let overdue = self.now >= question.deadline;
        let policy = self.policy(hook, &question, rejected);
        if overdue {
            match policy {
                DeadlinePolicy::Proceed | DeadlinePolicy::Cancel if answer.is_none() => {
                    self.wake_at(UnixNanos(self.now.0.saturating_add(LAST_CHANCE)));
                }
                DeadlinePolicy::Proceed => {
                    self.note(&question, HookEvent::Proceeded);
                    return QuestionVerdict::Done(timed_out(&question, &message));
                }
                DeadlinePolicy::Cancel if self.can_undo(&question) => {
                    let ids = question.operations.iter().map(|(id, _)| id.clone()).collect();
                    self.note(&question, HookEvent::Cancelled(ids));
                    return QuestionVerdict::Cancel;
                }
                _ => self.note(&question, HookEvent::Overdue),
            }
        } else {
            self.wake_at(question.deadline);
        }
        if rejected {
            self.note(&question, HookEvent::Rejected(message.clone()));
        }
        self.open.push(OpenHookQuestion { question, policy, overdue, rejected, message });
        QuestionVerdict::Open
    }

    /// Returns the effect of the deadline of `question`. A deadline never accepts a result that `hook` has refused with
    /// an objection, also in a process that has not heard the hook yet.
    fn policy(&self, hook: &Hook, question: &HookQuestion, rejected: bool) -> DeadlinePolicy {
        let by = Objection::name_of_hook(&hook.name);
        let has_refused = || question.operations.iter().any(|(id, _)| self.draft.refusals.has(id, &by));
        let is_told = question.phase == HookPhase::PostCheck
            && hook.post_check_rejection == PostCheckRejection::Rollback;
        if is_told && (rejected || has_refused()) { DeadlinePolicy::Hold } else { hook.deadline_policy }
    }

    /// Returns whether the question is about operations that have not begun. A check of a result, adding to traffic and
    /// forgetting cannot be undone.
    fn can_undo(&self, question: &HookQuestion) -> bool {
        let is_granted = |id: &str| self.draft.labels.contains_key(&Stage::Operate.key(id));
        matches!(question.phase, HookPhase::PreCheck | HookPhase::Prepare)
            && question.operations.iter().all(|(id, _)| !is_granted(id))
    }

    pub(crate) fn note(&mut self, question: &HookQuestion, event: HookEvent) {
        self.note_of(&question.hook, question.phase, question.since, event);
    }

    pub(crate) fn note_of(&mut self, hook: &str, phase: HookPhase, since: UnixNanos, event: HookEvent) {
        let note = HookReport { hook: hook.to_owned(), phase, since, event };
        if !self.reports.contains(&note) {
            self.reports.push(note);
        }
    }

    fn wake_at(&mut self, time: UnixNanos) {
        if time != NEVER {
            self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
        }
    }
}

/// The deadline of a question that nothing waits for.
pub(crate) const NEVER: UnixNanos = UnixNanos(i64::MAX);

fn timed_out(question: &HookQuestion, message: &str) -> Evidence {
    let mut detail = format!("no answer by {}", question.deadline.to_rfc3339());
    if !message.is_empty() {
        detail.push_str(": ");
        detail.push_str(message);
    }
    Evidence { level: EvidenceLevel::TimedOut, detail }
}
