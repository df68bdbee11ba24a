//! Operations that are cancelled, in each phase, rightly and wrongly.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_core::{ConditionStatus, keys::Stage};
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, TrafficLoop, pods};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("cancel_at_once", cancel_at_once),
        Test::node("cancel_while_preparing", cancel_while_preparing),
        Test::node("cancel_while_operating", cancel_while_operating),
        Test::node("cancel_while_waiting_for_others", cancel_while_waiting_for_others),
        Test::node("cancel_while_completing", cancel_while_completing),
        Test::node("cancel_with_the_wrong_type", cancel_with_the_wrong_type),
        Test::node("cancel_by_removing_labels", cancel_by_removing_labels),
    ]
}

async fn cancel_at_once(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    let undone = operator.undo("web").await?;
    ensure!(
        !Stage::ALL.iter().any(|stage| operator.has(&undone, *stage)),
        "left: {}",
        pods::describe(&undone)
    );
    operator.await_end("web").await
}

async fn cancel_while_preparing(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    let is_out =
        |pod: &_| operator.has(pod, Stage::Preparing) && pods::view(pod).gate == Some(ConditionStatus::False);
    scene.feed().until("web", "it is out of service and held", is_out).await?;
    let undone = operator.undo("web").await?;
    ensure!(
        !Stage::ALL.iter().any(|stage| operator.has(&undone, *stage)),
        "left: {}",
        pods::describe(&undone)
    );
    operator.await_end("web").await?;
    let report = scene.report("web").await?;
    ensure!(
        report.operations[0].cancelled && report.operations[0].operate_ms.is_none(),
        "{:?}",
        report.operations
    );
    Ok(())
}

async fn cancel_while_operating(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    operator.undo("web").await?;
    operator.await_end("web").await
}

/// A is done, B still works: A's cancel leaves B alone, and B's ends it all.
async fn cancel_while_waiting_for_others(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    let (a, b) = (scene.operator("a", "update"), scene.operator("b", "restart"));
    a.begin("web").await?;
    b.begin("web").await?;
    tokio::try_join!(a.await_operate("web"), b.await_operate("web"))?;
    a.finish("web").await?;
    let undone = a.undo("web").await?;
    ensure!(b.has(&undone, Stage::Operate), "b has lost its permission: {}", pods::describe(&undone));
    b.undo("web").await?;
    tokio::try_join!(a.await_end("web"), b.await_end("web"))?;
    Ok(())
}

async fn cancel_while_completing(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    traffic.behave(Behaviour::KEEPS_OUT);
    operator.finish("web").await?;
    operator.await_stage("web", Stage::Completing).await?;
    operator.undo("web").await?;
    traffic.behave(Behaviour::PROMPT);
    operator.await_end("web").await
}

/// The reference denies such a cancel for ever once the permission is given.
async fn cancel_with_the_wrong_type(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    scene.operator("a", "restart").undo("web").await?;
    operator.await_end("web").await
}

/// The operator takes its labels away before it has the permission, instead of undoing: nothing of it may stay.
async fn cancel_by_removing_labels(scene: Arc<Scene>) -> Result<()> {
    let traffic: TrafficLoop = scene.traffic();
    scene.in_service(["one", "both"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let operator = scene.operator("a", "update");
    for pod in ["one", "both"] {
        operator.begin(pod).await?;
        operator.await_stage(pod, Stage::Preparing).await?;
    }
    let (operating, operation_type) = (operator.key(Stage::Operating), operator.key(Stage::OperationType));
    scene.label("both", &[(&operating, None), (&operation_type, None)]).await?;
    scene.label("one", &[(&operating, None)]).await?;
    tokio::try_join!(operator.await_end("one"), operator.await_end("both"))?;
    Ok(())
}
