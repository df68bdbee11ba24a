//! Podward with `--strict`: writes that otherwise cause a warning are denied.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_core::{keys, keys::Stage};
use podward_e2e::{Fixture, Test, raw_patch};
use podward_support::FinishStyle;
use serde_json::json;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("strict_denies_half_an_announcement", strict_denies_half_an_announcement),
        Test::simulated("strict_denies_an_untrusted_writer", strict_denies_an_untrusted_writer),
        Test::simulated("strict_lets_operators_work", strict_lets_operators_work),
    ]
}

async fn strict_denies_half_an_announcement(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    for stage in [Stage::Operating, Stage::OperationType] {
        let half = json!({"metadata": {"labels": {stage.key("a"): "1"}}});
        let answer = raw_patch(&fixture.client(), fixture.namespace(), "web", &half).await?;
        let is_denied = !answer.status.is_success() && answer.message().contains("incomplete");
        ensure!(is_denied, "{stage} alone: {answer:?}");
    }
    Ok(())
}

async fn strict_denies_an_untrusted_writer(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    for key in [Stage::PreChecked.key("a"), Stage::Operate.key("a"), keys::permission_key("update")] {
        let forged = json!({"metadata": {"labels": {&key: "1"}}});
        let answer = raw_patch(&fixture.client(), fixture.namespace(), "web", &forged).await?;
        ensure!(!answer.status.is_success(), "an untrusted writer wrote {key}: {answer:?}");
        ensure!(answer.message().contains("only Podward writes"), "{answer:?}");
    }
    let stolen = json!({"metadata": {"labels": {keys::SERVICE_AVAILABLE: null}}});
    let answer = raw_patch(&fixture.client(), fixture.namespace(), "web", &stolen).await?;
    ensure!(!answer.status.is_success(), "an untrusted writer removed service-available: {answer:?}");
    Ok(())
}

/// Clients that follow the protocol are not affected.
async fn strict_lets_operators_work(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["one", "both", "undo"]).await?;
    let operator = fixture.operator("a", "update");
    operator.update("one", &fixture.images().v2).await?;
    operator.clone().finishing(FinishStyle::Both).update("both", &fixture.images().v2).await?;
    operator.begin("undo").await?;
    operator.await_operate("undo").await?;
    operator.undo("undo").await?;
    operator.await_end("undo").await
}
