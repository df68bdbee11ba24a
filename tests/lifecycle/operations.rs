//! Operations that succeed, alone and together.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_core::{ConditionStatus, keys, keys::Stage};
use podward_e2e::{Fixture, Test};
use podward_support::{FinishStyle, TrafficBehaviour, pods};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("one_operation", one_operation),
        Test::node("finish_by_both_labels", finish_by_both_labels),
        Test::node("two_overlapping", two_overlapping),
        Test::node("two_of_one_type", two_of_one_type),
        Test::node("staggered_while_operated", staggered_while_operated),
        Test::node("staggered_while_completing", staggered_while_completing),
        Test::node("the_same_id_again_while_completing", the_same_id_again_while_completing),
        Test::node("a_rolling_update", a_rolling_update),
        Test::node("stay_offline", stay_offline),
    ]
}

async fn one_operation(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let before = fixture.feed().get("web").context("the pod")?;
    let operator = fixture.operator("updater", "update");
    operator.update("web", &fixture.images().v2).await?;

    let after = fixture.feed().get("web").context("the pod")?;
    ensure!(after.metadata.uid == before.metadata.uid, "the pod was made anew");
    let report = fixture.report("web").await?;
    let [operation] = &report.operations[..] else {
        anyhow::bail!("not one operation: {:?}", report.operations)
    };
    ensure!(operation.operation_type.as_deref() == Some("update") && !operation.cancelled, "{operation:?}");
    ensure!(
        operation.gate_off_at_operate == Some(true) && operation.free_at_operate == Some(true),
        "{operation:?}"
    );
    ensure!(operation.finish_to_available().is_some(), "{operation:?}");
    Ok(())
}

async fn finish_by_both_labels(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let operator = fixture.operator("updater", "update").finishing(FinishStyle::Both);
    operator.update("web", &fixture.images().v2).await?;
    let report = fixture.report("web").await?;
    ensure!(report.operations.len() == 1 && !report.operations[0].cancelled, "{:?}", report.operations);
    Ok(())
}

async fn two_overlapping(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let (a, b) = (fixture.operator("a", "update"), fixture.operator("b", "restart"));
    a.begin("web").await?;
    b.begin("web").await?;
    tokio::try_join!(a.await_operate("web"), b.await_operate("web"))?;
    a.finish("web").await?;
    let between = fixture.feed().until("web", "a is finished", |pod| !a.has(pod, Stage::Operating)).await?;
    ensure!(b.has(&between, Stage::Operate), "b has lost its permission: {}", pods::describe(&between));
    ensure!(!pods::is_available(&between), "the pod is called available while b works");
    b.finish("web").await?;
    tokio::try_join!(a.await_end("web"), b.await_end("web"))?;
    Ok(())
}

async fn two_of_one_type(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let (a, b) = (fixture.operator("a", "update"), fixture.operator("b", "update"));
    a.begin("web").await?;
    a.await_operate("web").await?;
    b.begin("web").await?;
    b.await_operate("web").await?;
    b.undo("web").await?;
    let after = fixture.feed().until("web", "b is gone", |pod| !b.has(pod, Stage::Operating)).await?;
    ensure!(a.has(&after, Stage::Operate), "a has lost its permission by b's cancel");
    ensure!(
        pods::has_label(&after, &keys::permission_key("update")),
        "the type's permission has gone with b"
    );
    a.finish("web").await?;
    a.await_end("web").await
}

/// B begins while A works, and finishes after it.
async fn staggered_while_operated(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let (a, b) = (fixture.operator("a", "update"), fixture.operator("b", "restart"));
    a.begin("web").await?;
    a.await_operate("web").await?;
    b.begin("web").await?;
    b.await_operate("web").await?;
    a.finish("web").await?;
    b.finish("web").await?;
    tokio::try_join!(a.await_end("web"), b.await_end("web"))?;
    Ok(())
}

/// B begins while A is on its way back into service. With the reference implementation, B works on a pod in service
/// and never ends.
async fn staggered_while_completing(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let (a, b) = (fixture.operator("a", "update"), fixture.operator("b", "restart"));
    a.begin("web").await?;
    a.await_operate("web").await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_ADDED);
    a.finish("web").await?;
    a.await_stage("web", Stage::Completing).await?;
    b.begin("web").await?;
    let at_work = b.await_operate("web").await?;
    ensure!(pods::view(&at_work).gate == Some(ConditionStatus::False), "b works with the gate on");
    b.finish("web").await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    tokio::try_join!(a.await_end("web"), b.await_end("web"))?;
    Ok(())
}

/// The reference implementation keeps the permissions of the first operation, and does not check the second one.
async fn the_same_id_again_while_completing(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let operator = fixture.operator("collaset", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_ADDED);
    operator.finish("web").await?;
    operator.await_stage("web", Stage::Completing).await?;
    let again = operator.begin("web").await?;
    ensure!(!operator.has(&again, Stage::Operate), "the old permission counts for the new operation");
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    operator.await_end("web").await?;
    let report = fixture.report("web").await?;
    ensure!(report.operations.len() == 2, "two operations were begun: {:?}", report.operations);
    Ok(())
}

async fn a_rolling_update(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    let names = ["a", "b", "c", "d"];
    fixture.in_service(names).await?;
    let operator = fixture.operator("updater", "update");
    operator.update_all(&names.map(str::to_owned), &fixture.images().v2, 2).await?;
    let report = fixture.timeline().verify(true).await?;
    let spans: Vec<(f64, f64)> = report
        .pods
        .iter()
        .flat_map(|pod| &pod.operations)
        .map(|operation| (operation.began_ms, operation.available_ms.unwrap_or(f64::INFINITY)))
        .collect();
    ensure!(spans.len() == names.len(), "{spans:?}");
    let most =
        spans.iter().map(|at| spans.iter().filter(|span| span.0 <= at.0 && at.0 < span.1).count()).max();
    ensure!(most <= Some(2), "{most:?} pods were out of service at a time: {spans:?}");
    Ok(())
}

/// The label keeps a pod out of service after an operation, until it is removed.
async fn stay_offline(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    fixture.label("web", &[(keys::STAY_OFFLINE, Some("1"))]).await?;
    operator.finish("web").await?;
    let has_ended = |pod: &Pod| !Stage::ALL.iter().any(|stage| pods::has_label(pod, &stage.key("updater")));
    let pod = fixture.feed().until("web", "the operation ends", has_ended).await?;
    ensure!(pods::condition(&pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::False), "{pod:?}");
    fixture.label("web", &[(keys::STAY_OFFLINE, None)]).await?;
    fixture.until_available("web").await.map(drop)
}
