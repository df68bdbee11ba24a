//! A hook that refuses a result: its operator is told by label, event and gRPC, and ends it in each of the ways that there are.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::{
    ConditionStatus,
    keys::{self, Stage},
};
use podward_e2e::{Scene, Test};
use podward_proto::v1::{Phase, Step};
use podward_support::{Operator, pods};
use serde_json::json;

use crate::{
    hooks::{
        script::Reply,
        server::HookServer,
        told::{message, until_event},
    },
    lifecycle::Watched,
};

const REASON: &str = "too many errors";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("refused_result_is_rolled_back", refused_result_is_rolled_back),
        Test::node("refused_result_is_cancelled", refused_result_is_cancelled),
        Test::node("refused_result_is_accepted_later", refused_result_is_accepted_later),
        Test::node("refused_result_is_held_without_a_word", refused_result_is_held_without_a_word),
    ]
}

/// A hook that refuses every result.
async fn judge(scene: &Scene, policy: &str) -> Result<HookServer> {
    let hook = HookServer::start(scene, "judge").await?;
    hook.answer(Phase::PostCheck, Reply::Rejected(REASON));
    hook.put_reachable(json!({"phases": ["PostCheck"], "postCheckRejection": policy})).await?;
    Ok(hook)
}

/// The operator works on the pod, and is done.
async fn work(operator: &Operator) -> Result<()> {
    operator.await_operate("web").await?;
    operator.finish("web").await.map(drop)
}

/// Waits until the operator is told that its result is refused; the pod is out of service then.
async fn until_refused(scene: &Scene, operator: &Operator, hook: &HookServer) -> Result<Arc<Pod>> {
    let pod = operator.await_stage("web", Stage::Rollback).await?;
    let is_out = pods::view(&pod).gate == Some(ConditionStatus::False) && !pods::is_available(&pod);
    let is_judged = operator.has(&pod, Stage::Operated) && operator.has(&pod, Stage::PostCheck);
    ensure!(is_out && is_judged, "{}", pods::describe(&pod));
    ensure!(!operator.has(&pod, Stage::PostChecked), "accepted all the same: {}", pods::describe(&pod));
    let record = pod.annotations().get(keys::REFUSED).context("there is no record of who refuses")?;
    ensure!(record.contains(hook.name()) && record.contains(REASON), "the record is {record}");
    let says = |pod: &Pod| {
        let told = message(pod);
        told.contains(&format!("its result is refused by hook {}", hook.name())) && told.contains(REASON)
    };
    scene.feed().until("web", "its condition says who refuses, and why", says).await
}

/// Nothing of the refusal is left, and the pod serves.
async fn until_over(scene: &Scene, operator: &Operator) -> Result<()> {
    operator.await_end("web").await?;
    let is_clean = |pod: &Pod| !pod.annotations().contains_key(keys::REFUSED);
    scene.feed().until("web", "the record is gone", is_clean).await.map(drop)
}

/// A pod whose operation is done, and refused by a hook that wants its operator to be told.
async fn refused(scene: &Arc<Scene>) -> Result<(HookServer, Operator)> {
    let hook = judge(scene, "Rollback").await?;
    scene.create("web").await?;
    scene.until_available("web").await?;
    let operator = scene.operator("release", "update");
    operator.begin("web").await?;
    work(&operator).await?;
    until_refused(scene, &operator, &hook).await?;
    Ok((hook, operator))
}

async fn refused_result_is_rolled_back(scene: Arc<Scene>) -> Result<()> {
    let hook = judge(&scene, "Rollback").await?;
    scene.create("web").await?;
    scene.until_available("web").await?;
    let operator = scene.operator("release", "update");
    let mut watched = Watched::start(&scene, "web").await?;
    operator.begin("web").await?;
    work(&operator).await?;
    until_refused(&scene, &operator, &hook).await?;
    until_event(&scene, "web", "ResultRefused", &["operation release (update)", hook.name(), REASON]).await?;
    let what = "it tells that the result is refused";
    let refused =
        watched.until("release", what, |state| state.is_some_and(|state| !state.refused.is_empty()));
    let state = refused.await?.context("no operation")?;
    ensure!(state.step() == Step::Finished, "{state:?}");
    let refusal = &state.refused[0];
    let is_whole = refusal.by == format!("hook {}", hook.name()) && refusal.reason == REASON;
    ensure!(state.refused.len() == 1 && is_whole && refusal.since.is_some(), "{state:?}");

    // Begun again under the same id: checked anew.
    operator.begin("web").await?;
    let pod = operator.await_operate("web").await?;
    ensure!(!operator.has(&pod, Stage::Rollback), "the label is still there: {}", pods::describe(&pod));
    let what = "it tells that the operator may work";
    let is_operating = |state: &podward_proto::v1::OperationState| {
        state.step() == Step::Operating && state.refused.is_empty()
    };
    watched.until("release", what, |state| state.is_some_and(is_operating)).await?;
    hook.answer(Phase::PostCheck, Reply::Done);
    operator.finish("web").await?;
    until_over(&scene, &operator).await
}

async fn refused_result_is_cancelled(scene: Arc<Scene>) -> Result<()> {
    let (hook, operator) = refused(&scene).await?;
    operator.undo("web").await?;
    until_over(&scene, &operator).await?;
    // Another one is judged for itself.
    let next = scene.operator("next", "update");
    hook.answer(Phase::PostCheck, Reply::Done);
    next.begin("web").await?;
    work(&next).await?;
    until_over(&scene, &next).await
}

/// A hook that can't be reached, or takes its time, has not changed its mind; when it has, the operation goes on by itself.
async fn refused_result_is_accepted_later(scene: Arc<Scene>) -> Result<()> {
    let (hook, operator) = refused(&scene).await?;
    hook.answer(Phase::PostCheck, Reply::Pending);
    hook.until_asked_again("web", Phase::PostCheck, 3).await?;
    let is_refused = |pod: &Pod| operator.has(pod, Stage::Rollback) && operator.has(pod, Stage::PostCheck);
    ensure!(
        scene.feed().get("web").is_some_and(|pod| is_refused(&pod)),
        "a hook that takes its time took it back"
    );
    hook.answer(Phase::PostCheck, Reply::Done);
    until_over(&scene, &operator).await
}

/// The default: as it was before there was anything else.
async fn refused_result_is_held_without_a_word(scene: Arc<Scene>) -> Result<()> {
    let hook = judge(&scene, "Hold").await?;
    scene.create("web").await?;
    scene.until_available("web").await?;
    let operator = scene.operator("release", "update");
    operator.begin("web").await?;
    work(&operator).await?;
    let says = |pod: &Pod| message(pod).contains(REASON) || operator.has(pod, Stage::Rollback);
    let pod = scene.feed().until("web", "its condition says why it waits", says).await?;
    ensure!(!operator.has(&pod, Stage::Rollback), "its operator is told: {}", pods::describe(&pod));
    hook.answer(Phase::PostCheck, Reply::Done);
    until_over(&scene, &operator).await?;
    let report = scene.report("web").await?;
    ensure!(report.operations.len() == 1, "{:?}", report.operations);
    Ok(())
}
