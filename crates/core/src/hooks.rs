//! Hooks: parties that are asked before anything happens to a pod, and hold it by a finalizer while they send it traffic.
//!
//! A hook that takes part in [`Phase::Prepare`] or [`Phase::Complete`] is a *consumer* of every pod that it matches. Its finalizer
//! ([`finalizer_of`]) is on the pod exactly while it holds it.

mod selector;
mod set;

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::keys::PROT_FINALIZER_PREFIX;
use crate::refusals::PostCheckRejection;
use crate::time::UnixNanos;

pub use selector::{Anchor, InvalidSelector, Selector};
pub use set::HookSet;
pub(crate) use set::NO_HOOKS;

/// What a hook is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// May this operation start?
    PreCheck,
    /// Let go of the pod.
    Prepare,
    /// Is the operation's result good?
    PostCheck,
    /// Take the pod in.
    Complete,
    /// The pod is gone, dying or not the hook's any more: forget it.
    Release,
}

impl Phase {
    /// The name as in `podward.v1.Phase`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::PreCheck => "PRE_CHECK",
            Phase::Prepare => "PREPARE",
            Phase::PostCheck => "POST_CHECK",
            Phase::Complete => "COMPLETE",
            Phase::Release => "RELEASE",
        }
    }
}

/// What happens when a hook hasn't answered before its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlinePolicy {
    /// The pod waits on.
    #[default]
    Hold,
    /// The pod goes on without it.
    Proceed,
    /// The operation is undone; where there is nothing to undo, as [`DeadlinePolicy::Hold`].
    Cancel,
}

/// What an unreachable hook means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The pod waits for it.
    #[default]
    Fail,
    /// The pod goes on without it.
    Ignore,
}

/// When a question is asked, as against the readiness gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateTiming {
    /// Before the gate changes.
    BeforeGate,
    /// When it has changed (and, for [`Phase::Complete`], the pod is Ready).
    AfterGate,
}

/// A registered hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its name, unique in the cluster.
    pub name: String,
    /// The pods that it is for.
    pub pod_selector: Selector,
    /// The namespaces that it is for.
    pub namespace_selector: Selector,
    /// What it is asked.
    pub phases: Vec<Phase>,
    /// The types of operation that concern it in the two checks; empty for all.
    pub operation_types: Vec<String>,
    /// Lower ones are asked first; [`Phase::Complete`] goes the other way.
    pub order: i32,
    /// How long a question may stay open, in nanoseconds.
    pub deadline_nanoseconds: i64,
    /// What happens then.
    pub deadline_policy: DeadlinePolicy,
    /// What happens while it can't be reached.
    pub failure_policy: FailurePolicy,
    /// What it means that it says no to a result.
    pub post_check_rejection: PostCheckRejection,
    /// When [`Phase::Prepare`] is asked.
    pub prepare_timing: GateTiming,
    /// When [`Phase::Complete`] is asked.
    pub complete_timing: GateTiming,
}

impl Hook {
    /// Whether it holds pods, so that it has a finalizer.
    #[must_use]
    pub fn is_consumer(&self) -> bool {
        self.phases.iter().any(|phase| matches!(phase, Phase::Prepare | Phase::Complete))
    }

    /// Whether a pod with these labels, in a namespace with those, concerns it. Whether the pod has opted in is the caller's to know.
    #[must_use]
    pub fn concerns(
        &self,
        pod_labels: &BTreeMap<String, String>,
        namespace_labels: &BTreeMap<String, String>,
    ) -> bool {
        self.pod_selector.matches(pod_labels) && self.namespace_selector.matches(namespace_labels)
    }

    /// Whether it is asked in `phase`.
    #[must_use]
    pub fn takes_part_in(&self, phase: Phase) -> bool {
        self.phases.contains(&phase)
    }

    /// Whether operations of this type concern it in the two checks.
    #[must_use]
    pub fn checks_type(&self, operation_type: &str) -> bool {
        self.operation_types.is_empty() || self.operation_types.iter().any(|known| known == operation_type)
    }
}

