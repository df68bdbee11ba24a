//! Webhooks that fail, are down, are slow, or send invalid answers: the rule's policy rejects or allows, and other
//! pods are not affected.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::{try_join, try_join_all};
use podward_e2e::{Fixture, Test};
use podward_support::Operator;
use serde_json::json;

use super::{
    objects::{begin_all, finish_all, patch, put, rule, rule_for, rules_of, serving, until_refused},
    server::{RuleWebhook, WebhookReply, approved},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rule_webhook_that_fails_refuses", fails_and_refuses),
        Test::node("rule_webhook_that_fails_is_ignored", fails_and_is_ignored),
        Test::node("rule_webhook_that_is_slow", slow),
        Test::node("rule_webhook_of_another_authority", of_another_authority),
        Test::node("rule_webhook_polls_that_fail", polls_that_fail),
    ]
}

fn one(name: &str) -> [String; 1] {
    [name.to_owned()]
}

/// Errors, invalid answers, and no server: each is reported, and the first valid answer counts.
async fn fails_and_refuses(fixture: Arc<Fixture>) -> Result<()> {
    let half = WebhookReply::Json(json!({"success": "yes"}));
    let cases = [
        ("failing", Some(WebhookReply::Text(500, "no database")), "it answered 500 Internal Server Error"),
        ("garbled", Some(WebhookReply::Text(200, "<html>welcome</html>")), "not JSON"),
        ("half", Some(half), "success is not true or false"),
        ("away", None, "could not connect to"),
    ];
    try_join_all(cases.map(|(name, reply, words)| fails_and_refuses_one(&fixture, name, reply, words)))
        .await
        .map(drop)
}

/// A pod with a webhook of its own. Without a reply the webhook is down.
async fn fails_and_refuses_one(
    fixture: &Fixture,
    name: &str,
    reply: Option<WebhookReply>,
    words: &str,
) -> Result<()> {
    let webhook = RuleWebhook::start(fixture).await?;
    serving(fixture, &one(name), json!({"app": name})).await?;
    let selector = json!({"matchLabels": {"app": name}});
    put(&rules_of(fixture), rule_for(name, selector, json!([webhook.rule("strict", "Fail")]))).await?;
    let is_away = reply.is_none();
    match reply {
        Some(reply) => webhook.answer(move |_| reply.clone()),
        None => webhook.shut_down().await?,
    }
    let operator = fixture.operator("updater", "update");
    operator.begin(name).await?;
    let why = ["strict", "Fail to do webhook request", words];
    until_refused(fixture, &operator, name, &why).await?;
    webhook.answer(|_| approved());
    if is_away {
        webhook.come_back().await?;
    }
    finish_all(fixture, &operator, &one(name)).await
}

/// The same with `Ignore`, which is the default: all pods are allowed. A rejection is no failure.
async fn fails_and_is_ignored(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    serving(&fixture, &one("web"), json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.rule("lenient", "Ignore")]))).await?;
    let operator = fixture.operator("updater", "update");
    let replies = [
        WebhookReply::Text(500, "no database"),
        WebhookReply::Text(200, "<html>welcome</html>"),
        WebhookReply::Json(json!({"success": "yes"})),
        WebhookReply::Json(json!({"success": true, "poll": true})),
    ];
    for (number, reply) in replies.into_iter().enumerate() {
        webhook.answer(move |_| reply.clone());
        operator.begin("web").await?;
        finish_all(&fixture, &operator, &one("web")).await?;
        let asked = webhook.log().len();
        ensure!(asked == number + 1, "it was asked {asked} times in {} operations", number + 1);
    }
    webhook.answer(|_| super::server::rejected("on purpose"));
    operator.begin("web").await?;
    until_refused(&fixture, &operator, "web", &["on purpose"]).await?;
    webhook.shut_down().await?;
    finish_all(&fixture, &operator, &one("web")).await?;
    let mut silent_about_it = webhook.rule("lenient", "Ignore");
    silent_about_it["webhook"].as_object_mut().map(|webhook| webhook.remove("failurePolicy"));
    patch(&fixture, "web", json!({"spec": {"rules": [silent_about_it]}})).await?;
    operator.begin("web").await?;
    finish_all(&fixture, &operator, &one("web")).await
}

