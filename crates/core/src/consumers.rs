//! Hooks as consumers of a pod: which questions are open, and what their answers change.
//!
//! [`plan`](crate::plan) puts to every hook that matches a pod the question that the pod's state asks for, and acts on the answers
//! that it is given:
//!
//! | the pod | question | DONE |
//! |---|---|---|
//! | an operation is announced | [`PreCheck`](Phase::PreCheck) | it may start |
//! | an operation takes it out of service, the hook's finalizer is on it | [`Prepare`](Phase::Prepare) | the finalizer goes |
//! | an operation is done | [`PostCheck`](Phase::PostCheck) | its result is accepted |
//! | comes (back) into service, or is in it, without the hook's finalizer | [`Complete`](Phase::Complete) | the finalizer comes |
//! | terminates, or isn't the hook's any more, with its finalizer on it | [`Release`](Phase::Release) | the finalizer goes |
//!
//! A hook that isn't asked in a phase is done with it at once: without `Prepare` its finalizer goes when the gate is off, without
//! `Complete` it comes when the gate turns on, without `Release` it goes as soon as it would be asked. The finalizer of a hook that
//! is not registered any more goes at once. Finalizers and expectations of others are waited for, never touched.
//!
//! Answers are in nobody's memory but the process's. What must outlive it is on the pod: the finalizers; since when a question is
//! open (labels of the operation, times of conditions, and where neither tells the annotation [`ASKED`](crate::keys::ASKED)); that a
//! hook was asked to let go and has not said that it did, so that it is asked to take the pod in again when the operation is undone
//! ([`ASKED`](crate::keys::ASKED) again); and what stood behind the answers ([`EVIDENCE`](crate::keys::EVIDENCE)).

mod draft;
mod marks;
mod questions;
mod results;
mod round;
mod since;
mod step;

use std::sync::Arc;

use crate::hooks::{
    Answers, DeadlinePolicy, EvidenceLevel, Hook, HookSet, NO_HOOKS, NoAnswers, Phase, Question,
};
use crate::time::UnixNanos;

pub(crate) use marks::Evidences;
pub(crate) use round::Round;

/// The hooks around one pod, and what they have answered.
///
/// `known` must be all hooks of the cluster: what a hook left on the pod that isn't among them is taken away.
#[derive(Clone, Copy)]
pub struct Consumers<'a> {
    /// The hooks that match the pod.
    pub hooks: &'a [Arc<Hook>],
    /// All hooks.
    pub known: &'a HookSet,
    /// The answers to this pod's questions so far.
    pub answers: &'a dyn Answers,
}

impl Consumers<'_> {
    /// There is no hook in the cluster.
    #[must_use]
    pub fn none() -> Consumers<'static> {
        Consumers { hooks: &[], known: &NO_HOOKS, answers: &NoAnswers }
    }
}

/// Finalizers to add and to take away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalizerChanges {
    /// Those that come.
    pub add: Vec<String>,
    /// Those that go.
    pub remove: Vec<String>,
}

impl FinalizerChanges {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    /// Applies the changes to `finalizers`.
    pub fn apply(&self, finalizers: &mut Vec<String>) {
        finalizers.retain(|finalizer| !self.remove.contains(finalizer));
        finalizers.extend(self.add.iter().cloned());
    }
}

/// A question that is open, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestion {
    /// The question.
    pub question: Question,
    /// What happens at its deadline.
    pub policy: DeadlinePolicy,
    /// Whether the deadline has passed.
    pub overdue: bool,
    /// Whether the hook's last answer was no.
    pub rejected: bool,
    /// What it waits for, why it said no, or why it can't be reached; empty when it wasn't heard of.
    pub message: String,
}

/// Something about a hook that people or metrics should know. It may be given again with every plan while it holds, until the plan
/// is carried out; hook, phase, `since` and the kind of `event` tell whether it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The hook's name; its finalizer where the name isn't known any more.
    pub hook: String,
    /// What it was asked.
    pub phase: Phase,
    /// Since when.
    pub since: UnixNanos,
    /// What happened.
    pub event: HookEvent,
}

/// What happened with a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookEvent {
    /// It has answered, and the pod goes on.
    Done(EvidenceLevel),
    /// It has said no, for this reason, and is asked again.
    Rejected(String),
    /// Its deadline has passed, and it is waited for all the same.
    Overdue,
    /// Its deadline has passed, and the pod goes on without it.
    Proceeded,
    /// Its deadline has passed, and these operations are undone.
    Cancelled(Vec<String>),
    /// It is not registered any more, so that nothing of it is left on the pod.
    Removed,
    /// It doesn't hold pods like this one any more and isn't asked on release, so that it was let go.
    Released,
}

impl HookEvent {
    /// The name of the kind, in CamelCase.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            HookEvent::Done(_) => "Done",
            HookEvent::Rejected(_) => "Rejected",
            HookEvent::Overdue => "Overdue",
            HookEvent::Proceeded => "Proceeded",
            HookEvent::Cancelled(_) => "Cancelled",
            HookEvent::Removed => "Removed",
            HookEvent::Released => "Released",
        }
    }
}