/// The finalizer by which the hook `name` holds a pod:
/// `prot.podopslifecycle.kusionstack.io/lifecyclehook-<first 16 hex digits of sha256("lifecyclehook//<name>")>`.
#[must_use]
pub fn finalizer_of(name: &str) -> String {
    use std::fmt::Write;

    let digest = Sha256::digest(format!("lifecyclehook//{name}"));
    let mut finalizer = format!("{PROT_FINALIZER_PREFIX}/lifecyclehook-");
    for byte in &digest[..8] {
        let _ = write!(finalizer, "{byte:02x}");
    }
    finalizer
}

/// Whether `finalizer` is of the form that [`finalizer_of`] gives, so that it is some hook's, present or past.
#[must_use]
pub fn is_hook_finalizer(finalizer: &str) -> bool {
    finalizer.strip_prefix(PROT_FINALIZER_PREFIX).is_some_and(|name| name.starts_with("/lifecyclehook-"))
}

/// The key of the hook `name` among the expected finalizers: `LifecycleHook//<name>` (kind, no namespace, name).
#[must_use]
pub fn employer_of(name: &str) -> String {
    format!("LifecycleHook//{name}")
}

/// The hook that a key among the expected finalizers names.
#[must_use]
pub fn hook_of(employer: &str) -> Option<&str> {
    employer.strip_prefix("LifecycleHook//")
}

/// How strong an answer is, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvidenceLevel {
    /// Seen where traffic flows.
    Proven,
    /// A known upper bound has passed.
    Bounded,
    /// Told to somebody who should act on it.
    Assumed,
    /// A deadline has passed.
    TimedOut,
}

impl EvidenceLevel {
    /// All levels, the strongest first.
    pub const ALL: [EvidenceLevel; 4] =
        [EvidenceLevel::Proven, EvidenceLevel::Bounded, EvidenceLevel::Assumed, EvidenceLevel::TimedOut];

    /// The name as in `podward.v1.EvidenceLevel`, without its prefix.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EvidenceLevel::Proven => "PROVEN",
            EvidenceLevel::Bounded => "BOUNDED",
            EvidenceLevel::Assumed => "ASSUMED",
            EvidenceLevel::TimedOut => "TIMED_OUT",
        }
    }
}

/// What stands behind an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// How strong it is.
    pub level: EvidenceLevel,
    /// What was seen.
    pub detail: String,
}

/// How a question stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Asked, and not answered yet, or not to be asked again before a while.
    Open {
        /// What the hook waits for, or why it can't be reached; empty when it wasn't heard of.
        message: String,
    },
    /// It said no, for this reason. It is asked again.
    Rejected {
        /// Why.
        reason: String,
    },
    /// Done.
    Done(Evidence),
}

/// A question that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The hook that it is for.
    pub hook: String,
    /// What is asked.
    pub phase: Phase,
    /// The operations that it is asked for, id and type, by id.
    pub operations: Vec<(String, String)>,
    /// When it was first asked, read from the pod, so that it survives restarts. With hook, phase and pod UID it names the question.
    pub since: UnixNanos,
    /// When the hook's deadline policy is applied.
    pub deadline: UnixNanos,
}

/// What is known of the answers to one pod's questions.
pub trait Answers {
    /// The answer to `question`, or `None` when it hasn't been asked.
    fn answer(&self, question: &Question) -> Option<Answer>;
}

/// Nobody has been asked anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAnswers;

impl Answers for NoAnswers {
    fn answer(&self, _: &Question) -> Option<Answer> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_are_stable_and_legal() {
        let finalizer = finalizer_of("traffic-controller");
        let (prefix, name) = finalizer.split_once('/').unwrap();
        assert_eq!(prefix, PROT_FINALIZER_PREFIX);
        assert!(name.len() == "lifecyclehook-".len() + 16 && name.len() <= 63, "{name}");
        assert_ne!(finalizer, finalizer_of("traffic-controller2"));
        assert!(is_hook_finalizer(&finalizer));
        assert!(!is_hook_finalizer("prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb"));
        assert_eq!(hook_of(&employer_of("x")), Some("x"));
    }
}
