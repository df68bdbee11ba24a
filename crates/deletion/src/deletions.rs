//! The decisions of the leader about the deletion of a pod.

use futures::Stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use podward_core::deletion::request::{
    DeletionIntent, DeletionKind, DeletionRequest, begin, cancel, intent, postpone, record, replace,
};
use podward_core::deletion::{LabelAuthor, RENEW_AFTER, Ruling};
use podward_core::keys::{DELETE_OPERATION, Stage, TO_DELETE, TO_DELETE_BY};
use podward_core::{Operations, UnixNanos};
use podward_kube_util::{ApiError, CachedPod, EventDraft, PodKey, now};
use podward_runtime::retry::spread;

use crate::budgets::{BudgetRoom, Budgets};
use crate::dry_runs::DryRuns;
use crate::joint_count::JointCount;
use crate::joint_waits::JointWaits;
use crate::lost_nodes::LostNodes;
use crate::metrics::DeletionMetrics;
use crate::owners::{ReplicaCounts, Rollouts};
use crate::postponement;
use crate::requesters::{BY_LABEL, REQUESTER_RETRY_DELAY, RequesterCheck, Requesters};
use crate::shared_reads::SharedReads;
use crate::step::{BUDGET_RECHECK_DELAY, DeletionStep};
use crate::watches::WaitingPods;

/// Decides about deletions and executes them. Used by the leader only.
pub struct Deletions {
    pub(crate) client: Client,
    pub(crate) budgets: Budgets,
    pub(crate) replica_counts: ReplicaCounts,
    rollouts: Rollouts,
    /// The counts of the owners whose pods are deleted together, by UID.
    pub(crate) joint: SharedReads<JointCount>,
    pub(crate) joint_waits: JointWaits,
    pub(crate) lost_nodes: LostNodes,
    pub(crate) requesters: Requesters,
    dry_runs: Option<DryRuns>,
    pub(crate) waiting: WaitingPods,
    pub(crate) metrics: DeletionMetrics,
}

