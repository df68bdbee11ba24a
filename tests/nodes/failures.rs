//! The failures.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use podward_e2e::{Fixture, Test};
use podward_testbed::TestCluster;

use crate::spread_workload::{SpreadWorkload, lost_nothing};

/// The lag of the second API server.
const LAG: Duration = Duration::from_secs(5);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::nodes("a_kubelet_stops_during_a_drain", a_kubelet_stops_during_a_drain),
        Test::nodes("an_api_server_lags_during_a_rollout", an_api_server_lags_during_a_rollout),
        Test::nodes("a_node_is_cut_off_during_a_drain", a_node_is_cut_off_during_a_drain),
    ]
}

pub(crate) fn test_cluster(fixture: &Fixture) -> Result<&Arc<TestCluster>> {
    fixture.cluster().test_cluster().context("not on a test cluster")
}

/// Drains node2 of the pods of `near`, and uncordons it in any case.
async fn drain(fixture: &Fixture) -> Result<()> {
    let drained = fixture.kubectl(&["drain", "node2", "--pod-selector=app=near", "--timeout=140s"]).await;
    let opened = fixture.kubectl(&["uncordon", "node2"]).await;
    drained?.succeeded()?;
    opened?.succeeded().map(drop)
}

/// Its pods do not report that they are out of service until it runs again. The drain waits, and then ends.
async fn a_kubelet_stops_during_a_drain(fixture: Arc<Fixture>) -> Result<()> {
    let near = SpreadWorkload::make(&fixture, "near", &["node1", "node2"], 4).await?;
    let clients = near.clients().await?;
    let node = test_cluster(&fixture)?.node("node2")?;
    node.process("kubelet").await?.stop().await?;
    let starts_again = async {
        let stopped = near.until_leaving().await;
        node.start("kubelet").await?;
        stopped
    };
    let (drained, restarted) = tokio::join!(drain(&fixture), starts_again);
    restarted?;
    drained?;
    near.until_serving().await?;
    lost_nothing(clients).await
}

/// The kube-proxy of node3 and Podward may be clients of the API server that lags.
async fn an_api_server_lags_during_a_rollout(fixture: Arc<Fixture>) -> Result<()> {
    let near = SpreadWorkload::make(&fixture, "near", &["node1", "node2"], 4).await?;
    let cluster = test_cluster(&fixture)?;
    cluster.lag_watches(LAG).await?;
    let rolled_out = async {
        let clients = near.clients().await?;
        fixture.kubectl(&["rollout", "restart", "deployment/near"]).await?.succeeded()?;
        let status = ["rollout", "status", "deployment/near", "--timeout=120s"];
        fixture.kubectl(&status).await?.succeeded()?;
        near.until_serving().await?;
        lost_nothing(clients).await
    };
    let rolled_out = rolled_out.await;
    cluster.lag_watches(Duration::ZERO).await?;
    rolled_out
}

/// Requests to other nodes are not lost, and the drain ends: the kube-proxy of the dead node is waited for until the
/// node counts as lost. When the node is back, all pods serve again.
async fn a_node_is_cut_off_during_a_drain(fixture: Arc<Fixture>) -> Result<()> {
    let near = SpreadWorkload::make(&fixture, "near", &["node1", "node2"], 4).await?;
    let far = SpreadWorkload::make(&fixture, "far", &["node3"], 2).await?;
    let clients = near.clients().await?;
    let node = test_cluster(&fixture)?.node("node3")?;
    let cut = async {
        near.until_leaving().await?;
        node.cut_off().await.context("cut node3 off")
    };
    let (drained, cut) = tokio::join!(drain(&fixture), cut);
    node.restore().await?;
    cut?;
    drained?;
    near.until_serving().await?;
    far.until_serving().await?;
    lost_nothing(clients).await
}
