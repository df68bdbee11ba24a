//! Zero loss: with a server that exits at once on SIGTERM, without `preStop` or sleep, no request is lost.

use std::{net::SocketAddr, process::Output, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use demo_client::Connections;
use podward_e2e::{Fixture, Test};
use podward_images::DemoImages;
use podward_support::{
    LoadClient, LoadClientOptions, LoadTargets, PodFeed,
    demo::{Act, CPU_REQUEST, DemoServer, DemoWorkload, REPLICAS},
};
use serde_json::json;

use super::service_fixture::lost_nothing;

const RATE: u32 = 100;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving_alone("a_rolling_update_loses_nothing", a_rolling_update_loses_nothing),
        Test::serving_alone("a_restart_loses_nothing", a_restart_loses_nothing),
        Test::serving_alone("a_drain_loses_nothing", a_drain_loses_nothing),
        Test::serving_alone("a_scale_in_loses_nothing", a_scale_in_loses_nothing),
    ]
}

/// With `maxUnavailable: 0` the new pods determine the pace.
async fn a_rolling_update_loses_nothing(fixture: Arc<Fixture>) -> Result<()> {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    let (workload, load) = under_load(&fixture, Some(strategy)).await?;
    let rolled = Act::RollingUpdate.perform(&workload, &fixture.images().v2).await;
    lost_nothing(load).await?;
    rolled
}

/// With the default strategy, by `kubectl`.
async fn a_restart_loses_nothing(fixture: Arc<Fixture>) -> Result<()> {
    let (workload, load) = under_load(&fixture, None).await?;
    let restarted = restart(&fixture, &workload).await;
    lost_nothing(load).await?;
    restarted
}

async fn restart(fixture: &Fixture, workload: &DemoWorkload) -> Result<()> {
    kubectl(fixture, &["rollout", "restart", "deployment/web"]).await?;
    kubectl(fixture, &["rollout", "status", "deployment/web", "--timeout=120s"]).await?;
    workload.until_in_service(REPLICAS).await.map(drop)
}

async fn a_drain_loses_nothing(fixture: Arc<Fixture>) -> Result<()> {
    let (workload, load) = under_load(&fixture, None).await?;
    let drained = Act::Drain.perform(&workload, &fixture.images().v2).await;
    lost_nothing(load).await?;
    drained
}

async fn a_scale_in_loses_nothing(fixture: Arc<Fixture>) -> Result<()> {
    let (workload, load) = under_load(&fixture, None).await?;
    let scaled = Act::ScaleIn.perform(&workload, &fixture.images().v2).await;
    lost_nothing(load).await?;
    scaled
}

/// Returns a Deployment in the test's namespace, and clients of its Service.
pub(crate) async fn under_load(
    fixture: &Fixture,
    strategy: Option<serde_json::Value>,
) -> Result<(DemoWorkload, LoadClient)> {
    let workload = DemoWorkload {
        namespace: fixture.namespace().to_owned(),
        image: fixture.images().v1.clone(),
        server: DemoServer::ExitsAtOnce,
        opted_in: true,
        strategy,
        two_pods_on: None,
        removal_wait: Duration::ZERO,
        cpu_request: CPU_REQUEST,
        feed: PodFeed::start(fixture.client(), fixture.namespace(), "app=web").await?,
    };
    let target: SocketAddr = workload.create().await?;
    let options = LoadClientOptions {
        timeout: LoadClientOptions::PATIENT,
        program: DemoImages::client("dev").await?,
        image: fixture.images().v1.clone(),
        targets: LoadTargets::Service(target),
        node: None,
        path: "/slow?ms=5".to_owned(),
        connections: vec![Connections::New],
        rate: RATE,
    };
    let load = LoadClient::start(fixture.cluster(), options).await?;
    Ok((workload, load))
}

/// Runs kubectl in the test's namespace.
async fn kubectl(fixture: &Fixture, args: &[&str]) -> Result<()> {
    let test_cluster = fixture.cluster().test_cluster().context("not on a test cluster")?;
    let mut command = test_cluster.exec_command(
        ["kubectl", "--namespace", fixture.namespace()].into_iter().chain(args.iter().copied()),
    );
    let ran = tokio::task::spawn_blocking(move || command.output()).await.context("wait for kubectl")?;
    let Output { status, stdout, stderr } = ran.context("run kubectl")?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(status.success(), "kubectl {args:?} ended with {status}: {}{}", said(&stdout), said(&stderr));
    Ok(())
}