impl Deletions {
    /// Returns the deletions, and a stream of the pods to reconcile because an owner or a budget for which they wait
    /// has changed.
    pub fn new(
        client: Client,
        lost_nodes: LostNodes,
        metrics: DeletionMetrics,
    ) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let (waiting, pods) = WaitingPods::new(client.clone());
        let (replica_counts, rollouts) = (ReplicaCounts::default(), Rollouts::default());
        let requesters = Requesters::new(client.clone());
        let deletions = Deletions {
            budgets: Budgets::new(client.clone()),
            client,
            replica_counts,
            rollouts,
            joint: SharedReads::default(),
            joint_waits: JointWaits::default(),
            lost_nodes,
            requesters,
            dry_runs: None,
            waiting,
            metrics,
        };
        (deletions, pods)
    }

    /// Tries each deletion as a dry run in the name of its requester, before the pod leaves service and again before the
    /// deletion is executed. A denial delays the deletion. The client needs the right to impersonate users.
    #[must_use]
    pub fn with_dry_runs(self) -> Self {
        Deletions { dry_runs: Some(DryRuns::new(self.client.clone())), ..self }
    }

    /// Returns what to do about the deletion of `pod` before it is executed. A pod that `is_busy` stays in its
    /// pre-check and takes nothing that other pods may need: no room in a budget, and no place in a rollout.
    ///
    /// # Errors
    /// Fails if a request to the API server about the owner or the budget fails. The pod is unchanged then, but room in
    /// a budget may be reserved.
    pub async fn step(&self, pod: &CachedPod, is_busy: bool) -> Result<DeletionStep, ApiError> {
        let view = pod.view();
        if !view.is_controlled() || view.terminating {
            self.forget_wait(pod);
            return Ok(DeletionStep::default());
        }
        let request = pod.deletion_request();
        let carried = pod.carried(request.as_ref());
        match (intent(&carried), &request) {
            (DeletionIntent::Begin, _) => Ok(self.begin_by_label(pod).await),
            (DeletionIntent::Cancelled(by), _) => Ok(self.cancel(pod, by.words())),
            (DeletionIntent::Postponed(until), Some(request)) => {
                self.resume(pod, request, until, is_busy).await
            }
            (DeletionIntent::Underway, Some(request)) => {
                let hook = pod.waits_for_clone_set(&request.requested_by).filter(|_| !has_passed(pod));
                let mut step = self.underway(pod, request, is_busy || hook.is_some()).await?;
                if step.changes.labels.is_empty() && step.wait.is_none() {
                    step.wait = hook;
                }
                if let Some(why) = self.denied_before_drain(pod, request, &step).await? {
                    let DeletionStep { wait, wake, .. } = DeletionStep::wait(why);
                    step = DeletionStep { wait, wake: step.wake.or(wake), ..step };
                }
                // When its node is lost, the deletion is executed without further waiting.
                step.wake = step.wake.into_iter().chain(self.lost_nodes.lost_in(pod)).min();
                Ok(step)
            }
            _ => {
                self.forget_wait(pod);
                Ok(DeletionStep::default())
            }
        }
    }

    /// Counts the outcome of `step` and releases reserved room, after the step was written.
    pub async fn after_write(&self, pod: &CachedPod, step: &DeletionStep) {
        if let Some((kind, by_workload, outcome)) = step.outcome {
            self.metrics.count(kind, by_workload, outcome);
        }
        if step.release_room {
            self.budgets.release(pod).await;
        }
    }

    /// Discards the state for `pod`, which is gone.
    pub fn forget(&self, pod: &PodKey) {
        self.waiting.forget(pod);
        if let Some(dry_runs) = &self.dry_runs {
            dry_runs.forget(pod);
        }
    }

    /// Discards the state for owners that have no pods.
    pub fn retain(&self, has_pods: impl Fn(&str) -> bool) {
        self.replica_counts.retain(has_pods);
        self.rollouts.retain();
    }

    /// Returns the reason for which a pod that may leave service by `step` stays, because its requester is denied the
    /// deletion.
    async fn denied_before_drain(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
        step: &DeletionStep,
    ) -> Result<Option<String>, ApiError> {
        if has_passed(pod) || step.wait.is_some() || !step.changes.labels.is_empty() {
            return Ok(None);
        }
        self.recently_denied(pod, request).await
    }

    /// Returns the reason for which the API server denies the deletion to its requester now, or some seconds ago.
    async fn recently_denied(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
    ) -> Result<Option<String>, ApiError> {
        match &self.dry_runs {
            Some(dry_runs) => dry_runs.recent_denial(pod, request).await,
            None => Ok(None),
        }
    }

    /// Returns the reason for which the API server denies the deletion to its requester now.
    pub(crate) async fn denied_now(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
    ) -> Result<Option<String>, ApiError> {
        match &self.dry_runs {
            Some(dry_runs) => dry_runs.denial(pod, request).await,
            None => Ok(None),
        }
    }

    /// Records the request of a pod on which only the label is set, if the user who set it may delete the pod.
    async fn begin_by_label(&self, pod: &CachedPod) -> DeletionStep {
        let request = request_by_label(pod);
        match self.requesters.check(pod, &request).await {
            RequesterCheck::MayDelete => {
                DeletionStep::change(record(&pod.carried(None), request, pod.is_chosen_by_cost()))
            }
            RequesterCheck::MayNotDelete(why) => self.cancel(pod, &why),
            RequesterCheck::Unknown => {
                DeletionStep { wake: Some(REQUESTER_RETRY_DELAY), ..DeletionStep::default() }
            }
        }
    }

    async fn underway(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
        is_busy: bool,
    ) -> Result<DeletionStep, ApiError> {
        let view = pod.view();
        let operations = Operations::parse(view.labels);
        let has = |stage| operations.get(DELETE_OPERATION).is_some_and(|operation| operation.has(stage));
        if has(Stage::Operate) {
            return Ok(DeletionStep::default());
        }
        let passed = has(Stage::PreChecked);
        let is_busy = is_busy && !passed;
        if request.by_workload
            && let Some(owner) = pod.controller()
        {
            return match self.replica_counts.rule(&self.client, &self.waiting, pod, owner, passed).await? {
                Ruling::Go if is_busy => Ok(DeletionStep::default()),
                Ruling::Go if !passed => self.leave(pod, owner).await,
                Ruling::Go => Ok(DeletionStep::default()),
                Ruling::Keep(why) => Ok(self.withdraw(pod, request, &why)),
            };
        }
        if is_busy {
            return Ok(release_reservation(request));
        }
        // A pod out of service is not healthy for any budget, so room matters only while the pod is in service.
        if request.kind == DeletionKind::Evict && (!passed || view.ready) {
            // Other pods can use the room for as long as the denial lasts.
            if !passed && let Some(why) = self.recently_denied(pod, request).await? {
                let DeletionStep { wait, wake, .. } = DeletionStep::wait(why);
                return Ok(DeletionStep { wait, wake, ..release_reservation(request) });
            }
            return self.keep_reservation(pod, request, passed).await;
        }
        Ok(DeletionStep::default())
    }

    /// Lets a pod in excess leave service when enough other pods are in service.
    async fn leave(&self, pod: &CachedPod, owner: &OwnerReference) -> Result<DeletionStep, ApiError> {
        match self.rollouts.leave(&self.client, &self.waiting, pod, owner).await? {
            Ok(()) => {
                self.waiting.stop_waiting_for_others(&pod.key());
                Ok(DeletionStep::default())
            }
            Err(why) => Ok(DeletionStep::wait(why)),
        }
    }

    /// Reports that `pod` is in service now. Pods of its Deployment that wait for this may leave service.
    pub fn pod_in_service(&self, pod: &CachedPod) {
        self.waiting.wake_for_others(pod);
    }

    async fn keep_reservation(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
        passed: bool,
    ) -> Result<DeletionStep, ApiError> {
        let now = now();
        let left = request.reserved_at.and_then(|at| RENEW_AFTER.checked_sub(now.since(UnixNanos(at))));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Ok(DeletionStep { wake: Some(left), ..DeletionStep::default() });
        }
        match self.budgets.reserve(pod).await? {
            // The pod is not Ready. When it is, it needs room.
            BudgetRoom::Room { since: None, .. } => Ok(DeletionStep::default()),
            BudgetRoom::Room { since: Some(since), .. } => {
                let request = DeletionRequest { reserved_at: Some(since.0), ..request.clone() };
                let wake = Some(RENEW_AFTER.saturating_sub(now.since(since)));
                Ok(DeletionStep { wake, ..DeletionStep::change(replace(&request)) })
            }
            BudgetRoom::NoRoom { text, budget } => {
                if let Some(budget) = budget {
                    self.waiting.wait_for_budget(&pod.key(), &budget);
                }
                // A pod that is still in service only waits.
                if passed { Ok(self.postpone(pod, request, &text)) } else { Ok(DeletionStep::wait(text)) }
            }
        }
    }

    /// Begins a postponed deletion again when its time has come.
    async fn resume(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
        until: UnixNanos,
        is_busy: bool,
    ) -> Result<DeletionStep, ApiError> {
        let now = now();
        if let Some(left) = postponement::left(until, now) {
            return Ok(DeletionStep { wake: Some(left), ..DeletionStep::default() });
        }
        let mut request = DeletionRequest { not_before: None, ..request.clone() };
        if request.kind == DeletionKind::Evict && !is_busy {
            match self.budgets.reserve(pod).await? {
                BudgetRoom::Room { since, .. } => request.reserved_at = since.map(|since| since.0),
                BudgetRoom::NoRoom { budget, .. } => {
                    if let Some(budget) = budget {
                        self.waiting.wait_for_budget(&pod.key(), &budget);
                    }
                    return Ok(DeletionStep {
                        wake: Some(spread(BUDGET_RECHECK_DELAY, 0.25)),
                        ..DeletionStep::default()
                    });
                }
            }
        }
        let mut changes = begin(&pod.carried(Some(&request)), now);
        changes.annotations.extend(replace(&request).annotations);
        Ok(DeletionStep::change(changes))
    }

    /// Cancels the deletion because of `why`.
    pub(crate) fn cancel(&self, pod: &CachedPod, why: &str) -> DeletionStep {
        self.waiting.forget(&pod.key());
        let request = pod.deletion_request();
        let by_label = request_by_label(pod);
        let (who, kind) = {
            let known = request.as_ref().unwrap_or(&by_label);
            (known.requested_by.as_str(), known.kind)
        };
        let note = format!(
            "{} requested by {who} was cancelled: {why}; the pod goes back into service",
            kind.noun()
        );
        DeletionStep {
            changes: cancel(&pod.carried(request.as_ref())),
            event: Some(EventDraft { reason: "DeletionCancelled", note }),
            release_room: kind == DeletionKind::Evict,
            outcome: Some((kind, request.is_some_and(|request| request.by_workload), "cancelled")),
            ..DeletionStep::default()
        }
    }

    /// Withdraws `request` of the workload's controller because of `why`. An eviction that it took over continues.
    pub(crate) fn withdraw(&self, pod: &CachedPod, request: &DeletionRequest, why: &str) -> DeletionStep {
        let Some(eviction) = &request.replaced_eviction else { return self.cancel(pod, why) };
        self.waiting.forget(&pod.key());
        let note = format!(
            "deletion requested by {} was cancelled: {why}; the eviction requested by {} continues",
            request.requested_by, eviction.requested_by
        );
        DeletionStep {
            event: Some(EventDraft { reason: "DeletionCancelled", note }),
            outcome: Some((request.kind, request.by_workload, "cancelled")),
            // It needs room in the budget first, and has another requester.
            wait: Some(format!("the eviction requested by {} continues next", eviction.requested_by)),
            ..DeletionStep::change(replace(eviction))
        }
    }

    /// Undoes the operation because of `why`, and keeps the request for later.
    pub(crate) fn postpone(&self, pod: &CachedPod, request: &DeletionRequest, why: &str) -> DeletionStep {
        let wait = postponement::next(request.times_postponed);
        let until = UnixNanos(now().0.saturating_add(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX)));
        let note = format!(
            "{} requested by {} is postponed until {}, and the pod goes back into service: {why}",
            request.kind.noun(),
            request.requested_by,
            until.to_rfc3339()
        );
        DeletionStep {
            changes: postpone(&pod.carried(Some(request)), request, until),
            event: Some(EventDraft { reason: "DeletionPostponed", note }),
            wake: Some(wait),
            release_room: request.kind == DeletionKind::Evict,
            outcome: Some((request.kind, request.by_workload, "postponed")),
            ..DeletionStep::default()
        }
    }
}

