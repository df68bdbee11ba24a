//! Putting questions, and what the answers say.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::hooks::{Answer, DeadlinePolicy, Evidence, EvidenceLevel, Hook, Phase, Question, finalizer_of};
use crate::keys::Stage;
use crate::refusals::{Objection, PostCheckRejection};
use crate::time::UnixNanos;
use crate::view::PodView;

use super::draft::{Draft, named_in};
use super::{Consumers, HookEvent, Note, OpenQuestion};

/// A question that is past its deadline and was not asked yet, because the process is new, is given this long before its policy is
/// applied.
const LAST_CHANCE: i64 = 1_000_000_000;

/// How a question stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The hook is waited for.
    Open,
    /// The pod goes on.
    Done(Evidence),
    /// The operations that it is asked for are to be undone.
    Cancel,
}

/// One look at a pod: what is known of it and its hooks, and what is found and decided.
pub(crate) struct Round<'a> {
    pub(crate) pod: PodView<'a>,
    pub(crate) consumers: Consumers<'a>,
    pub(crate) now: UnixNanos,
    pub(crate) draft: Draft,
    /// The hooks that the stored pod expects.
    pub(crate) named: Vec<String>,
    /// The draft before any step, to begin again from when a deadline cancels an operation.
    pub(crate) released: Draft,
    pub(crate) open: Vec<OpenQuestion>,
    /// Answered, but of no effect before others have answered too.
    pub(crate) kept: Vec<Question>,
    pub(crate) notes: Vec<Note>,
    pub(crate) wake: Option<UnixNanos>,
    /// Operations that a deadline cancels.
    pub(crate) cancelled: BTreeSet<String>,
}

impl<'a> Round<'a> {
    pub(crate) fn new(pod: &PodView<'a>, consumers: &Consumers<'a>, now: UnixNanos) -> Self {
        Round {
            pod: *pod,
            consumers: *consumers,
            now,
            named: named_in(pod.available_conditions),
            released: Draft::of(pod),
            draft: Draft::of(pod),
            open: Vec::new(),
            kept: Vec::new(),
            notes: Vec::new(),
            wake: None,
            cancelled: BTreeSet::new(),
        }
    }

    /// The hooks that hold this pod while it is in service.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &'a Arc<Hook>> + use<'a> {
        self.consumers.hooks.iter().filter(|hook| hook.is_consumer())
    }

    pub(crate) fn is_holder(&self, hook: &str) -> bool {
        self.holders().any(|holder| holder.name == hook)
    }

    /// Whether the finalizer of `hook` is on the pod, as far as this round has come.
    pub(crate) fn is_held_by(&self, hook: &Hook) -> bool {
        self.draft.has(&finalizer_of(&hook.name))
    }

    /// Puts `question` to `hook`, and judges what is known of the answer.
    pub(crate) fn put(&mut self, hook: &Hook, question: Question) -> Verdict {
        let answer = self.consumers.answers.answer(&question);
        let (message, rejected) = match &answer {
            Some(Answer::Done(evidence)) => {
                self.note(&question, HookEvent::Done(evidence.level));
                return Verdict::Done(evidence.clone());
            }
            Some(Answer::Rejected { reason }) => (reason.clone(), true),
            Some(Answer::Open { message }) => (message.clone(), false),
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
                    return Verdict::Done(timed_out(&question, &message));
                }
                DeadlinePolicy::Cancel if self.can_undo(&question) => {
                    let ids = question.operations.iter().map(|(id, _)| id.clone()).collect();
                    self.note(&question, HookEvent::Cancelled(ids));
                    return Verdict::Cancel;
                }
                _ => self.note(&question, HookEvent::Overdue),
            }
        } else {
            self.wake_at(question.deadline);
        }
        if rejected {
            self.note(&question, HookEvent::Rejected(message.clone()));
        }
        self.open.push(OpenQuestion { question, policy, overdue, rejected, message });
        Verdict::Open
    }

    /// What happens at the deadline of `question`. A result that `hook` has refused isn't accepted because time has passed, where its
    /// operator is told of it; also not by a process that hasn't heard the hook yet.
    fn policy(&self, hook: &Hook, question: &Question, rejected: bool) -> DeadlinePolicy {
        let by = Objection::name_of_hook(&hook.name);
        let has_refused = || question.operations.iter().any(|(id, _)| self.draft.refusals.has(id, &by));
        let is_told =
            question.phase == Phase::PostCheck && hook.post_check_rejection == PostCheckRejection::Rollback;
        if is_told && (rejected || has_refused()) { DeadlinePolicy::Hold } else { hook.deadline_policy }
    }

    /// Whether a question is about operations that haven't begun. A check of the result, taking in and forgetting have nothing that
    /// could be undone.
    fn can_undo(&self, question: &Question) -> bool {
        let operations = self.draft.operations();
        let is_granted = |id: &str| operations.get(id).is_some_and(|operation| operation.has(Stage::Operate));
        matches!(question.phase, Phase::PreCheck | Phase::Prepare)
            && question.operations.iter().all(|(id, _)| !is_granted(id))
    }

    pub(crate) fn note(&mut self, question: &Question, event: HookEvent) {
        self.note_of(&question.hook, question.phase, question.since, event);
    }

    pub(crate) fn note_of(&mut self, hook: &str, phase: Phase, since: UnixNanos, event: HookEvent) {
        let note = Note { hook: hook.to_owned(), phase, since, event };
        if !self.notes.contains(&note) {
            self.notes.push(note);
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

fn timed_out(question: &Question, message: &str) -> Evidence {
    let mut detail = format!("no answer by {}", question.deadline.to_rfc3339());
    if !message.is_empty() {
        detail.push_str(": ");
        detail.push_str(message);
    }
    Evidence { level: EvidenceLevel::TimedOut, detail }
}
