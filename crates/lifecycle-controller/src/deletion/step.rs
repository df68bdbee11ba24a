//! What the leader does about a pod's deletion, each time it looks at the pod.

use std::time::Duration;

use futures::Stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::runtime::reflector::ObjectRef;
use podward_core::deletion::{RENEW_AFTER, Ruling};
use podward_core::keys::{DELETE_OPERATION, DELETE_TYPE, Stage, TO_DELETE};
use podward_core::wish::{
    Changes, DeletionKind, Intent, Wish, begin, cancel, intent, put_off, raise, record,
};
use podward_core::{CheckResult, Checks, Objection, Operations, UnixNanos};

use super::ledger::Ledger;
use super::lost_nodes::LostNodes;
use super::rollouts::Rollouts;
use super::watches::Waiting;
use super::{DeletionMetrics, budgets};
use crate::cached_pod::{CachedPod, PodKey};
use crate::error::Error;
use crate::events::Draft;
use crate::reconcile::now;

/// Who wished what nobody has put his name to.
const BY_LABEL: &str = "whoever set the label collaset.kusionstack.io/to-delete";
/// How long a wish that was put off waits at first, and at most.
const FIRST_WAIT: Duration = Duration::from_secs(30);
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// What a budget is asked again after, should its watch not tell.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Deletions, for the leader.
pub(crate) struct Deletions {
    pub(super) client: Client,
    pub(super) ledger: Ledger,
    rollouts: Rollouts,
    pub(super) lost_nodes: LostNodes,
    pub(super) waiting: Waiting,
    pub(super) metrics: DeletionMetrics,
}

/// What a look at a pod's deletion comes to.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// To be merged into the write: the labels before the engine plans (it is the engine that carries out the undo label which a
    /// cancel sets), the annotations as they are.
    pub(crate) changes: Changes,
    /// Why the operation waits to leave its pre-check, if it does.
    pub(crate) wait: Option<String>,
    /// To be sent once the write is done.
    pub(crate) event: Option<Draft>,
    /// When to look again, if nothing happens.
    pub(crate) wake: Option<Duration>,
    /// The room in budgets is to be given back once the write is done.
    pub(crate) gives_back: bool,
    /// For the metrics, once the write is done.
    outcome: Option<(DeletionKind, bool, &'static str)>,
}

impl Step {
    /// The checks that `others` make, and this one.
    pub(crate) fn checks<'a>(&'a self, others: &'a dyn Checks) -> DeletionChecks<'a> {
        DeletionChecks { wait: self.wait.as_deref(), others }
    }

    fn wait(text: String) -> Step {
        Step { wait: Some(text), wake: Some(jittered(ASK_AGAIN)), ..Step::default() }
    }

    fn change(changes: Changes) -> Step {
        Step { changes, ..Step::default() }
    }
}

/// The pre-check of the operation `pod-delete`, beside those of others.
#[derive(Clone, Copy)]
pub(crate) struct DeletionChecks<'a> {
    wait: Option<&'a str>,
    others: &'a dyn Checks,
}

impl Checks for DeletionChecks<'_> {
    fn pre_check(&self, id: &str, operation_type: &str) -> CheckResult {
        match self.wait {
            Some(reason) if id == DELETE_OPERATION && operation_type == DELETE_TYPE => {
                match self.others.pre_check(id, operation_type) {
                    CheckResult::Pass => CheckResult::Wait(reason.to_owned()),
                    CheckResult::Wait(others) => CheckResult::Wait(format!("{reason}; {others}")),
                }
            }
            _ => self.others.pre_check(id, operation_type),
        }
    }

    fn post_check(&self, id: &str, operation_type: &str) -> CheckResult {
        self.others.post_check(id, operation_type)
    }

    fn objections(&self, id: &str, operation_type: &str) -> Vec<Objection> {
        self.others.objections(id, operation_type)
    }
}

