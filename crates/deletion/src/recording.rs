//! Records deletion requests on pods. Every replica does this.

pub(crate) mod patch;
mod refusal;
mod single_evictions;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client};
use podward_core::busy::{BusyClaim, IdleCost};
use podward_core::cloneset::keys::{DELETED_BY_OTHERS, SPECIFIED_DELETE};
use podward_core::deletion::is_by_workload;
use podward_core::deletion::request::{
    DeletionIntent, DeletionKind, DeletionRequest, DeletionRequestChanges, intent, join, record,
};
use podward_core::{LabelChanges, UnixNanos};
use podward_kube_util::{ApiError, CachedPod, PodKey, now, pod_call};
use podward_runtime::retry::{CONFLICT, Retryable};
use tokio::sync::watch;

use self::patch::write;
pub use self::refusal::DeletionRefusal;
use self::single_evictions::{SingleEvictions, is_eviction_by_tool};
use crate::budgets::{BudgetRoom, Budgets};
use crate::metrics::DeletionMetrics;
use crate::owners::{ListedPart, OwnerCounts, read_counts};
use crate::shared_reads::SharedReads;

/// After this time, the controller of a workload has observed a change of its pod. Its watch is delayed less than that,
/// unless the API server has a problem.
const OBSERVED_BY_CONTROLLERS: Duration = Duration::from_secs(10);

/// The pods that the leader knows from its watch and its own writes.
pub trait KnownPods: Send + Sync {
    /// Returns the newest known version of the pod.
    fn newest(&self, key: &PodKey) -> Option<Arc<CachedPod>>;
}

/// Records deletion requests.
#[derive(Clone)]
pub struct DeletionRequestWriter {
    client: Client,
    known: Option<watch::Receiver<Option<Arc<dyn KnownPods>>>>,
    /// By UID of the owner.
    counts: SharedReads<OwnerCounts>,
    budgets: Budgets,
    single_evictions: SingleEvictions,
    metrics: DeletionMetrics,
}

impl DeletionRequestWriter {
    /// Returns a writer of deletion requests.
    #[must_use]
    pub fn new(client: Client, metrics: DeletionMetrics) -> Self {
        let budgets = Budgets::new(client.clone());
        let single_evictions = SingleEvictions::new(client.clone());
        DeletionRequestWriter {
            client,
            known: None,
            counts: SharedReads::default(),
            budgets,
            single_evictions,
            metrics,
        }
    }

    /// Returns this writer with the pods that the leader knows, so that they are not read. `known` contains `None` while
    /// this replica does not lead.
    #[must_use]
    pub fn with_known(self, known: watch::Receiver<Option<Arc<dyn KnownPods>>>) -> Self {
        DeletionRequestWriter { known: Some(known), ..self }
    }

    /// Records a deletion request on `pod` and begins the operation in the same write. A pod that has not opted in, and
    /// that the hook `preDelete` of its CloneSet holds, is left to its set. Of `wanted`, the kind, the user and the grace
    /// period are used. Returns the stored pod. Idempotent: a request that is already stored is not written again.
    ///
    /// # Errors
    /// See [`DeletionRefusal`]. The pod is unchanged then.
    pub async fn request(
        &self,
        pod: &PodKey,
        uid: Option<&str>,
        wanted: &DeletionRequest,
    ) -> Result<Arc<CachedPod>, DeletionRefusal> {
        let is_conflict =
            |refusal: &DeletionRefusal| matches!(refusal, DeletionRefusal::Api(error) if error.is_conflict());
        let mut known = self.known_without_request(pod, uid);
        let attempt = || Box::pin(self.try_request(known.take(), pod, uid, wanted));
        match attempt.retry(CONFLICT).when(is_conflict).await {
            Err(DeletionRefusal::Api(ApiError::Gone { .. })) => Err(DeletionRefusal::NotFound(pod.clone())),
            other => {
                if let Err(refusal) = &other {
                    self.metrics.count(wanted.kind, false, refusal.outcome());
                }
                other
            }
        }
    }