/// No answer for the maximum time of a request. Pods with a fast webhook do not wait for it.
async fn slow(fixture: Arc<Fixture>) -> Result<()> {
    let (webhook, quick) = (RuleWebhook::start(&fixture).await?, RuleWebhook::start(&fixture).await?);
    webhook.answer(|_| WebhookReply::Silent);
    let rules = rules_of(&fixture);
    for (name, policy, webhook) in
        [("strict", "Fail", &webhook), ("lenient", "Ignore", &webhook), ("quick", "Fail", &quick)]
    {
        serving(&fixture, &one(name), json!({"app": name})).await?;
        let selector = json!({"matchLabels": {"app": name}});
        put(&rules, rule_for(name, selector, json!([webhook.rule(name, policy)]))).await?;
    }
    let operator = fixture.operator("updater", "update");
    operator.begin("strict").await?;
    operator.begin("lenient").await?;
    webhook.until("it is asked by both rules", |log| log.len() >= 2).await?;
    operator.begin("quick").await?;
    finish_all(&fixture, &operator, &one("quick")).await?;
    for pod in ["strict", "lenient"] {
        until_refused(&fixture, &operator, pod, &[&format!("rule {pod}/{pod}")]).await?;
    }
    let refused = async {
        until_refused(
            &fixture,
            &operator,
            "strict",
            &["Fail to do webhook request", "gave no valid answer within 30s"],
        )
        .await
    };
    try_join(refused, finish_all(&fixture, &operator, &one("lenient"))).await?;
    webhook.answer(|_| approved());
    finish_all(&fixture, &operator, &one("strict")).await
}

/// A certificate of an authority that the rule does not name is not trusted, and no request is sent.
async fn of_another_authority(fixture: Arc<Fixture>) -> Result<()> {
    let (webhook, other) = (RuleWebhook::start(&fixture).await?, RuleWebhook::start(&fixture).await?);
    serving(&fixture, &one("web"), json!({})).await?;
    let right = webhook.rule("strict", "Fail");
    let mut wrong = right.clone();
    wrong["webhook"]["clientConfig"]["caBundle"] = other.ca_bundle().into();
    put(&rules_of(&fixture), rule("web", json!([wrong]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    let texts = ["rule web/strict", "Fail to do webhook request", "could not connect to"];
    until_refused(&fixture, &operator, "web", &texts).await?;
    // `Cg==` stands for the system's authorities, which do not include this one.
    let mut system = right.clone();
    system["webhook"]["clientConfig"]["caBundle"] = "Cg==".into();
    system["name"] = "system".into();
    patch(&fixture, "web", json!({"spec": {"rules": [system]}})).await?;
    let texts = ["rule web/system", "Fail to do webhook request", "could not connect to"];
    until_refused(&fixture, &operator, "web", &texts).await?;
    ensure!(webhook.log().is_empty(), "it was asked all the same: {:?}", webhook.log());
    patch(&fixture, "web", json!({"spec": {"rules": [right]}})).await?;
    finish_all(&fixture, &operator, &one("web")).await
}

/// Polls are repeated until the task is late, and their failures are reported. No new request is sent because of
/// them.
async fn polls_that_fail(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    serving(&fixture, &one("web"), json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.polling_rule("polled", "/tasks", "id")]))).await?;
    let begin = WebhookReply::Json(json!({"success": true, "poll": true, "taskId": "t"}));
    let poll_with = |reply: WebhookReply| {
        let begin = begin.clone();
        webhook.answer(move |asked| if asked.is_first() { begin.clone() } else { reply.clone() });
    };
    poll_with(WebhookReply::Text(500, "no database"));
    let operator: Operator = fixture.operator("updater", "update");
    begin_all(&operator, &one("web")).await?;
    until_refused(&fixture, &operator, "web", &["polling task t", "500"]).await?;
    poll_with(WebhookReply::Text(200, "nonsense"));
    until_refused(&fixture, &operator, "web", &["polling task t", "not JSON"]).await?;
    poll_with(WebhookReply::Json(json!({"success": true, "finished": true})));
    finish_all(&fixture, &operator, &one("web")).await?;
    let begun = webhook.first_requests().len();
    ensure!(begun == 1, "{begun} tasks were begun: {:?}", webhook.log());
    Ok(())
}
