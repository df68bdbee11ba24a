//! The leading controller stops in the middle of operations, and another one continues.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::future::join;
use podward_core::keys::Stage;
use podward_e2e::{Fixture, ServiceInstance, Test};
use podward_support::{ServiceKind, WAIT, within};

use crate::phases::Phases;

/// The time until another replica leads after a clean stop.
const TAKEOVER: Duration = Duration::from_secs(3);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("leader_killed_in_each_phase", leader_killed_in_each_phase),
        Test::alone("leader_stopped", leader_stopped),
        Test::alone("no_controller_for_a_while", no_controller_for_a_while),
    ]
}

async fn leader_killed_in_each_phase(fixture: Arc<Fixture>) -> Result<()> {
    let phases = Phases::set_up(&fixture, "web").await?;
    let leader = leader(&fixture).await?;
    leader.kill().await?;
    let went_on = phases.go_on(&fixture).await;
    let next = self::leader(&fixture).await;
    leader.start().await?;
    went_on?;
    ensure!(next?.name() != leader.name(), "no other replica took over");
    Ok(())
}

/// Several times, because a leader may be doing different things when it is stopped.
async fn leader_stopped(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let operator = fixture.operator("a", "update");
    for _ in 0..5 {
        operator.begin("web").await?;
        operator.await_operate("web").await?;
        let leader = leader(&fixture).await?;
        let next = async { next_leader(&fixture, &leader).await.map(|_| Instant::now()) };
        // A pod's deletion is stored some time after the decision, and the pod is gone some time after its process.
        let (told, led) = join(leader.stop(), next).await;
        leader.start().await?;
        let took = led?.saturating_duration_since(told?);
        ensure!(took <= TAKEOVER, "the takeover took {took:?}");
        operator.finish("web").await?;
        operator.await_end("web").await?;
    }
    Ok(())
}

/// Without a controller, pods stay in the phases that wait for it. An operation can be cancelled in them, or
/// continues when a controller is back.
async fn no_controller_for_a_while(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["checking", "unchecked", "checked", "done"]).await?;
    let operator = fixture.operator("a", "update");
    for pod in ["checked", "done"] {
        operator.begin(pod).await?;
        operator.await_operate(pod).await?;
    }
    let controllers = fixture.podward()?.services(ServiceKind::LifecycleController);
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
pub(crate) async fn leader(fixture: &Fixture) -> Result<ServiceInstance> {
    let found = async {
        loop {
            if let Some(leader) = fixture.podward()?.leader().await? {
                return Ok(leader);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(WAIT, || "a controller that leads".to_owned(), found).await.context("ask who leads")
}

/// Waits until another replica than `before` leads.
pub(crate) async fn next_leader(fixture: &Fixture, before: &ServiceInstance) -> Result<ServiceInstance> {
    let other = async {
        loop {
            let leader = leader(fixture).await?;
            if leader.name() != before.name() {
                return Ok(leader);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(WAIT, || format!("another leader than {before}"), other).await
}