/// Releases the room that was reserved before the pod became busy.
fn release_reservation(request: &DeletionRequest) -> DeletionStep {
    if request.reserved_at.is_none() {
        return DeletionStep::default();
    }
    let request = DeletionRequest { reserved_at: None, ..request.clone() };
    DeletionStep { release_room: true, ..DeletionStep::change(replace(&request)) }
}

/// Returns the request for a pod on which only the label is set.
fn request_by_label(pod: &CachedPod) -> DeletionRequest {
    let at = pod.view().labels.get(TO_DELETE).and_then(|value| value.parse().ok()).unwrap_or(now().0);
    let author = pod.annotations().get(TO_DELETE_BY).and_then(|text| LabelAuthor::parse(text));
    let (user, groups) =
        author.map_or_else(|| (BY_LABEL.to_owned(), Vec::new()), |author| (author.user, author.groups));
    DeletionRequest::new(DeletionKind::Delete, &user, UnixNanos(at)).with_groups(&groups)
}

/// Returns true if the deletion of the pod has passed its pre-check.
fn has_passed(pod: &CachedPod) -> bool {
    let operations = Operations::parse(pod.view().labels);
    let operation = operations.get(DELETE_OPERATION);
    operation.is_some_and(|operation| operation.has_any(&[Stage::PreChecked, Stage::Operate]))
}
