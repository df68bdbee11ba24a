//! Hooks as consumers of a pod: the open questions, and the effect of their answers.
//!
//! [`plan`](crate::plan) asks every matching hook the question that follows from the state of the pod, and acts on the
//! answers:
//!
//! | the pod | question | after DONE |
//! |---|---|---|
//! | has a new operation | [`PreCheck`](HookPhase::PreCheck) | the operation may start |
//! | leaves service and has the hook's finalizer | [`Prepare`](HookPhase::Prepare) | the finalizer is removed |
//! | has an operation that is done | [`PostCheck`](HookPhase::PostCheck) | its result is accepted |
//! | enters or is in service without the finalizer | [`Complete`](HookPhase::Complete) | the finalizer is added |
//! | terminates, has finished or is not selected, with the finalizer | [`Release`](HookPhase::Release) | the finalizer is removed |
//!
//! A hook without a phase counts as done with it: without `Prepare` its finalizer is removed when the gate is off,
//! without `Complete` it is added when the gate turns on, without `Release` it is removed at once. The finalizer of an
//! unregistered hook is removed at once. Podward waits for finalizers and expectations of other consumers and never
//! changes them.
//!
//! Answers are kept only in the memory of the process. What must survive a restart is on the pod: the finalizers; the
//! time of a question (operation labels, condition times, or else the annotation
//! [`HOOK_REQUESTS`](crate::keys::HOOK_REQUESTS)); that a hook was asked to release the pod and has not answered, so
//! that it is asked to add the pod to traffic when the operation is undone (the same annotation); and the evidence of
//! the answers ([`EVIDENCE`](crate::keys::EVIDENCE)).

mod draft;
mod questions;
mod requests;
mod results;
mod round;
mod since;
mod step;

use crate::model::time::UnixNanos;
use crate::model::view::PodView;
use crate::protocol::checks::Checks;

use super::plan::PodPlan;
use super::pod_hooks::PodHooks;
use round::HookRound;

/// Returns the plan of the controller for `pod`: the label changes of [`plan_labels`](crate::plan_labels), the gate,
/// the finalizers and annotations of hooks, and the open questions.
///
/// The whole plan is stored in one write (a write to `pods/status` keeps the metadata in it), and the questions are
/// asked afterwards. The gate turns on only when no operation holds it in the *stored* pod, so that watchers see the
/// end of the operation first. A pod is not available by a `Ready` that is older than its gate.
///
/// The plan for a pod that has not opted in removes what hooks left on it.
///
/// # Guarantees
/// - `checks` come first, then the hooks. An operation starts when none of them refuses.
/// - The finalizer of a hook is removed only when the hook has answered, its deadline lets the pod continue, or the pod
///   no longer matches the hook.
/// - The gate turns True only when every hook that must add the pod to traffic before the gate has done so.
/// - A result is never accepted while an objection refuses it; see [`crate::refusals`].
/// - With the same answers, the plan for a pod that carries the plan is empty, and its open questions are the same.
#[must_use]
pub fn plan(pod: &PodView<'_>, consumers: &PodHooks<'_>, checks: &dyn Checks, now: UnixNanos) -> PodPlan {
    let round = HookRound::new(pod, consumers, now);
    if pod.is_controlled() { round.run(checks) } else { round.abandon() }
}
