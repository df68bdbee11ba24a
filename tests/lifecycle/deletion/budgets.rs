//! Evictions and disruption budgets.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{Api, ResourceExt, api::EvictParams};
use podward_core::deletion::hold::BUDGET_REFUSAL;
use podward_e2e::{Fixture, Test};
use podward_support::{TrafficBehaviour, TrafficPace, WAIT, await_condition, pods, within};
use serde_json::json;

use super::{
    objects::{
        APP, LONG, deployment, is_delete_requested, is_of, make, until_gone, until_leaving, until_serving,
    },
    replay::{now, replay},
};

/// The number of pods that a real node starts in a few seconds.
const REPLICAS: usize = 5;
/// The number of evictions whose responses can overlap.
const MANY: usize = 12;
const DISRUPTIONS: usize = 2;
/// The interval at which a client tries again. `kubectl drain` waits longer.
const AGAIN: Duration = Duration::from_millis(500);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("evictions_at_one_moment_keep_the_budget", |fixture| at_one_moment(fixture, REPLICAS)),
        // On simulated nodes, because of the number, and because evictions wait there (`--wait`) while others arrive.
        Test::simulated("many_evictions_at_one_moment_keep_the_budget", |fixture| {
            at_one_moment(fixture, MANY)
        }),
        Test::node("evictions_go_on_as_the_budget_allows", evictions_go_on_as_the_budget_allows),
        Test::node("eviction_without_room_leaves_the_pod_alone", eviction_without_room_leaves_the_pod_alone),
    ]
}

/// All pods are evicted at once and no consumer drains: as many leave service as the budget allows, and the others
/// never do.
async fn at_one_moment(fixture: Arc<Fixture>, replicas: usize) -> Result<()> {
    let traffic = fixture.traffic();
    let names = set_up(&fixture, replicas, DISRUPTIONS).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let since = now(&fixture).await?;
    let (mut recorded, mut refused) = (BTreeSet::new(), 0);
    for _ in 0..3 {
        for (name, answer) in evict_all(&fixture, &names).await {
            match answer? {
                EvictionOutcome::Recorded => drop(recorded.insert(name)),
                EvictionOutcome::NoRoom => refused += 1,
                EvictionOutcome::Done => bail!("pod {name} was evicted although it is held"),
            }
        }
    }
    ensure!(recorded.len() == DISRUPTIONS, "recorded: {recorded:?}");
    ensure!(refused == 3 * (replicas - DISRUPTIONS), "{refused} evictions were refused");
    let out = |pods: &[&Pod]| {
        recorded.iter().all(|name| pods.iter().any(|pod| &pod.name_any() == name && !pods::is_ready(pod)))
    };
    fixture.feed().until_pods("the pods with a deletion request are out of service", out).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.left == recorded && seen.fewest_ready == replicas - DISRUPTIONS, "{seen:?}");
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    let gone = |pods: &[&Pod]| pods.iter().all(|pod| !recorded.contains(&pod.name_any()));
    fixture.feed().until_pods_within(LONG, "the evicted pods are gone", gone).await?;
    until_serving(&fixture, "web", replicas).await.map(drop)
}

/// A client evicts all pods and tries again, as drains do. It ends, and the budget holds at every moment.
async fn evictions_go_on_as_the_budget_allows(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let names = set_up(&fixture, REPLICAS, DISRUPTIONS).await?;
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_millis(200)),
        ..TrafficBehaviour::PROMPT
    });
    let since = now(&fixture).await?;
    let drained = async {
        loop {
            evict_all(&fixture, &names).await.into_iter().try_for_each(|(_, answer)| answer.map(drop))?;
            if fixture.feed().all().iter().all(|pod| !names.contains(&pod.name_any())) {
                return Ok(());
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    within(LONG, || "all pods to be evicted".to_owned(), drained).await?;
    until_serving(&fixture, "web", REPLICAS).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.fewest_ready >= REPLICAS - DISRUPTIONS, "only {} were Ready", seen.fewest_ready);
    Ok(())
}

async fn eviction_without_room_leaves_the_pod_alone(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let names = set_up(&fixture, REPLICAS, 0).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let since = now(&fixture).await?;
    for (name, answer) in evict_all(&fixture, &names).await {
        ensure!(matches!(answer?, EvictionOutcome::NoRoom), "the eviction of {name} was not refused");
    }
    ensure!(
        fixture.feed().all().iter().all(|pod| !is_delete_requested(pod)),
        "a deletion request was recorded"
    );
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.left.is_empty() && seen.fewest_ready == REPLICAS, "{seen:?}");
    // A delete ignores the budget.
    let name = names.first().context("there is no pod")?;
    fixture.kubectl(&["delete", "pod", name, "--wait=false"]).await?.was_held(&[traffic.finalizer()])?;
    until_leaving(&fixture, name).await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_gone(&fixture, name).await?;
    until_serving(&fixture, "web", REPLICAS).await.map(drop)
}

/// Creates an available Deployment, and a budget that allows this number of disruptions.
async fn set_up(fixture: &Fixture, replicas: usize, disruptions: usize) -> Result<BTreeSet<String>> {
    make(fixture, deployment(fixture, "web", replicas)).await?;
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": replicas - disruptions, "selector": {"matchLabels": {APP: "web"}}},
    });
    make(fixture, budget).await?;
    until_serving(fixture, "web", replicas).await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(fixture.client(), fixture.namespace());
    let counted = |budget: Option<&PodDisruptionBudget>| {
        let status = budget.and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| status.current_healthy as usize == replicas)
    };
    let wait = async { await_condition(budgets, "web", counted).await.context("watch the budget") };
    within(WAIT, || "the budget to count its pods".to_owned(), wait).await?;
    Ok(fixture.feed().all().iter().filter(|pod| is_of(pod, "web")).map(|pod| pod.name_any()).collect())
}

enum EvictionOutcome {
    Done,
    Recorded,
    NoRoom,
}

async fn evict_all(fixture: &Fixture, names: &BTreeSet<String>) -> Vec<(String, Result<EvictionOutcome>)> {
    join_all(names.iter().map(|name| async { (name.clone(), evict(fixture, name).await) })).await
}

/// Evicts a pod as drains do. It tries again if the request could not be recorded because the machine is busy.
async fn evict(fixture: &Fixture, name: &str) -> Result<EvictionOutcome> {
    let is_late = |text: &str| {
        ["nothing was changed, try again", "may still be recorded; try again"]
            .iter()
            .any(|late| text.contains(late))
    };
    let answer = async {
        loop {
            match fixture.api().evict(name, &EvictParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 429 && is_late(&status.message) => {}
                answer => return Ok(answer),
            }
        }
    };
    match within(WAIT, || format!("an answer to the eviction of {name}"), answer).await? {
        Ok(_) => Ok(EvictionOutcome::Done),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(EvictionOutcome::Done),
        Err(kube::Error::Api(status)) if status.code == 429 => {
            if status.message.contains(BUDGET_REFUSAL) {
                Ok(EvictionOutcome::NoRoom)
            } else {
                ensure!(status.message.contains("Eviction triggered evacuation"), "{}", status.message);
                Ok(EvictionOutcome::Recorded)
            }
        }
        Err(error) => Err(error.into()),
    }
}
