//! A hook that rejects a result: its operator sees the rollback by label, event and gRPC, and ends it in each
//! possible way.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::{
    ConditionStatus,
    keys::{self, Stage},
};
use podward_e2e::{Fixture, Test};
use podward_proto::v1::{Phase, Step};
use podward_support::{Operator, pods};
use serde_json::json;

use crate::{
    hooks::{
        reports::{message, until_event, until_over},
        script::HookReply,
        server::HookServer,
    },
    lifecycle_api::WatchStream,
};

const REASON: &str = "too many errors";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("refused_result_is_rolled_back", refused_result_is_rolled_back),
        Test::node("refused_result_is_cancelled", refused_result_is_cancelled),
        Test::node("refused_result_is_accepted_later", refused_result_is_accepted_later),
        Test::node("refused_result_is_held_without_a_report", refused_result_is_held_without_a_report),
    ]
}

/// A hook that rejects every result.
async fn judge(fixture: &Fixture, policy: &str) -> Result<HookServer> {
    let hook = HookServer::start(fixture, "judge").await?;
    hook.answer(Phase::PostCheck, HookReply::Rejected(REASON));
    hook.put_reachable(json!({"phases": ["PostCheck"], "postCheckRejection": policy})).await?;
    Ok(hook)
}

/// The operator operates on the pod and finishes.
async fn work(operator: &Operator) -> Result<()> {
    operator.await_operate("web").await?;
    operator.finish("web").await.map(drop)
}

/// Waits until the operator sees that its result was rejected. The pod is then out of service.
async fn until_refused(fixture: &Fixture, operator: &Operator, hook: &HookServer) -> Result<Arc<Pod>> {
    let pod = operator.await_stage("web", Stage::Rollback).await?;
    let is_out = pods::view(&pod).gate == Some(ConditionStatus::False) && !pods::is_available(&pod);
    let is_judged = operator.has(&pod, Stage::Operated) && operator.has(&pod, Stage::PostCheck);
    ensure!(is_out && is_judged, "{}", pods::describe(&pod));
    ensure!(!operator.has(&pod, Stage::PostChecked), "accepted all the same: {}", pods::describe(&pod));
    let record = pod.annotations().get(keys::RESULT_REFUSED).context("there is no record of who refuses")?;
    ensure!(record.contains(hook.name()) && record.contains(REASON), "the record is {record}");
    let says = |pod: &Pod| {
        let told = message(pod);
        told.contains(&format!("its result is refused by hook {}", hook.name())) && told.contains(REASON)
    };
    fixture.feed().until("web", "its condition says who refuses, and why", says).await
}

/// Returns a pod whose operation is finished, with a result that a hook with the policy `Rollback` rejects.
async fn refused(fixture: &Arc<Fixture>) -> Result<(HookServer, Operator)> {
    let hook = judge(fixture, "Rollback").await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let operator = fixture.operator("release", "update");
    operator.begin("web").await?;
    work(&operator).await?;
    until_refused(fixture, &operator, &hook).await?;
    Ok((hook, operator))
}

async fn refused_result_is_rolled_back(fixture: Arc<Fixture>) -> Result<()> {
    let hook = judge(&fixture, "Rollback").await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let operator = fixture.operator("release", "update");
    let mut watched = WatchStream::start(&fixture, "web").await?;
    operator.begin("web").await?;
    work(&operator).await?;
    until_refused(&fixture, &operator, &hook).await?;
    until_event(&fixture, "web", "ResultRefused", &["operation release (update)", hook.name(), REASON])
        .await?;
    let what = "it tells that the result is refused";
    let refused =
        watched.until("release", what, |state| state.is_some_and(|state| !state.refused.is_empty()));
    let state = refused.await?.context("no operation")?;
    ensure!(state.step() == Step::Finished, "{state:?}");
    let refusal = &state.refused[0];
    let is_whole = refusal.by == format!("hook {}", hook.name()) && refusal.reason == REASON;
    ensure!(state.refused.len() == 1 && is_whole && refusal.since.is_some(), "{state:?}");

    // The operation begins again with the same id, and is checked again.
    operator.begin("web").await?;
    let pod = operator.await_operate("web").await?;
    ensure!(!operator.has(&pod, Stage::Rollback), "the label is still there: {}", pods::describe(&pod));
    let what = "it tells that the operator may work";
    let is_operating = |state: &podward_proto::v1::OperationState| {
        state.step() == Step::Operating && state.refused.is_empty()
    };
    watched.until("release", what, |state| state.is_some_and(is_operating)).await?;
    hook.answer(Phase::PostCheck, HookReply::Done);
    operator.finish("web").await?;
    until_over(&fixture, &operator).await
}

async fn refused_result_is_cancelled(fixture: Arc<Fixture>) -> Result<()> {
    let (hook, operator) = refused(&fixture).await?;
    operator.undo("web").await?;
    until_over(&fixture, &operator).await?;
    // Another operation is checked independently.
    let next = fixture.operator("next", "update");
    hook.answer(Phase::PostCheck, HookReply::Done);
    next.begin("web").await?;
    work(&next).await?;
    until_over(&fixture, &next).await
}

/// A hook that is unreachable or slow has not changed its verdict. When it changes, the operation continues by
/// itself.
async fn refused_result_is_accepted_later(fixture: Arc<Fixture>) -> Result<()> {
    let (hook, operator) = refused(&fixture).await?;
    hook.answer(Phase::PostCheck, HookReply::Pending);
    hook.until_called_again("web", Phase::PostCheck, 3).await?;
    let is_refused = |pod: &Pod| operator.has(pod, Stage::Rollback) && operator.has(pod, Stage::PostCheck);
    ensure!(
        fixture.feed().get("web").is_some_and(|pod| is_refused(&pod)),
        "a hook that takes its time took it back"
    );
    hook.answer(Phase::PostCheck, HookReply::Done);
    until_over(&fixture, &operator).await
}

/// The default policy.
async fn refused_result_is_held_without_a_report(fixture: Arc<Fixture>) -> Result<()> {
    let hook = judge(&fixture, "Hold").await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let operator = fixture.operator("release", "update");
    operator.begin("web").await?;
    work(&operator).await?;
    let says = |pod: &Pod| message(pod).contains(REASON) || operator.has(pod, Stage::Rollback);
    let pod = fixture.feed().until("web", "its condition says why it waits", says).await?;
    ensure!(!operator.has(&pod, Stage::Rollback), "its operator sees the rollback: {}", pods::describe(&pod));
    hook.answer(Phase::PostCheck, HookReply::Done);
    until_over(&fixture, &operator).await?;
    let report = fixture.report("web").await?;
    ensure!(report.operations.len() == 1, "{:?}", report.operations);
    Ok(())
}