    async fn try_request(
        &self,
        known: Option<Arc<CachedPod>>,
        key: &PodKey,
        uid: Option<&str>,
        wanted: &DeletionRequest,
    ) -> Result<Arc<CachedPod>, DeletionRefusal> {
        let pod = match known {
            Some(pod) => pod,
            None => self.read(key, uid).await?,
        };
        if pod.view().terminating {
            return Ok(pod);
        }
        if !pod.view().is_controlled() {
            return self.leave_to_clone_set(pod, wanted).await;
        }
        let request = complete(&pod, wanted, now());
        let present = pod.deletion_request();
        let carried = pod.carried(present.as_ref());
        match (intent(&carried), &present) {
            (DeletionIntent::Underway | DeletionIntent::Postponed(_), Some(present)) => {
                let of_job = pod.controller().is_some_and(|owner| owner.kind == "Job");
                let joined = match present.joined_by(&request, of_job) {
                    Some(joined) if request.by_workload => self.counted(&pod, joined).await?,
                    joined => joined,
                };
                match joined.filter(|joined| joined != present) {
                    Some(joined) => Ok(write(&self.client, &pod, &join(&carried, &joined, now())).await?),
                    None => Ok(pod),
                }
            }
            (DeletionIntent::Cancelled(by), _) => Err(DeletionRefusal::NoRoom(format!(
                "the previous deletion request of pod {key} is still being cancelled ({}); try again",
                by.words()
            ))),
            _ => self.record(&pod, request).await,
        }
    }

    async fn record(
        &self,
        pod: &CachedPod,
        mut request: DeletionRequest,
    ) -> Result<Arc<CachedPod>, DeletionRefusal> {
        let view = pod.view();
        let busy = BusyClaim::of(&view).at(now());
        if request.by_workload
            && let Some(owner) = pod.controller()
        {
            let new_work = busy.filter(|_| self.became_busy_just_now(pod));
            let decide = |counts: &mut OwnerCounts| match new_work.filter(|_| counts.has_idle) {
                Some(work) => Err(format!(
                    "it became busy a moment ago ({}), and other pods of its workload are idle",
                    work.words()
                )),
                None => counts.admit(pod.uid(), now()),
            };
            let admitted = self.decide(pod, owner, decide).await?;
            let admitted = admitted.map_err(|why| {
                DeletionRefusal::NoRoom(format!(
                    "pod {} is not deleted: {why}; no deletion request was recorded, and the pod continues to serve",
                    pod.key()
                ))
            })?;
            admitted.apply(&mut request);
        }
        // A busy pod reserves no room until it is no longer busy: other pods can use the room.
        let reserves_room = request.kind == DeletionKind::Evict && busy.is_none();
        let single_of = pod.controller().filter(|_| is_eviction_by_tool(&request) && view.ready);
        let mut has_budget = None;
        if reserves_room {
            let (since, is_selected) = self.reserve(pod).await?;
            (request.reserved_at, has_budget) = (since.map(|since| since.0), Some(is_selected));
        }
        let changes = record(&pod.carried(None), request.clone(), pod.is_chosen_by_cost());
        let written = match single_of {
            Some(owner) if self.is_evicted_alone(pod, has_budget).await? => {
                self.single_evictions.record(pod, owner, &changes).await?
            }
            _ => self.write(pod, &changes, reserves_room).await?,
        };
        self.metrics.count(request.kind, request.by_workload, "recorded");
        Ok(written)
    }

    /// Returns whether service accounts evict `pod` only while no other pod of its owner is being evicted: no budget selects it,
    /// and its node is not being drained. `has_budget` says whether a budget selects the pod, if that is known.
    async fn is_evicted_alone(&self, pod: &CachedPod, has_budget: Option<bool>) -> Result<bool, ApiError> {
        let has_budget = match has_budget {
            Some(has_budget) => has_budget,
            None => self.budgets.select(pod).await?,
        };
        Ok(!has_budget && !self.single_evictions.is_node_drained(pod).await)
    }

    /// Has the CloneSet of `pod`, which has not opted in, delete it, so that its hook `preDelete` runs. For an eviction,
    /// room in the disruption budget is reserved, and a repeated eviction renews it.
    async fn leave_to_clone_set(
        &self,
        pod: Arc<CachedPod>,
        wanted: &DeletionRequest,
    ) -> Result<Arc<CachedPod>, DeletionRefusal> {
        if pod.waits_for_clone_set(&wanted.requested_by).is_none() {
            return Err(DeletionRefusal::NotOptedIn(pod.key()));
        }
        let reserves_room = wanted.kind == DeletionKind::Evict;
        if pod.labels().contains_key(SPECIFIED_DELETE) {
            // The pod serves until its set deletes it. Without room, the set does so all the same.
            if reserves_room {
                let _ = self.budgets.reserve(&pod).await?;
            }
            return Ok(pod);
        }
        if reserves_room {
            self.reserve(&pod).await?;
        }
        let set = [(SPECIFIED_DELETE.to_owned(), DELETED_BY_OTHERS.to_owned())].into();
        let labels = LabelChanges { set, ..LabelChanges::default() };
        let changes = DeletionRequestChanges { labels, ..DeletionRequestChanges::default() };
        self.write(&pod, &changes, reserves_room).await
    }

