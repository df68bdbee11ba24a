//! Operations that are begun again: what was answered to an earlier one counts for nothing.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_core::keys::Stage;
use podward_e2e::{Scene, Test};
use serde_json::json;

use super::{
    made::{finish_all, put, rule, rules_of, serving, until_refused, wants},
    server::{Reply, Webhook, approved, rejected},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rules_are_asked_anew_for_the_same_id", asked_anew),
        Test::node("rules_answer_to_a_cancelled_operation", answer_to_a_cancelled_operation),
    ]
}

fn one() -> [String; 1] {
    ["web".to_owned()]
}

/// Approved, finished, begun again with the same id and type: both rules are asked anew, and refuse; and so on.
async fn asked_anew(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    serving(&scene, &one(), json!({"backup": "yes"})).await?;
    let rules = json!([webhook.rule("asked", "Fail"), wants("backed-up", "backup")]);
    put(&rules_of(&scene), rule("web", rules)).await?;
    let operator = scene.operator("updater", "update");
    for _ in 0..3 {
        webhook.answer(|_| approved());
        scene.label("web", &[("backup", Some("yes"))]).await?;
        let before = webhook.log().len();
        operator.begin("web").await?;
        finish_all(&scene, &operator, &one()).await?;
        let asked = webhook.log().len() - before;
        ensure!(asked >= 1, "an operation went through that nobody has asked about");
        webhook.answer(|_| rejected("not another time"));
        scene.label("web", &[("backup", None)]).await?;
        operator.begin("web").await?;
        until_refused(&scene, &operator, "web", &["not another time", "rule web/backed-up"]).await?;
        operator.undo("web").await?;
        operator.await_end("web").await?;
    }
    Ok(())
}

/// It is cancelled while the webhook makes up its mind, and begun again: the answer to the first comes then, and approves; the second is
/// refused.
async fn answer_to_a_cancelled_operation(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    webhook.answer(|_| Reply::Silent);
    serving(&scene, &one(), json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([webhook.rule("asked", "Fail")]))).await?;
    let operator = scene.operator("updater", "update");
    operator.begin("web").await?;
    let log = webhook.until("it is asked about the first operation", |log| !log.is_empty()).await?;
    let first = log.first().map(|asked| asked.body["traceId"].clone()).context("it was not asked")?;
    operator.undo("web").await?;
    operator.await_end("web").await?;
    operator.begin("web").await?;
    let asks = |pod: &_| operator.has(pod, Stage::PreCheck);
    scene.feed().until("web", "it asks again", asks).await?;
    webhook.answer(
        move |asked| {
            if asked.body["traceId"] == first { approved() } else { rejected("second thoughts") }
        },
    );
    until_refused(&scene, &operator, "web", &["second thoughts"]).await?;
    webhook.answer(|_| approved());
    finish_all(&scene, &operator, &one()).await
}