impl Deletions {
    /// Deletions, and the pods that are to be looked at because an owner or a budget that they wait for has changed.
    pub(crate) fn new(
        client: Client,
        lost_nodes: LostNodes,
        metrics: DeletionMetrics,
    ) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let (waiting, pods) = Waiting::new(client.clone());
        let (ledger, rollouts) = (Ledger::default(), Rollouts::default());
        (Deletions { client, ledger, rollouts, lost_nodes, waiting, metrics }, pods)
    }

    /// What is to be done about `pod`'s deletion now, short of carrying it out. While it `is_busy`, and so kept in its pre-check, it
    /// takes nothing that others may need: no room in a budget, and no place among those that leave a rollout.
    ///
    /// # Errors
    /// When the API server can't be asked about owner or budget. Nothing was changed then, but room in a budget may have been taken.
    pub(crate) async fn step(&self, pod: &CachedPod, is_busy: bool) -> Result<Step, Error> {
        let view = pod.view();
        if !view.is_controlled() || view.terminating {
            self.waiting.forget(&pod.key());
            return Ok(Step::default());
        }
        let wish = pod.wish();
        let carried = pod.carried(wish.as_ref());
        match (intent(&carried), &wish) {
            (Intent::Begin, _) => Ok(Step::change(record(&carried, labelled(pod), pod.is_chosen_by_cost()))),
            (Intent::Cancelled(by), _) => Ok(self.cancel(pod, by.words())),
            (Intent::PutOff(until), Some(wish)) => self.begin_again(pod, wish, until, is_busy).await,
            (Intent::Underway, Some(wish)) => {
                let mut step = self.underway(pod, wish, is_busy).await?;
                // When its node is lost it is carried out, whatever it waits for.
                step.wake = step.wake.into_iter().chain(self.lost_nodes.lost_in(pod)).min();
                Ok(step)
            }
            _ => {
                self.waiting.forget(&pod.key());
                Ok(Step::default())
            }
        }
    }

    /// The step's write was done: what was to follow it follows.
    pub(crate) async fn written(&self, pod: &CachedPod, step: &Step) {
        if let Some((kind, by_workload, outcome)) = step.outcome {
            self.metrics.count(kind, by_workload, outcome);
        }
        if step.gives_back {
            budgets::give_back(&self.client, pod).await;
        }
    }

    /// `pod` is gone.
    pub(crate) fn forget(&self, pod: &PodKey) {
        self.waiting.forget(pod);
    }

    /// Forgets owners that have no pod any more.
    pub(crate) fn retain(&self, has_pods: impl Fn(&str) -> bool) {
        self.ledger.retain(has_pods);
        self.rollouts.retain();
    }

    async fn underway(&self, pod: &CachedPod, wish: &Wish, is_busy: bool) -> Result<Step, Error> {
        let view = pod.view();
        let operations = Operations::parse(view.labels);
        let has = |stage| operations.get(DELETE_OPERATION).is_some_and(|operation| operation.has(stage));
        if has(Stage::Operate) {
            return Ok(Step::default());
        }
        let passed = has(Stage::PreChecked);
        let is_busy = is_busy && !passed;
        if wish.by_workload
            && let Some(owner) = pod.controller()
        {
            return match self.ledger.rule(&self.client, &self.waiting, pod, owner, passed).await? {
                Ruling::Go if is_busy => Ok(Step::default()),
                Ruling::Go if !passed => self.leave(pod, owner).await,
                Ruling::Go => Ok(Step::default()),
                Ruling::Keep(why) => Ok(self.cancel(pod, &why)),
            };
        }
        if is_busy {
            return Ok(leave_room(wish));
        }
        // Out of service it is not healthy for any budget, so room matters until then.
        if wish.kind == DeletionKind::Evict && (!passed || view.ready) {
            return self.keep_room(pod, wish, passed).await;
        }
        Ok(Step::default())
    }

    /// A pod that its workload has too many leaves service when as many others as there should be are in it.
    async fn leave(&self, pod: &CachedPod, owner: &OwnerReference) -> Result<Step, Error> {
        // Before the count, so that no pod comes into service unnoticed in between.
        self.waiting.for_others(&pod.key());
        match self.rollouts.leave(&self.client, pod, owner).await? {
            Ok(()) => {
                self.waiting.not_for_others(&pod.key());
                Ok(Step::default())
            }
            Err(why) => Ok(Step::wait(why)),
        }
    }

    /// `pod` has come into service: some that wait for that may leave it.
    pub(crate) fn came_into_service(&self, pod: &CachedPod) {
        self.waiting.one_is_in_service(&pod.key().namespace);
    }

    async fn keep_room(&self, pod: &CachedPod, wish: &Wish, passed: bool) -> Result<Step, Error> {
        let now = now();
        let left = wish.reserved_at.and_then(|at| RENEW_AFTER.checked_sub(now.since(UnixNanos(at))));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Ok(Step { wake: Some(left), ..Step::default() });
        }
        match budgets::take(&self.client, pod).await? {
            budgets::Taking::Room => {
                let wish = Wish { reserved_at: Some(now.0), ..wish.clone() };
                Ok(Step { wake: Some(RENEW_AFTER), ..Step::change(raise(&wish)) })
            }
            budgets::Taking::NoRoom { text, budget } => {
                if let Some(budget) = budget {
                    self.waiting.for_budget(&pod.key(), &budget);
                }
                // Still in service: nothing is lost yet, and it is to stay so.
                if passed { Ok(self.put_off(pod, wish, &text)) } else { Ok(Step::wait(text)) }
            }
        }
    }

    /// A wish that was put off is taken up again.
    async fn begin_again(
        &self,
        pod: &CachedPod,
        wish: &Wish,
        until: UnixNanos,
        is_busy: bool,
    ) -> Result<Step, Error> {
        let now = now();
        let left = until.since(now);
        if !left.is_zero() {
            return Ok(Step { wake: Some(left), ..Step::default() });
        }
        let mut wish = Wish { not_before: None, ..wish.clone() };
        if wish.kind == DeletionKind::Evict && !is_busy {
            if let budgets::Taking::NoRoom { budget, .. } = budgets::take(&self.client, pod).await? {
                if let Some(budget) = budget {
                    self.waiting.for_budget(&pod.key(), &budget);
                }
                return Ok(Step { wake: Some(jittered(ASK_AGAIN)), ..Step::default() });
            }
            wish.reserved_at = Some(now.0);
        }
        let mut changes = begin(&pod.carried(Some(&wish)), now);
        changes.annotations.extend(raise(&wish).annotations);
        Ok(Step::change(changes))
    }

    /// Takes the wish back, because of `why`.
    pub(super) fn cancel(&self, pod: &CachedPod, why: &str) -> Step {
        self.waiting.forget(&pod.key());
        let wish = pod.wish();
        let who = wish.as_ref().map_or(BY_LABEL, |wish| wish.requested_by.as_str());
        let kind = wish.as_ref().map_or(DeletionKind::Delete, |wish| wish.kind);
        let note = format!(
            "{} asked for by {who} was cancelled: {why}; the pod goes back into service",
            kind.noun()
        );
        Step {
            changes: cancel(&pod.carried(wish.as_ref())),
            event: Some(Draft { reason: "DeletionCancelled", note }),
            gives_back: kind == DeletionKind::Evict,
            outcome: Some((kind, wish.is_some_and(|wish| wish.by_workload), "cancelled")),
            ..Step::default()
        }
    }

    /// Undoes the operation because of `why`, and keeps the wish for later.
    pub(super) fn put_off(&self, pod: &CachedPod, wish: &Wish, why: &str) -> Step {
        let wait = jittered(FIRST_WAIT.saturating_mul(1 << wish.times_put_off.min(10)).min(LONGEST_WAIT));
        let until = UnixNanos(now().0.saturating_add(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX)));
        let note = format!(
            "{} asked for by {} is put off until {}, and the pod goes back into service: {why}",
            wish.kind.noun(),
            wish.requested_by,
            until.to_rfc3339()
        );
        Step {
            changes: put_off(&pod.carried(Some(wish)), wish, until),
            event: Some(Draft { reason: "DeletionPutOff", note }),
            wake: Some(wait),
            gives_back: wish.kind == DeletionKind::Evict,
            outcome: Some((wish.kind, wish.by_workload, "put_off")),
            ..Step::default()
        }
    }
}

/// Gives back the room that was taken before the pod was busy.
fn leave_room(wish: &Wish) -> Step {
    if wish.reserved_at.is_none() {
        return Step::default();
    }
    let wish = Wish { reserved_at: None, ..wish.clone() };
    Step { gives_back: true, ..Step::change(raise(&wish)) }
}

/// The wish of somebody who set nothing but the label.
fn labelled(pod: &CachedPod) -> Wish {
    let at = pod.view().labels.get(TO_DELETE).and_then(|value| value.parse().ok()).unwrap_or(now().0);
    Wish::new(DeletionKind::Delete, BY_LABEL, UnixNanos(at))
}

/// Not the same for all.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.75 + fastrand::f64() / 2.0)
}
