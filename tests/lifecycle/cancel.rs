//! Operations that are cancelled in each phase, with valid and invalid requests.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_core::{ConditionStatus, keys::Stage};
use podward_e2e::{Fixture, Test, raw_patch};
use podward_support::{TrafficBehaviour, TrafficLoop, pods};
use serde_json::json;

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

async fn cancel_at_once(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let undone = operator.undo("web").await?;
    ensure!(
        !Stage::ALL.iter().any(|stage| operator.has(&undone, *stage)),
        "left: {}",
        pods::describe(&undone)
    );
    operator.await_end("web").await
}

async fn cancel_while_preparing(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let is_out =
        |pod: &_| operator.has(pod, Stage::Preparing) && pods::view(pod).gate == Some(ConditionStatus::False);
    fixture.feed().until("web", "it is out of service and held", is_out).await?;
    let undone = operator.undo("web").await?;
    ensure!(
        !Stage::ALL.iter().any(|stage| operator.has(&undone, *stage)),
        "left: {}",
        pods::describe(&undone)
    );
    operator.await_end("web").await?;
    let report = fixture.report("web").await?;
    ensure!(
        report.operations[0].cancelled && report.operations[0].operate_ms.is_none(),
        "{:?}",
        report.operations
    );
    Ok(())
}

async fn cancel_while_operating(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    operator.undo("web").await?;
    operator.await_end("web").await
}

/// A is done and B still works: A's cancel does not affect B, and B's cancel ends everything.
async fn cancel_while_waiting_for_others(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let (a, b) = (fixture.operator("a", "update"), fixture.operator("b", "restart"));
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

async fn cancel_while_completing(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_ADDED);
    operator.finish("web").await?;
    operator.await_stage("web", Stage::Completing).await?;
    operator.undo("web").await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    operator.await_end("web").await
}

/// It was probably meant for another operation. The right cancel still works.
async fn cancel_with_the_wrong_type(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    let wrong = json!({"metadata": {"labels": {operator.key(Stage::UndoOperationType): "restart"}}});
    let answer = raw_patch(&fixture.client(), fixture.namespace(), "web", &wrong).await?;
    let is_denied = !answer.status.is_success() && answer.message().contains("has the type \"update\"");
    ensure!(is_denied, "{answer:?}");
    operator.undo("web").await?;
    operator.await_end("web").await
}

/// The operator removes its labels before it has the permission, instead of cancelling. Nothing of it may stay.
async fn cancel_by_removing_labels(fixture: Arc<Fixture>) -> Result<()> {
    let traffic: TrafficLoop = fixture.traffic();
    fixture.in_service(["one", "both"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let operator = fixture.operator("a", "update");
    for pod in ["one", "both"] {
        operator.begin(pod).await?;
        operator.await_stage(pod, Stage::Preparing).await?;
    }
    let (operating, operation_type) = (operator.key(Stage::Operating), operator.key(Stage::OperationType));
    fixture.label("both", &[(&operating, None), (&operation_type, None)]).await?;
    fixture.label("one", &[(&operating, None)]).await?;
    tokio::try_join!(operator.await_end("one"), operator.await_end("both"))?;
    Ok(())
}
