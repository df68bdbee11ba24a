//! The promise: with a server that exits at once on SIGTERM, without `preStop` or sleep, not one request is lost.

use std::{net::SocketAddr, process::Output, sync::Arc};

use anyhow::{Context, Result, ensure};
use demo_client::Connections;
use podward_e2e::{Scene, Test};
use podward_support::{
    DemoImages, Load, LoadOptions, PodFeed,
    demo::{Act, REPLICAS, Server, Workload},
};
use serde_json::json;

use super::place::lost_nothing;

const RATE: u32 = 100;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving_alone("a_rolling_update_loses_nothing", a_rolling_update_loses_nothing),
        Test::serving_alone("a_restart_loses_nothing", a_restart_loses_nothing),
        Test::serving_alone("a_drain_loses_nothing", a_drain_loses_nothing),
        Test::serving_alone("a_scale_in_loses_nothing", a_scale_in_loses_nothing),
    ]
}

/// With `maxUnavailable: 0` it is the new pods that set the pace.
async fn a_rolling_update_loses_nothing(scene: Arc<Scene>) -> Result<()> {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    let (workload, load) = under_load(&scene, Some(strategy)).await?;
    let rolled = Act::RollingUpdate.perform(&workload, &scene.images().v2).await;
    lost_nothing(load).await?;
    rolled
}

/// With the default strategy, by `kubectl`.
async fn a_restart_loses_nothing(scene: Arc<Scene>) -> Result<()> {
    let (workload, load) = under_load(&scene, None).await?;
    let restarted = restart(&scene, &workload).await;
    lost_nothing(load).await?;
    restarted
}

async fn restart(scene: &Scene, workload: &Workload) -> Result<()> {
    kubectl(scene, &["rollout", "restart", "deployment/web"]).await?;
    kubectl(scene, &["rollout", "status", "deployment/web", "--timeout=120s"]).await?;
    workload.until_in_service(REPLICAS).await.map(drop)
}

async fn a_drain_loses_nothing(scene: Arc<Scene>) -> Result<()> {
    let (workload, load) = under_load(&scene, None).await?;
    let drained = Act::Drain.perform(&workload, &scene.images().v2).await;
    lost_nothing(load).await?;
    drained
}

async fn a_scale_in_loses_nothing(scene: Arc<Scene>) -> Result<()> {
    let (workload, load) = under_load(&scene, None).await?;
    let scaled = Act::ScaleIn.perform(&workload, &scene.images().v2).await;
    lost_nothing(load).await?;
    scaled
}

/// A Deployment in the test's namespace, and a crowd that asks its Service.
pub(crate) async fn under_load(
    scene: &Scene,
    strategy: Option<serde_json::Value>,
) -> Result<(Workload, Load)> {
    let workload = Workload {
        namespace: scene.namespace().to_owned(),
        image: scene.images().v1.clone(),
        server: Server::ExitsAtOnce,
        opted_in: true,
        strategy,
        feed: PodFeed::start(scene.client(), scene.namespace(), "app=web").await?,
    };
    let target: SocketAddr = workload.create().await?;
    let options = LoadOptions {
        program: DemoImages::client("dev").await?,
        image: scene.images().v1.clone(),
        target,
        path: "/slow?ms=5".to_owned(),
        connections: vec![Connections::New],
        rate: RATE,
    };
    let load = Load::start(scene.cluster(), options).await?;
    Ok((workload, load))
}

/// Runs kubectl in the test's namespace.
async fn kubectl(scene: &Scene, args: &[&str]) -> Result<()> {
    let bed = scene.cluster().bed().context("not on a bed")?;
    let mut command = bed
        .exec_command(["kubectl", "--namespace", scene.namespace()].into_iter().chain(args.iter().copied()));
    let ran = tokio::task::spawn_blocking(move || command.output()).await.context("wait for kubectl")?;
    let Output { status, stdout, stderr } = ran.context("run kubectl")?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(status.success(), "kubectl {args:?} ended with {status}: {}{}", said(&stdout), said(&stderr));
    Ok(())
}
