//! Evictions and disruption budgets.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{Api, ResourceExt, api::EvictParams, runtime::wait::await_condition};
use podward_core::hold::BUDGET_REFUSAL;
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, Pace, WAIT, pods, within};
use serde_json::json;

use super::{
    made::{APP, LONG, deployment, is_of, is_wished, make, until_gone, until_leaving, until_serving},
    replay::{now, replay},
};

/// As many pods as a real node starts in a few seconds.
const REPLICAS: usize = 5;
/// As many as answers cross for.
const MANY: usize = 12;
const DISRUPTIONS: usize = 2;
/// How often a client tries again; `kubectl drain` waits longer.
const AGAIN: Duration = Duration::from_millis(500);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("evictions_at_one_moment_keep_the_budget", |scene| at_one_moment(scene, REPLICAS)),
        // On simulated nodes because of the number, and because evictions wait there (`--wait`) while others come.
        Test::simulated("many_evictions_at_one_moment_keep_the_budget", |scene| at_one_moment(scene, MANY)),
        Test::node("evictions_go_on_as_the_budget_allows", evictions_go_on_as_the_budget_allows),
        Test::node("eviction_without_room_leaves_the_pod_alone", eviction_without_room_leaves_the_pod_alone),
    ]
}

/// All at once, and nobody lets go: as many leave service as the budget has room for, and the others never do.
async fn at_one_moment(scene: Arc<Scene>, replicas: usize) -> Result<()> {
    let traffic = scene.traffic();
    let names = set_up(&scene, replicas, DISRUPTIONS).await?;
    traffic.behave(Behaviour::HOLDS);
    let since = now(&scene).await?;
    let (mut recorded, mut refused) = (BTreeSet::new(), 0);
    for _ in 0..3 {
        for (name, answer) in evict_all(&scene, &names).await {
            match answer? {
                Answer::Recorded => drop(recorded.insert(name)),
                Answer::NoRoom => refused += 1,
                Answer::Done => bail!("pod {name} was evicted although it is held"),
            }
        }
    }
    ensure!(recorded.len() == DISRUPTIONS, "recorded: {recorded:?}");
    ensure!(refused == 3 * (replicas - DISRUPTIONS), "{refused} evictions were refused");
    let out = |pods: &[&Pod]| {
        recorded.iter().all(|name| pods.iter().any(|pod| &pod.name_any() == name && !pods::is_ready(pod)))
    };
    scene.feed().until_pods("the pods with a wish are out of service", out).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.left == recorded && seen.fewest_ready == replicas - DISRUPTIONS, "{seen:?}");
    traffic.behave(Behaviour::PROMPT);
    let gone = |pods: &[&Pod]| pods.iter().all(|pod| !recorded.contains(&pod.name_any()));
    scene.feed().until_pods_within(LONG, "the evicted pods are gone", gone).await?;
    until_serving(&scene, "web", replicas).await.map(drop)
}

/// All of them, by a client that tries again as drainers do: it comes to its end, and the budget holds at every moment.
async fn evictions_go_on_as_the_budget_allows(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let names = set_up(&scene, REPLICAS, DISRUPTIONS).await?;
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(200)), ..Behaviour::PROMPT });
    let since = now(&scene).await?;
    let drained = async {
        loop {
            evict_all(&scene, &names).await.into_iter().try_for_each(|(_, answer)| answer.map(drop))?;
            if scene.feed().all().iter().all(|pod| !names.contains(&pod.name_any())) {
                return Ok(());
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    within(LONG, || "all pods to be evicted".to_owned(), drained).await?;
    until_serving(&scene, "web", REPLICAS).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.fewest_ready >= REPLICAS - DISRUPTIONS, "only {} were Ready", seen.fewest_ready);
    Ok(())
}

async fn eviction_without_room_leaves_the_pod_alone(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let names = set_up(&scene, REPLICAS, 0).await?;
    traffic.behave(Behaviour::HOLDS);
    let since = now(&scene).await?;
    for (name, answer) in evict_all(&scene, &names).await {
        ensure!(matches!(answer?, Answer::NoRoom), "the eviction of {name} was not refused");
    }
    ensure!(scene.feed().all().iter().all(|pod| !is_wished(pod)), "a wish was recorded");
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.left.is_empty() && seen.fewest_ready == REPLICAS, "{seen:?}");
    // A delete doesn't ask the budget.
    let name = names.first().context("there is no pod")?;
    scene.kubectl(&["delete", "pod", name, "--wait=false"]).await?.was_held(&[traffic.finalizer()])?;
    until_leaving(&scene, name).await?;
    traffic.behave(Behaviour::PROMPT);
    until_gone(&scene, name).await?;
    until_serving(&scene, "web", REPLICAS).await.map(drop)
}

/// A Deployment in service, and a budget that allows so many disruptions.
async fn set_up(scene: &Scene, replicas: usize, disruptions: usize) -> Result<BTreeSet<String>> {
    make(scene, deployment(scene, "web", replicas)).await?;
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": replicas - disruptions, "selector": {"matchLabels": {APP: "web"}}},
    });
    make(scene, budget).await?;
    until_serving(scene, "web", replicas).await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(scene.client(), scene.namespace());
    let counted = |budget: Option<&PodDisruptionBudget>| {
        let status = budget.and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| status.current_healthy as usize == replicas)
    };
    let wait = async { await_condition(budgets, "web", counted).await.context("watch the budget") };
    within(WAIT, || "the budget to count its pods".to_owned(), wait).await?;
    Ok(scene.feed().all().iter().filter(|pod| is_of(pod, "web")).map(|pod| pod.name_any()).collect())
}

enum Answer {
    Done,
    Recorded,
    NoRoom,
}

async fn evict_all(scene: &Scene, names: &BTreeSet<String>) -> Vec<(String, Result<Answer>)> {
    join_all(names.iter().map(|name| async { (name.clone(), evict(scene, name).await) })).await
}

/// As drainers do: what could not be recorded because the machine is busy, which is said, is asked for again.
async fn evict(scene: &Scene, name: &str) -> Result<Answer> {
    let answer = async {
        loop {
            match scene.api().evict(name, &EvictParams::default()).await {
                Err(kube::Error::Api(status))
                    if status.code == 429 && status.message.contains("nothing was changed, try again") => {}
                answer => return Ok(answer),
            }
        }
    };
    match within(WAIT, || format!("an answer to the eviction of {name}"), answer).await? {
        Ok(_) => Ok(Answer::Done),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Answer::Done),
        Err(kube::Error::Api(status)) if status.code == 429 => {
            if status.message.contains(BUDGET_REFUSAL) {
                Ok(Answer::NoRoom)
            } else {
                ensure!(status.message.contains("Eviction triggered evacuation"), "{}", status.message);
                Ok(Answer::Recorded)
            }
        }
        Err(error) => Err(error.into()),
    }
}