    /// Reserves room in the disruption budget of `pod`. Returns the time of the reservation, which is `None` if the pod
    /// takes no room now, and whether a budget selects the pod.
    async fn reserve(&self, pod: &CachedPod) -> Result<(Option<UnixNanos>, bool), DeletionRefusal> {
        match self.budgets.reserve(pod).await? {
            BudgetRoom::Room { since, has_budget } => Ok((since, has_budget)),
            BudgetRoom::NoRoom { text, .. } => Err(DeletionRefusal::NoRoom(text)),
        }
    }

    /// Writes `changes`. If that fails for good, reserved room is released.
    async fn write(
        &self,
        pod: &CachedPod,
        changes: &DeletionRequestChanges,
        reserves_room: bool,
    ) -> Result<Arc<CachedPod>, DeletionRefusal> {
        let written = write(&self.client, pod, changes).await;
        // After a conflict, the next attempt finds the room already reserved.
        if reserves_room && written.as_ref().is_err_and(|error| !error.is_conflict()) {
            self.budgets.release(pod).await;
        }
        Ok(written?)
    }

    /// Returns `request` of the workload's controller, which replaces another request on `pod`. Returns `None` if the
    /// workload wants the pod.
    async fn counted(
        &self,
        pod: &CachedPod,
        mut request: DeletionRequest,
    ) -> Result<Option<DeletionRequest>, ApiError> {
        let Some(owner) = pod.controller() else { return Ok(Some(request)) };
        let decide = |counts: &mut OwnerCounts| counts.admit(pod.uid(), now());
        let Ok(admitted) = self.decide(pod, owner, decide).await? else {
            return Ok(None);
        };
        admitted.apply(&mut request);
        Ok(Some(request))
    }

    /// Decides with the counts of `owner`, the owner of `pod`.
    async fn decide<R>(
        &self,
        pod: &CachedPod,
        owner: &OwnerReference,
        decide: impl FnOnce(&mut OwnerCounts) -> R,
    ) -> Result<R, ApiError> {
        let read = async || read_counts(&self.client, pod, owner, ListedPart::Metadata).await;
        self.counts.decide(&owner.uid, read, async |counts| Ok(decide(counts))).await
    }

    /// Returns true if the deletion cost that protects the busy `pod` is so new that the workload's controller may not
    /// have observed it when it chose the pod. Only new costs are considered: where the controller ignores costs, the
    /// workload would otherwise be refused for as long as the pod is busy, without an operation whose maximum busy time
    /// could pass.
    fn became_busy_just_now(&self, pod: &CachedPod) -> bool {
        let idle = pod.cost(None).idle.and_then(IdleCost::parse);
        // The absolute difference: a time far in the future is not "just now" either.
        let age = |idle: IdleCost| Duration::from_nanos(now().0.saturating_sub(idle.since).unsigned_abs());
        idle.is_some_and(|idle| age(idle) < OBSERVED_BY_CONTROLLERS)
    }

    /// Returns the pod as the leader knows it, if its deletion is not requested yet. Whether it is out of date does not
    /// matter: a new request is written only to this version.
    fn known_without_request(&self, key: &PodKey, uid: Option<&str>) -> Option<Arc<CachedPod>> {
        let pod = self.known.as_ref()?.borrow().as_ref()?.newest(key)?;
        let is_meant = uid.is_none_or(|uid| uid.is_empty() || uid == pod.uid());
        let view = pod.view();
        let is_new =
            view.is_controlled() && !view.terminating && intent(&pod.carried(None)) == DeletionIntent::None;
        (is_meant && is_new && pod.deletion_request().is_none()).then_some(pod)
    }

    /// Reads the stored pod from the API server, because a cache may be out of date.
    async fn read(&self, key: &PodKey, uid: Option<&str>) -> Result<Arc<CachedPod>, DeletionRefusal> {
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = pod_call("look up", key, api.get_opt(&key.name)).await?;
        let pod = found.ok_or_else(|| DeletionRefusal::NotFound(key.clone()))?;
        if let Some(expected) = uid.filter(|uid| !uid.is_empty() && *uid != pod.uid()) {
            return Err(DeletionRefusal::WrongUid {
                pod: key.clone(),
                expected: expected.to_owned(),
                actual: pod.uid().to_owned(),
            });
        }
        Ok(Arc::new(pod))
    }
}

/// Returns the request to store for `wanted`: with the current time, and with whether the workload's controller made
/// it.
fn complete(pod: &CachedPod, wanted: &DeletionRequest, now: UnixNanos) -> DeletionRequest {
    let owner_kind = pod.controller().map(|owner| owner.kind.as_str());
    DeletionRequest {
        grace_period_seconds: wanted.grace_period_seconds,
        by_workload: is_by_workload(&wanted.requested_by, owner_kind, pod.is_taint_eviction()),
        requester_groups: wanted.requester_groups.clone(),
        ..DeletionRequest::new(wanted.kind, &wanted.requested_by, now)
    }
}
