//! Room in disruption budgets. It is reserved before a pod leaves service, and released if the pod stays.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{Selector, SelectorExt};
use kube::{Api, Client, ResourceExt};
use podward_core::UnixNanos;
use podward_core::deletion::{
    DisruptionBudget, EvictionPod, EvictionRoom, ReservedEviction, eviction_room, still_covers,
};
use serde_json::{Value, json};

use podward_kube_util::{ApiError, CachedPod, pod_call};
use podward_runtime::retry::{CONFLICT, ExponentialBuilder, Retryable};

use crate::shared_reads::SharedReads;

/// More attempts than usual: budgets are written often while many pods are evicted.
const POLICY: ExponentialBuilder = CONFLICT.with_max_times(12);
/// The maximum number of budgets in which room is released for one pod.
const MAX_BUDGETS: usize = 12;
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// The result of [`reserve`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BudgetRoom {
    /// There is room, reserved at this time. `None`: the pod takes no room now, because it is not Ready. Look again
    /// before it leaves service. `has_budget` is true if a budget selects the pod.
    Room { since: Option<UnixNanos>, has_budget: bool },
    /// There is no room: the text that the API server returns in this case, and the budget to wait for if exactly one
    /// budget selects the pod.
    NoRoom { text: String, budget: Option<BudgetVersion> },
}

/// A budget as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetVersion {
    pub(crate) name: String,
    pub(crate) resource_version: Option<String>,
}

impl From<&PodDisruptionBudget> for BudgetVersion {
    fn from(budget: &PodDisruptionBudget) -> Self {
        BudgetVersion { name: budget.name_any(), resource_version: budget.resource_version() }
    }
}

/// The disruption budgets of the cluster. Requests of one namespace that arrive at the same time share a list of its
/// budgets. Clones share the lists.
#[derive(Clone)]
pub(crate) struct Budgets {
    client: Client,
    lists: SharedReads<Vec<PodDisruptionBudget>>,
}

impl Budgets {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, lists: SharedReads::default() }
    }

    /// Reserves room for `pod` in the budget that selects it.
    ///
    /// # Errors
    /// Fails if the budgets cannot be read or written.
    pub(crate) async fn reserve(&self, pod: &CachedPod) -> Result<BudgetRoom, ApiError> {
        (|| Box::pin(self.try_reserve(pod))).retry(POLICY).when(ApiError::is_conflict).await
    }

    async fn try_reserve(&self, pod: &CachedPod) -> Result<BudgetRoom, ApiError> {
        self.decide(pod, async |listed| {
            let found: Vec<&PodDisruptionBudget> = matching(listed, pod).collect();
            let budgets: Vec<DisruptionBudget> = found.iter().map(|budget| read(budget)).collect();
            let now = podward_kube_util::now();
            let has_budget = !found.is_empty();
            let room = |since| Ok(BudgetRoom::Room { since, has_budget });
            let reservation = match eviction_room(&budgets, &evictee(pod, &pod.key().name), now) {
                // Without a budget, the answer is used for as long as a reservation: most pods have none.
                EvictionRoom::NotNeeded => return room((!has_budget).then_some(now)),
                EvictionRoom::Held(since) => return room(Some(since)),
                EvictionRoom::None(text) => {
                    let budget = match found.as_slice() {
                        [only] => Some((*only).into()),
                        _ => None,
                    };
                    return Ok(BudgetRoom::NoRoom { text, budget });
                }
                EvictionRoom::Take(reservation) => reservation,
            };
            let Some(budget) = listed.iter_mut().find(|budget| budget.name_any() == reservation.budget)
            else {
                return room(None);
            };
            let status = reservation_status(pod, budget, &reservation);
            *budget = write(&self.client, pod, budget, status).await?;
            room(Some(now))
        })
        .await
    }

    /// Releases the room that is reserved for `pod`. If this fails, the reservation ends two minutes after it was made.
    pub(crate) async fn release(&self, pod: &CachedPod) {
        if let Err(error) = self.try_release(pod).await {
            tracing::warn!(
                %error,
                pod = %pod.key(),
                "could not release room in a disruption budget; it stays reserved for up to 2 min"
            );
        }
    }

    async fn try_release(&self, pod: &CachedPod) -> Result<(), ApiError> {
        // Each round releases the room in one budget.
        for _ in 0..MAX_BUDGETS {
            let released = (|| self.release_one(pod)).retry(POLICY).when(ApiError::is_conflict).await?;
            if !released {
                break;
            }
        }
        Ok(())
    }

    /// Releases the room in one of the budgets that hold room for `pod`. Returns false if no budget does.
    async fn release_one(&self, pod: &CachedPod) -> Result<bool, ApiError> {
        let name = pod.key().name;
        self.decide(pod, async |listed| {
            let holds = |budget: &&mut PodDisruptionBudget| {
                selects(budget, pod) && read(budget).disrupted_pods.contains_key(&name)
            };
            let Some(budget) = listed.iter_mut().find(holds) else { return Ok(false) };
            // The disruption controller updates `disruptionsAllowed`, because it counts the pod again.
            let status = json!({ "disruptedPods": { &name: null } });
            *budget = write(&self.client, pod, budget, status).await?;
            Ok(true)
        })
        .await
    }

    /// Returns true if `pod` may be deleted although the API server refused its eviction, because every budget stays
    /// satisfied without the pod.
    ///
    /// # Errors
    /// Fails if the budgets cannot be read.
    pub(crate) async fn allow_direct_delete(&self, pod: &CachedPod) -> Result<bool, ApiError> {
        self.decide(pod, async |listed| {
            let budgets: Vec<DisruptionBudget> = matching(listed, pod).map(read).collect();
            Ok(still_covers(&budgets, &evictee(pod, &pod.key().name)))
        })
        .await
    }

    /// Returns true if a budget selects `pod`.
    ///
    /// # Errors
    /// Fails if the budgets cannot be read.
    pub(crate) async fn select(&self, pod: &CachedPod) -> Result<bool, ApiError> {
        self.decide(pod, async |listed| Ok(listed.iter().any(|budget| selects(budget, pod)))).await
    }

    /// Decides with the budgets of the namespace of `pod`.
    async fn decide<R>(
        &self,
        pod: &CachedPod,
        decide: impl AsyncFnOnce(&mut Vec<PodDisruptionBudget>) -> Result<R, ApiError>,
    ) -> Result<R, ApiError> {
        let list = async || {
            let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &pod.key().namespace);
            let everything = ListParams::default();
            let list = api.list(&everything);
            Ok(pod_call("list the disruption budgets of", &pod.key(), list).await?.items)
        };
        self.lists.decide(&pod.key().namespace, list, decide).await
    }
}

