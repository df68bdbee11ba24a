//! The leading controller goes away in the middle of operations: another one goes on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::future::join;
use podward_core::keys::Stage;
use podward_e2e::{Scene, Service, Test};
use podward_support::{Kind, WAIT, within};

use crate::phases::Phases;

/// How soon another replica leads after a clean stop.
const TAKEOVER: Duration = Duration::from_secs(3);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("leader_killed_in_each_phase", leader_killed_in_each_phase),
        Test::alone("leader_stopped", leader_stopped),
        Test::alone("no_controller_for_a_while", no_controller_for_a_while),
    ]
}

async fn leader_killed_in_each_phase(scene: Arc<Scene>) -> Result<()> {
    let phases = Phases::set_up(&scene, "web").await?;
    let leader = leader(&scene).await?;
    leader.kill().await?;
    let went_on = phases.go_on(&scene).await;
    let next = self::leader(&scene).await;
    leader.start().await?;
    went_on?;
    ensure!(next?.name() != leader.name(), "nobody took over");
    Ok(())
}

/// Several times, since what a leader is just doing when it is told to stop differs.
async fn leader_stopped(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    let operator = scene.operator("a", "update");
    for _ in 0..5 {
        operator.begin("web").await?;
        operator.await_operate("web").await?;
        let leader = leader(&scene).await?;
        let next = async { next_leader(&scene, &leader).await.map(|_| Instant::now()) };
        // A pod is told to go some time after it was decided, and is gone some time after its process.
        let (told, led) = join(leader.stop(), next).await;
        leader.start().await?;
        let took = led?.saturating_duration_since(told?);
        ensure!(took <= TAKEOVER, "the takeover took {took:?}");
        operator.finish("web").await?;
        operator.await_end("web").await?;
    }
    Ok(())
}

/// With no controller at all the phases in which it is waited for can be held: an operation can be cancelled in them, or goes on
/// when a controller is back.
async fn no_controller_for_a_while(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    scene.in_service(["checking", "unchecked", "checked", "done"]).await?;
    let operator = scene.operator("a", "update");
    for pod in ["checked", "done"] {
        operator.begin(pod).await?;
        operator.await_operate(pod).await?;
    }
    let controllers = scene.podward()?.services(Kind::LifecycleController);
    for controller in &controllers {
        controller.kill().await?;
    }
    let held = async {
        for pod in ["checking", "unchecked"] {
            let begun = operator.begin(pod).await?;
            ensure!(operator.has(&begun, Stage::PreCheck), "the webhook has not asked for the check");
        }
        operator.undo("unchecked").await?;
        for pod in ["checked", "done"] {
            let finished = operator.finish(pod).await?;
            ensure!(operator.has(&finished, Stage::PostCheck), "the webhook has not asked for the check");
        }
        operator.undo("checked").await
    };
    let held = held.await;
    for controller in &controllers {
        controller.start().await?;
    }
    held?;
    operator.await_operate("checking").await?;
    operator.finish("checking").await?;
    for pod in ["checking", "unchecked", "checked", "done"] {
        operator.await_end(pod).await?;
    }
    Ok(())
}

/// Waits until one of the running controllers leads.
pub(crate) async fn leader(scene: &Scene) -> Result<Service> {
    let found = async {
        loop {
            if let Some(leader) = scene.podward()?.leader().await? {
                return Ok(leader);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(WAIT, || "a controller that leads".to_owned(), found).await.context("ask who leads")
}

/// Waits until somebody else leads than `before`.
pub(crate) async fn next_leader(scene: &Scene, before: &Service) -> Result<Service> {
    let other = async {
        loop {
            let leader = leader(scene).await?;
            if leader.name() != before.name() {
                return Ok(leader);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(WAIT, || format!("somebody else than {before} to lead"), other).await
}
