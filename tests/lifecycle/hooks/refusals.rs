//! Hooks that answer REJECTED.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_core::{ConditionStatus, keys::Stage};
use podward_e2e::{Fixture, Test};
use podward_proto::v1::Phase;
use podward_support::pods;
use serde_json::json;

use super::{
    reports::{message, until_event},
    script::HookReply,
    server::HookServer,
};

const REASON: &str = "the budget of this quarter is spent";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_rejects_the_check", |fixture| rejects(fixture, Phase::PreCheck)),
        Test::node("hook_rejects_letting_go", |fixture| rejects(fixture, Phase::Prepare)),
    ]
}

/// The condition shows the reason, the operation can be cancelled, and continues when the hook changes its answer.
async fn rejects(fixture: Arc<Fixture>, phase: Phase) -> Result<()> {
    let hook = HookServer::start(&fixture, "rejects").await?;
    hook.put_reachable(json!({"phases": ["PreCheck", "Prepare", "Complete"]})).await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    hook.answer(phase, HookReply::Rejected(REASON));
    let word = if phase == Phase::PreCheck { "PRE_CHECK" } else { "PREPARE" };
    let operator = fixture.operator("a", "update");
    let is_told = |pod: &Pod| {
        let told = message(pod);
        told.contains(REASON)
            && told.contains(word)
            && told.contains(hook.name())
            && told.contains("rejected")
    };
    let refused = async || -> Result<()> {
        operator.begin("web").await?;
        let pod = fixture.feed().until("web", "it says who says no, and why", is_told).await?;
        ensure!(!operator.has(&pod, Stage::Operate), "permitted: {}", pods::describe(&pod));
        let gate = if phase == Phase::PreCheck { ConditionStatus::True } else { ConditionStatus::False };
        ensure!(pods::view(&pod).gate == Some(gate), "{}", pods::describe(&pod));
        Ok(())
    };
    refused().await?;
    until_event(&fixture, "web", "HookRejected", &[hook.name(), word, REASON]).await?;

    let completes = hook.log().about("web", Phase::Complete).count();
    operator.undo("web").await?;
    operator.await_end("web").await?;
    let taken_in_again = hook.log().about("web", Phase::Complete).count() > completes;
    ensure!(taken_in_again == (phase == Phase::Prepare), "asked to take the pod in again: {taken_in_again}");
    let nothing_said = |pod: &Pod| !message(pod).contains(REASON);
    fixture.feed().until("web", "its condition does not mention it any more", nothing_said).await?;

    refused().await?;
    hook.until_called_again("web", phase, 2).await?;
    hook.answer(phase, HookReply::Done);
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await?;
    let report = fixture.report("web").await?;
    let [first, second] = report.operations.as_slice() else {
        return Err(anyhow::anyhow!("{:?}", report.operations)).context("not two operations");
    };
    ensure!(first.cancelled && first.operate_ms.is_none(), "{first:?}");
    ensure!(!second.cancelled && second.operate_ms.is_some(), "{second:?}");
    Ok(())
}
