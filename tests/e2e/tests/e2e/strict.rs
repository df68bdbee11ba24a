//! Podward with `--strict`: what is otherwise warned of is denied.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_core::{keys, keys::Stage};
use podward_e2e::{Scene, Test, raw_patch};
use podward_support::FinishStyle;
use serde_json::json;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("strict_denies_half_an_announcement", strict_denies_half_an_announcement),
        Test::simulated("strict_denies_a_stranger", strict_denies_a_stranger),
        Test::simulated("strict_lets_operators_work", strict_lets_operators_work),
    ]
}

async fn strict_denies_half_an_announcement(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    for stage in [Stage::Operating, Stage::OperationType] {
        let half = json!({"metadata": {"labels": {stage.key("a"): "1"}}});
        let answer = raw_patch(&scene.client(), scene.namespace(), "web", &half).await?;
        let is_denied = !answer.status.is_success() && answer.message().contains("announced in half");
        ensure!(is_denied, "{stage} alone: {answer:?}");
    }
    Ok(())
}

async fn strict_denies_a_stranger(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    for key in [Stage::PreChecked.key("a"), Stage::Operate.key("a"), keys::permission_key("update")] {
        let forged = json!({"metadata": {"labels": {&key: "1"}}});
        let answer = raw_patch(&scene.client(), scene.namespace(), "web", &forged).await?;
        ensure!(!answer.status.is_success(), "a stranger wrote {key}: {answer:?}");
        ensure!(answer.message().contains("only Podward writes"), "{answer:?}");
    }
    let stolen = json!({"metadata": {"labels": {keys::SERVICE_AVAILABLE: null}}});
    let answer = raw_patch(&scene.client(), scene.namespace(), "web", &stolen).await?;
    ensure!(!answer.status.is_success(), "a stranger removed service-available: {answer:?}");
    Ok(())
}

/// Clients that behave see no difference.
async fn strict_lets_operators_work(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    scene.in_service(["one", "both", "undo"]).await?;
    let operator = scene.operator("a", "update");
    operator.update("one", &scene.images().v2).await?;
    operator.clone().finishing(FinishStyle::Both).update("both", &scene.images().v2).await?;
    operator.begin("undo").await?;
    operator.await_operate("undo").await?;
    operator.undo("undo").await?;
    operator.await_end("undo").await
}
