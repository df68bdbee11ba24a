//! Drains of the pods of a StatefulSet: a replacement has the name of the evicted pod, and is not evicted in its place.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::ResourceExt;
use podward_e2e::{Fixture, Test};
use podward_support::{TrafficBehaviour, TrafficLoop, TrafficPace};
use serde_json::json;

use super::{
    evictions::evict,
    kinds::workload,
    objects::{APP, is_of, make, until_serving},
    own_nodes::OwnNode,
    replay::{ReplayMoment, now, replay},
};

const REPLICAS: usize = 3;
/// The time between two attempts of a client that drains a node.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("kubectl_drains_a_stateful_set", kubectl_drains_a_stateful_set),
        Test::simulated("a_client_with_uids_drains_a_stateful_set", a_client_with_uids_drains_a_stateful_set),
    ]
}

/// A StatefulSet whose pods are on one of two nodes.
struct DrainedSet<'s> {
    fixture: &'s Fixture,
    node: OwnNode<'s>,
    other: OwnNode<'s>,
    /// The UID of each pod by name, before the drain.
    before: BTreeMap<String, String>,
    since: ReplayMoment,
}

impl<'s> DrainedSet<'s> {
    async fn make(fixture: &'s Fixture, traffic: &TrafficLoop) -> Result<Self> {
        let node = OwnNode::make(fixture, "a", 100, true).await?;
        let mut set = workload(fixture, "StatefulSet", "db");
        set["spec"]["serviceName"] = json!("db");
        set["spec"]["replicas"] = json!(REPLICAS);
        node.place(&mut set["spec"]["template"]["spec"]);
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {APP: "db"}}},
        });
        make(fixture, budget).await?;
        make(fixture, set).await?;
        until_serving(fixture, "db", REPLICAS).await?;
        let other = OwnNode::make(fixture, "b", 100, true).await?;
        traffic.set_behaviour(TrafficBehaviour {
            drain: TrafficPace::After(Duration::from_millis(300)),
            ..TrafficBehaviour::PROMPT
        });
        let before = uids(fixture);
        ensure!(before.len() == REPLICAS, "{before:?}");
        Ok(Self { fixture, node, other, before, since: now(fixture).await? })
    }

    /// Checks that each pod was replaced once, on the other node, one at a time.
    async fn check(self) -> Result<()> {
        until_serving(self.fixture, "db", REPLICAS).await?;
        let after = self.fixture.feed().all();
        let after: Vec<_> = after.iter().filter(|pod| is_of(pod, "db")).collect();
        for pod in &after {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            ensure!(node == Some(self.other.name.as_str()), "{} is on {node:?}", pod.name_any());
        }
        let seen = replay(self.fixture, self.since, |_| true).await?;
        ensure!(seen.left.len() == REPLICAS, "a pod left service that was not to be drained: {seen:?}");
        ensure!(seen.fewest_ready == REPLICAS - 1, "the budget was not kept: {seen:?}");
        self.node.remove().await?;
        self.other.remove().await
    }
}

fn uids(fixture: &Fixture) -> BTreeMap<String, String> {
    let pods = fixture.feed().all();
    let of_set = pods.iter().filter(|pod| is_of(pod, "db"));
    of_set.map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect()
}

async fn kubectl_drains_a_stateful_set(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let set = DrainedSet::make(&fixture, &traffic).await?;
    let drain = ["drain", &set.node.name, "--ignore-daemonsets", "--timeout=100s"];
    fixture.kubectl(&drain).await?.succeeded()?;
    set.check().await
}

/// The client evicts every pod until the API server answers that the pod with this UID is gone.
async fn a_client_with_uids_drains_a_stateful_set(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let set = DrainedSet::make(&fixture, &traffic).await?;
    fixture.kubectl(&["cordon", &set.node.name]).await?.succeeded()?;
    let evictions = set.before.iter().map(async |(name, uid)| {
        loop {
            let options = json!({"preconditions": {"uid": uid}});
            match evict(&fixture, "v1", name, options).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return anyhow::Ok(()),
                Err(kube::Error::Api(status)) if status.code == 429 => {}
                other => drop(other.with_context(|| format!("evict pod {name}"))?),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    });
    let _: Vec<()> = try_join_all(evictions).await?;
    set.check().await
}
