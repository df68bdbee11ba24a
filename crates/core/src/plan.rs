//! What the controller writes: the same steps as the webhook's, and those that are the controller's alone.

use std::borrow::Cow;

use crate::advance::settle;
use crate::consumers::{Consumers, FinalizerChanges, Note, OpenQuestion, Round};
use crate::explain::{Explanation, explain};
use crate::gate::available;
use crate::hooks::Question;
use crate::keys::{COMPLETING, CREATING, Stage};
use crate::operations::Operations;
use crate::patch::LabelChanges;
use crate::refusals::{Objection, Refused};
use crate::time::UnixNanos;
use crate::view::{ConditionStatus, Facts, PodView};

/// The answer of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// Nothing speaks against it.
    Pass,
    /// Not yet, for this reason.
    Wait(String),
}

/// Who says whether an operation may start and whether its result is good.
///
/// An implementation that knows the pod can also order its operations, e.g. keep one type waiting while another is at work:
///
/// ```
/// use podward_core::{CheckResult, Checks, Objection};
///
/// struct UpdatesFirst {
///     update_is_at_work: bool,
/// }
///
/// impl Checks for UpdatesFirst {
///     fn pre_check(&self, _: &str, operation_type: &str) -> CheckResult {
///         if self.update_is_at_work && operation_type != "update" {
///             return CheckResult::Wait("an update is at work".to_owned());
///         }
///         CheckResult::Pass
///     }
///
///     fn post_check(&self, _: &str, _: &str) -> CheckResult {
///         CheckResult::Pass
///     }
///
///     fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
///         Vec::new()
///     }
/// }
/// ```
pub trait Checks {
    /// May the operation `id` of `operation_type` start?
    fn pre_check(&self, id: &str, operation_type: &str) -> CheckResult;
    /// Is the result of the operation `id` good?
    fn post_check(&self, id: &str, operation_type: &str) -> CheckResult;
    /// Those who don't accept the result of the operation `id`, and want its operator to be told when they refuse it. While one of them
    /// refuses, the result isn't accepted whatever [`post_check`](Self::post_check) says.
    fn objections(&self, id: &str, operation_type: &str) -> Vec<Objection>;
}

/// No rules: every check passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRules;

impl Checks for NoRules {
    fn pre_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Pass
    }

    fn post_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Pass
    }

    fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
        Vec::new()
    }
}

/// What the controller does with a pod: what it writes, in one write, and then whom it asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Changes of labels.
    pub labels: LabelChanges,
    /// The new status of the gate's condition, if it changes; its time is [`Plan::now`] in whole seconds.
    pub gate: Option<ConditionStatus>,
    /// Hooks' finalizers that come and go.
    pub finalizers: FinalizerChanges,
    /// Annotations and their new text; `None` where they go.
    pub annotations: Vec<(&'static str, Option<String>)>,
    /// The questions that are open once it is written.
    pub open: Vec<OpenQuestion>,
    /// Questions that are answered; but the answers have no effect before others have answered, too.
    pub kept: Vec<Question>,
    /// What people and metrics should know once it is written.
    pub notes: Vec<Note>,
    /// Results that are refused from now on, and whose operators are told so by this write.
    pub refused: Vec<Refused>,
    /// When to look again, if nothing changes before: the next deadline.
    pub wake: Option<UnixNanos>,
    /// The time that it was made at.
    pub now: UnixNanos,
    /// The annotation of expected finalizers as it should be, also where that waits for another write.
    pub(crate) expected: Option<String>,
    /// The annotation of refused results, the same.
    pub(crate) refusals: Option<String>,
}

impl Plan {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
            && self.gate.is_none()
            && self.finalizers.is_empty()
            && self.annotations.is_empty()
    }

    /// The questions whose answers count: those that are open, and those whose answer must be kept. Whoever was asked another one
    /// needn't answer it any more, and what was answered to another one may be forgotten.
    #[must_use]
    pub fn questions(&self) -> Vec<Question> {
        self.open.iter().map(|open| &open.question).chain(&self.kept).cloned().collect()
    }

    /// What `pod` will wait for when this is carried out; see [`explain`](crate::explain).
    #[must_use]
    pub fn explain(&self, pod: &PodView<'_>, checks: &dyn Checks) -> Explanation {
        let mut labels = pod.labels.clone();
        self.labels.apply(&mut labels);
        let mut finalizers = pod.finalizers.to_vec();
        self.finalizers.apply(&mut finalizers);
        let available_conditions = self.expected.as_deref();
        let gate = self.gate.or(pod.gate);
        let facts = Facts { refused: self.refusals.as_deref(), ..pod.facts };
        let after =
            PodView { labels: &labels, finalizers: &finalizers, available_conditions, gate, facts, ..*pod };
        explain(&after, checks, &self.open)
    }
}

