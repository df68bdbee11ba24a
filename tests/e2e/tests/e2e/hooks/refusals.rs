//! Hooks that say no.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_core::{ConditionStatus, keys::Stage};
use podward_e2e::{Scene, Test};
use podward_proto::v1::Phase;
use podward_support::pods;
use serde_json::json;

use super::{
    script::Reply,
    server::HookServer,
    told::{message, until_event},
};

const REASON: &str = "the budget of this quarter is spent";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_rejects_the_check", |scene| rejects(scene, Phase::PreCheck)),
        Test::node("hook_rejects_letting_go", |scene| rejects(scene, Phase::Prepare)),
    ]
}

/// It is shown why, the operation can be cancelled, and goes on when the hook has changed its mind.
async fn rejects(scene: Arc<Scene>, phase: Phase) -> Result<()> {
    let hook = HookServer::start(&scene, "rejects").await?;
    hook.put_reachable(json!({"phases": ["PreCheck", "Prepare", "Complete"]})).await?;
    scene.create("web").await?;
    scene.until_available("web").await?;
    hook.answer(phase, Reply::Rejected(REASON));
    let word = if phase == Phase::PreCheck { "PRE_CHECK" } else { "PREPARE" };
    let operator = scene.operator("a", "update");
    let is_told = |pod: &Pod| {
        let told = message(pod);
        told.contains(REASON) && told.contains(word) && told.contains(hook.name()) && told.contains("says no")
    };
    let refused = async || -> Result<()> {
        operator.begin("web").await?;
        let pod = scene.feed().until("web", "it says who says no, and why", is_told).await?;
        ensure!(!operator.has(&pod, Stage::Operate), "permitted: {}", pods::describe(&pod));
        let gate = if phase == Phase::PreCheck { ConditionStatus::True } else { ConditionStatus::False };
        ensure!(pods::view(&pod).gate == Some(gate), "{}", pods::describe(&pod));
        Ok(())
    };
    refused().await?;
    until_event(&scene, "web", "HookRejected", &[hook.name(), word, REASON]).await?;

    let completes = hook.log().about("web", Phase::Complete).count();
    operator.undo("web").await?;
    operator.await_end("web").await?;
    let taken_in_again = hook.log().about("web", Phase::Complete).count() > completes;
    ensure!(taken_in_again == (phase == Phase::Prepare), "asked to take the pod in again: {taken_in_again}");
    let nothing_said = |pod: &Pod| !message(pod).contains(REASON);
    scene.feed().until("web", "nothing is said of it any more", nothing_said).await?;

    refused().await?;
    hook.until_asked_again("web", phase, 2).await?;
    hook.answer(phase, Reply::Done);
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await?;
    let report = scene.report("web").await?;
    let [first, second] = report.operations.as_slice() else {
        return Err(anyhow::anyhow!("{:?}", report.operations)).context("not two operations");
    };
    ensure!(first.cancelled && first.operate_ms.is_none(), "{first:?}");
    ensure!(!second.cancelled && second.operate_ms.is_some(), "{second:?}");
    Ok(())
}