fn evictee<'a>(pod: &CachedPod, name: &'a str) -> EvictionPod<'a> {
    let view = pod.view();
    EvictionPod {
        name,
        ready: view.ready,
        beyond_budgets: pod.is_pending() || pod.is_terminal() || view.terminating,
    }
}

/// Returns those of `budgets` that select `pod`.
fn matching<'b>(
    budgets: &'b [PodDisruptionBudget],
    pod: &CachedPod,
) -> impl Iterator<Item = &'b PodDisruptionBudget> {
    budgets.iter().filter(|budget| selects(budget, pod))
}

/// Returns true if `budget` selects `pod`. A budget with an invalid selector selects nothing, as for the API server.
fn selects(budget: &PodDisruptionBudget, pod: &CachedPod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    selector
        .and_then(|selector| Selector::try_from(selector).ok())
        .is_some_and(|selector| selector.matches(pod.view().labels))
}

fn read(budget: &PodDisruptionBudget) -> DisruptionBudget {
    let status = budget.status.clone().unwrap_or_default();
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let disrupted_pods: BTreeMap<String, UnixNanos> = status
        .disrupted_pods
        .into_iter()
        .flatten()
        .map(|(name, time)| {
            let nanos = i64::try_from(time.0.as_nanosecond()).unwrap_or_default();
            (name, UnixNanos(nanos))
        })
        .collect();
    let refusal = status
        .conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == DISRUPTION_ALLOWED && condition.status == "False")
        .map(|condition| (condition.reason, condition.message));
    DisruptionBudget {
        name: budget.name_any(),
        generation: budget.metadata.generation.unwrap_or_default(),
        observed_generation: status.observed_generation.unwrap_or_default(),
        disruptions_allowed: status.disruptions_allowed,
        current_healthy: status.current_healthy,
        desired_healthy: status.desired_healthy,
        disrupted_pods,
        always_allows_unhealthy: policy == Some("AlwaysAllow"),
        refusal,
    }
}

/// Returns the status patch that reserves room, with the condition that the eviction handler of the API server would
/// set.
fn reservation_status(
    pod: &CachedPod,
    budget: &PodDisruptionBudget,
    reservation: &ReservedEviction,
) -> Value {
    let mut status = json!({
        "disruptionsAllowed": reservation.disruptions_allowed,
        "disruptedPods": { pod.key().name: reservation.at.to_rfc3339() },
    });
    let was = budget.status.as_ref().map(|status| status.disruptions_allowed).unwrap_or_default();
    if reservation.disruptions_allowed == 0 && was > 0 {
        status["conditions"] = json!([{
            "type": DISRUPTION_ALLOWED,
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": budget.status.as_ref().and_then(|status| status.observed_generation),
            "lastTransitionTime": reservation.at.to_rfc3339(),
        }]);
    }
    status
}

/// Writes the `status` of `budget`, and returns what is stored. Fails with a conflict, so that the budgets are read again, if
/// the budget has changed or is gone.
pub(crate) async fn write(
    client: &Client,
    pod: &CachedPod,
    budget: &PodDisruptionBudget,
    status: Value,
) -> Result<PodDisruptionBudget, ApiError> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &pod.key().namespace);
    let body = json!({
        "metadata": { "uid": budget.uid(), "resourceVersion": budget.resource_version() },
        "status": status,
    });
    let (name, params) = (budget.name_any(), PatchParams::default());
    let patch = Patch::Strategic(&body);
    let call = api.patch_status(&name, &params, &patch);
    match pod_call("reserve or release room in the disruption budget of", &pod.key(), call).await {
        Ok(stored) => Ok(stored),
        // The budget is gone, and not the pod.
        Err(ApiError::Gone { what, pod }) => Err(ApiError::Conflict { what, pod }),
        Err(error) => Err(error),
    }
}
