//! Operations that begin again: answers to an earlier operation have no effect.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::{
    objects::{finish_all, put, rule, rules_of, serving, until_refused, wants},
    server::{RuleWebhook, WebhookReply, approved, rejected},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rules_are_asked_anew_for_the_same_id", requested_again),
        Test::node("rules_answer_to_a_cancelled_operation", answer_to_a_cancelled_operation),
    ]
}

fn one() -> [String; 1] {
    ["web".to_owned()]
}

/// Approved, finished, begun again with the same id and type: both rules are checked again, and reject.
async fn requested_again(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    serving(&fixture, &one(), json!({"backup": "yes"})).await?;
    let rules = json!([webhook.rule("asked", "Fail"), wants("backed-up", "backup")]);
    put(&rules_of(&fixture), rule("web", rules)).await?;
    let operator = fixture.operator("updater", "update");
    for _ in 0..3 {
        webhook.answer(|_| approved());
        fixture.label("web", &[("backup", Some("yes"))]).await?;
        let before = webhook.log().len();
        operator.begin("web").await?;
        finish_all(&fixture, &operator, &one()).await?;
        let asked = webhook.log().len() - before;
        ensure!(asked >= 1, "an operation went through without a request to the webhook");
        webhook.answer(|_| rejected("not another time"));
        fixture.label("web", &[("backup", None)]).await?;
        operator.begin("web").await?;
        until_refused(&fixture, &operator, "web", &["not another time", "rule web/backed-up"]).await?;
        operator.undo("web").await?;
        operator.await_end("web").await?;
    }
    Ok(())
}

/// The operation is cancelled while the webhook is pending, and begins again. Then the answer to the first request
/// arrives and approves. The second request is rejected.
async fn answer_to_a_cancelled_operation(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.answer(|_| WebhookReply::Silent);
    serving(&fixture, &one(), json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.rule("asked", "Fail")]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    let log = webhook.until("it is asked about the first operation", |log| !log.is_empty()).await?;
    let first = log.first().map(|asked| asked.body["traceId"].clone()).context("it was not asked")?;
    operator.undo("web").await?;
    operator.await_end("web").await?;
    operator.begin("web").await?;
    let asks = |pod: &_| operator.has(pod, Stage::PreCheck);
    fixture.feed().until("web", "it asks again", asks).await?;
    webhook.answer(
        move |asked| {
            if asked.body["traceId"] == first { approved() } else { rejected("second thoughts") }
        },
    );
    until_refused(&fixture, &operator, "web", &["second thoughts"]).await?;
    webhook.answer(|_| approved());
    finish_all(&fixture, &operator, &one()).await
}