/// What the controller makes of `pod`: [`plan_labels`], the gate that follows from it, what follows from that gate, and what the
/// hooks have to do with it (see [`crate::consumers`]).
///
/// All of it is to be stored together or not at all (a write to `pods/status` keeps the metadata that comes with it), and the
/// questions are to be put when it is stored. One thing is left for the next write: the gate turns on only when no operation holds it
/// in the *stored* pod, so that whoever watches sees the operation end first. And the pod is not called available on a `Ready` that is
/// older than its gate.
///
/// From a pod that isn't opted in what hooks left on it goes: nobody would look after it.
///
/// # Guarantees
/// - `checks` is asked first, then the hooks; an operation starts when nobody speaks against it.
/// - A hook's finalizer goes only when the hook has answered, its deadline lets the pod go on, or it isn't the hook's pod any more.
/// - The gate of a pod turns True only when every hook that has to take it in before has done so.
/// - A result that somebody refuses who wants its operator to be told is never accepted; see [`crate::refusals`].
/// - With the same answers the plan of a pod that the plan was carried out on is empty, and its open questions are the same.
#[must_use]
pub fn plan(pod: &PodView<'_>, consumers: &Consumers<'_>, checks: &dyn Checks, now: UnixNanos) -> Plan {
    let round = Round::new(pod, consumers, now);
    if pod.is_controlled() { round.run(checks) } else { round.abandon() }
}

/// The label changes that the controller makes on `pod`: grants what `checks` let pass, takes every step that follows from it
/// (so that it needs no webhook), and says whether the pod is available.
///
/// A pod that is being deleted, or hasn't opted in, is left alone.
#[must_use]
pub fn plan_labels(pod: &PodView<'_>, checks: &dyn Checks, now: UnixNanos) -> LabelChanges {
    if !pod.is_controlled() || pod.terminating {
        return LabelChanges::default();
    }
    let before = Operations::parse(pod.labels);
    let mut operations = before.clone();
    let nothing_stored = Operations::default();
    settle(&mut operations, &nothing_stored, pod);
    grant(&mut operations, checks);
    settle(&mut operations, &nothing_stored, pod);
    let is_available = available(pod, &operations);
    // A pod that is not Ready is not available, whatever the reason; a gate or consumer that goes takes Ready with it.
    operations.service_available =
        if pod.ready { operations.service_available || is_available } else { false };
    let mut changes = before.changes_to(&operations, now);
    if is_available && !before.service_available {
        let done = [CREATING, COMPLETING].into_iter().filter(|key| pod.labels.contains_key(*key));
        changes.remove.extend(done.map(ToOwned::to_owned));
    }
    changes
}

fn grant(operations: &mut Operations<'_>, checks: &dyn Checks) {
    let mut permitted = Vec::new();
    for (id, operation) in &mut operations.by_id {
        let waits_to_start = operation.has(Stage::Operating) && !operation.has(Stage::PreChecked);
        let waits_to_end = operation.has(Stage::PostCheck) && !operation.has(Stage::PostChecked);
        let Some(operation_type) = operation.known_type().map(ToOwned::to_owned) else {
            continue;
        };
        if waits_to_start && checks.pre_check(id, &operation_type) == CheckResult::Pass {
            operation.put(Stage::PreChecked);
            permitted.push(operation_type);
        } else if waits_to_end
            && checks.post_check(id, &operation_type) == CheckResult::Pass
            && !checks.objections(id, &operation_type).iter().any(Objection::refuses)
        {
            operation.put(Stage::PostChecked);
        }
    }
    operations.permissions.extend(permitted.into_iter().map(Cow::Owned));
}
