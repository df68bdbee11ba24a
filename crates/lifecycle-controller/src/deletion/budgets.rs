//! Room in disruption budgets: taken before a pod leaves service, and given back when it stays.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{Selector, SelectorExt};
use kube::{Api, Client, ResourceExt};
use podward_core::UnixNanos;
use podward_core::deletion::{Budget, Evictee, Room, Taken, room, still_covers};
use serde_json::{Value, json};

use super::patch::timely;
use crate::cached_pod::CachedPod;
use crate::error::Error;

/// Many evictions at one moment contend for one object; each that is lost was won by another, so this is about fairness.
const TRIES: u32 = 12;
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// What came of the attempt to take room.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taking {
    /// There is room, and it is taken if that was needed.
    Room,
    /// There is none: the API server's text, and the budget to wait for, if there is just one.
    NoRoom { text: String, budget: Option<String> },
}

/// Takes room for `pod` in the budget that selects it.
pub(super) async fn take(client: &Client, pod: &CachedPod) -> Result<Taking, Error> {
    let mut tried = 0;
    loop {
        let found = matching(client, pod).await?;
        let now = crate::reconcile::now();
        let budgets: Vec<Budget> = found.iter().map(read).collect();
        let taken = match room(&budgets, &evictee(pod, &pod.key().name), now) {
            Room::NotNeeded | Room::Held => return Ok(Taking::Room),
            Room::None(text) => {
                let budget = match budgets.as_slice() {
                    [only] => Some(only.name.clone()),
                    _ => None,
                };
                return Ok(Taking::NoRoom { text, budget });
            }
            Room::Take(taken) => taken,
        };
        let Some(budget) = found.iter().find(|budget| budget.name_any() == taken.budget) else {
            return Ok(Taking::Room);
        };
        match write(client, pod, budget, taking(pod, budget, &taken)).await {
            Ok(()) => return Ok(Taking::Room),
            Err(Error::Conflict { .. }) if tried < TRIES => {
                tried += 1;
                pause(tried).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Gives back what was taken for `pod`. Where that fails the room comes back by itself, two minutes after it was taken.
pub(super) async fn give_back(client: &Client, pod: &CachedPod) {
    if let Err(error) = try_give_back(client, pod).await {
        tracing::warn!(%error, pod = %pod.key(), "room in a disruption budget stays taken for up to 2 min");
    }
}

async fn try_give_back(client: &Client, pod: &CachedPod) -> Result<(), Error> {
    let name = pod.key().name;
    let mut tried = 0;
    loop {
        let found = matching(client, pod).await?;
        let holds = |budget: &&PodDisruptionBudget| read(budget).disrupted_pods.contains_key(&name);
        let Some(budget) = found.iter().find(holds) else { return Ok(()) };
        // What follows for `disruptionsAllowed` is the disruption controller's to say: it counts the pod again.
        match write(client, pod, budget, json!({ "disruptedPods": { &name: null } })).await {
            Err(Error::Conflict { .. }) if tried < TRIES => {
                tried += 1;
                pause(tried).await;
            }
            // Another that holds it too is found by the next round.
            Ok(()) if tried < TRIES => tried += 1,
            other => return other,
        }
    }
}

/// Whether `pod` may be deleted although the API server has refused to evict it: no budget suffers by it.
pub(super) async fn covers(client: &Client, pod: &CachedPod) -> Result<bool, Error> {
    let budgets: Vec<Budget> = matching(client, pod).await?.iter().map(read).collect();
    Ok(still_covers(&budgets, &evictee(pod, &pod.key().name)))
}

fn evictee<'a>(pod: &CachedPod, name: &'a str) -> Evictee<'a> {
    let view = pod.view();
    Evictee {
        name,
        ready: view.ready,
        beyond_budgets: pod.is_pending() || pod.is_terminal() || view.terminating,
    }
}

/// The budgets that select `pod`. One whose selector can't be read selects nothing, as for the API server.
async fn matching(client: &Client, pod: &CachedPod) -> Result<Vec<PodDisruptionBudget>, Error> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &pod.key().namespace);
    let list = timely("list the disruption budgets of", pod, api.list(&ListParams::default())).await?;
    let selects = |budget: &PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        selector
            .and_then(|selector| Selector::try_from(selector).ok())
            .is_some_and(|selector| selector.matches(pod.view().labels))
    };
    Ok(list.items.into_iter().filter(selects).collect())
}

fn read(budget: &PodDisruptionBudget) -> Budget {
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
    Budget {
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

/// The status that says that room is taken, with the condition that the API server's handler would set.
fn taking(pod: &CachedPod, budget: &PodDisruptionBudget, taken: &Taken) -> Value {
    let mut status = json!({
        "disruptionsAllowed": taken.disruptions_allowed,
        "disruptedPods": { pod.key().name: taken.at.to_rfc3339() },
    });
    let was = budget.status.as_ref().map(|status| status.disruptions_allowed).unwrap_or_default();
    if taken.disruptions_allowed == 0 && was > 0 {
        status["conditions"] = json!([{
            "type": DISRUPTION_ALLOWED,
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": budget.status.as_ref().and_then(|status| status.observed_generation),
            "lastTransitionTime": taken.at.to_rfc3339(),
        }]);
    }
    status
}

async fn write(
    client: &Client,
    pod: &CachedPod,
    budget: &PodDisruptionBudget,
    status: Value,
) -> Result<(), Error> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &pod.key().namespace);
    let body = json!({
        "metadata": { "uid": budget.uid(), "resourceVersion": budget.resource_version() },
        "status": status,
    });
    let (name, params) = (budget.name_any(), PatchParams::default());
    let patch = Patch::Strategic(&body);
    timely(
        "take or give back room in the disruption budget of",
        pod,
        api.patch_status(&name, &params, &patch),
    )
    .await
    .map(|_| ())
}

/// Longer with every try, and not the same for all.
async fn pause(tried: u32) {
    let base = Duration::from_millis(10).saturating_mul(1 << tried.min(5));
    tokio::time::sleep(base.mul_f64(0.5 + fastrand::f64())).await;
}

/// Seconds from `from` to `to`, both in nanoseconds.
pub(super) fn seconds_between(from: i64, to: UnixNanos) -> f64 {
    to.0.saturating_sub(from).max(0) as f64 / 1e9
}
