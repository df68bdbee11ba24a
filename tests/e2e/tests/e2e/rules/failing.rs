//! Webhooks that fail, are away, are slow, or talk nonsense: they reject or pass by the rule's policy, and harm nobody else.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::{try_join, try_join_all};
use podward_e2e::{Scene, Test};
use podward_support::Operator;
use serde_json::json;

use super::{
    made::{begin_all, finish_all, patch, put, rule, rule_for, rules_of, serving, until_refused},
    server::{Reply, Webhook, approved},
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

/// Errors, nonsense, and nobody there: each is told, and the first answer that can be read counts.
async fn fails_and_refuses(scene: Arc<Scene>) -> Result<()> {
    let half = Reply::Json(json!({"success": "yes"}));
    let cases = [
        ("failing", Some(Reply::Text(500, "no database")), "500 Internal Server Error: \"no database\""),
        ("garbled", Some(Reply::Text(200, "<html>welcome</html>")), "not JSON"),
        ("half", Some(half), "success is not true or false"),
        ("away", None, "tcp connect error"),
    ];
    try_join_all(cases.map(|(name, reply, words)| fails_and_refuses_one(&scene, name, reply, words)))
        .await
        .map(drop)
}

/// One pod, with a webhook of its own, which is away if it has no reply.
async fn fails_and_refuses_one(scene: &Scene, name: &str, reply: Option<Reply>, words: &str) -> Result<()> {
    let webhook = Webhook::start(scene).await?;
    serving(scene, &one(name), json!({"app": name})).await?;
    let selector = json!({"matchLabels": {"app": name}});
    put(&rules_of(scene), rule_for(name, selector, json!([webhook.rule("strict", "Fail")]))).await?;
    let is_away = reply.is_none();
    match reply {
        Some(reply) => webhook.answer(move |_| reply.clone()),
        None => webhook.go_away().await?,
    }
    let operator = scene.operator("updater", "update");
    operator.begin(name).await?;
    let why = ["strict", "Fail to do webhook request", words];
    until_refused(scene, &operator, name, &why).await?;
    webhook.answer(|_| approved());
    if is_away {
        webhook.come_back().await?;
    }
    finish_all(scene, &operator, &one(name)).await
}

/// The same with `Ignore`, which is also what counts when the rule doesn't say: everybody passes. A refusal is none of that.
async fn fails_and_is_ignored(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    serving(&scene, &one("web"), json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([webhook.rule("lenient", "Ignore")]))).await?;
    let operator = scene.operator("updater", "update");
    let replies = [
        Reply::Text(500, "no database"),
        Reply::Text(200, "<html>welcome</html>"),
        Reply::Json(json!({"success": "yes"})),
        Reply::Json(json!({"success": true, "poll": true})),
    ];
    for (number, reply) in replies.into_iter().enumerate() {
        webhook.answer(move |_| reply.clone());
        operator.begin("web").await?;
        finish_all(&scene, &operator, &one("web")).await?;
        let asked = webhook.log().len();
        ensure!(asked == number + 1, "it was asked {asked} times in {} operations", number + 1);
    }
    webhook.answer(|_| super::server::rejected("on purpose"));
    operator.begin("web").await?;
    until_refused(&scene, &operator, "web", &["on purpose"]).await?;
    webhook.go_away().await?;
    finish_all(&scene, &operator, &one("web")).await?;
    let mut silent_about_it = webhook.rule("lenient", "Ignore");
    silent_about_it["webhook"].as_object_mut().map(|webhook| webhook.remove("failurePolicy"));
    patch(&scene, "web", json!({"spec": {"rules": [silent_about_it]}})).await?;
    operator.begin("web").await?;
    finish_all(&scene, &operator, &one("web")).await
}

/// No answer for as long as a call may take. Pods whose webhook is quick don't wait for it.
async fn slow(scene: Arc<Scene>) -> Result<()> {
    let (webhook, quick) = (Webhook::start(&scene).await?, Webhook::start(&scene).await?);
    webhook.answer(|_| Reply::Silent);
    let rules = rules_of(&scene);
    for (name, policy, webhook) in
        [("strict", "Fail", &webhook), ("lenient", "Ignore", &webhook), ("quick", "Fail", &quick)]
    {
        serving(&scene, &one(name), json!({"app": name})).await?;
        let selector = json!({"matchLabels": {"app": name}});
        put(&rules, rule_for(name, selector, json!([webhook.rule(name, policy)]))).await?;
    }
    let operator = scene.operator("updater", "update");
    operator.begin("strict").await?;
    operator.begin("lenient").await?;
    webhook.until("it is asked by both rules", |log| log.len() >= 2).await?;
    operator.begin("quick").await?;
    finish_all(&scene, &operator, &one("quick")).await?;
    for pod in ["strict", "lenient"] {
        until_refused(&scene, &operator, pod, &[&format!("rule {pod}/{pod}")]).await?;
    }
    let refused = async {
        until_refused(&scene, &operator, "strict", &["Fail to do webhook request", "no answer within"]).await
    };
    try_join(refused, finish_all(&scene, &operator, &one("lenient"))).await?;
    webhook.answer(|_| approved());
    finish_all(&scene, &operator, &one("strict")).await
}

/// A certificate of an authority that the rule doesn't name is not believed; nothing is sent to whoever shows it.
async fn of_another_authority(scene: Arc<Scene>) -> Result<()> {
    let (webhook, other) = (Webhook::start(&scene).await?, Webhook::start(&scene).await?);
    serving(&scene, &one("web"), json!({})).await?;
    let right = webhook.rule("strict", "Fail");
    let mut wrong = right.clone();
    wrong["webhook"]["clientConfig"]["caBundle"] = other.ca_bundle().into();
    put(&rules_of(&scene), rule("web", json!([wrong]))).await?;
    let operator = scene.operator("updater", "update");
    operator.begin("web").await?;
    let texts = ["rule web/strict", "Fail to do webhook request", "certificate"];
    until_refused(&scene, &operator, "web", &texts).await?;
    // `Cg==` stands for the system's authorities, which this one is none of.
    let mut system = right.clone();
    system["webhook"]["clientConfig"]["caBundle"] = "Cg==".into();
    system["name"] = "system".into();
    patch(&scene, "web", json!({"spec": {"rules": [system]}})).await?;
    let texts = ["rule web/system", "Fail to do webhook request", "certificate"];
    until_refused(&scene, &operator, "web", &texts).await?;
    ensure!(webhook.log().is_empty(), "it was asked all the same: {:?}", webhook.log());
    patch(&scene, "web", json!({"spec": {"rules": [right]}})).await?;
    finish_all(&scene, &operator, &one("web")).await
}

/// They are made again until the task is late, and say so meanwhile; nothing is begun anew because of them.
async fn polls_that_fail(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    serving(&scene, &one("web"), json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([webhook.polling_rule("polled", "/tasks", "id")]))).await?;
    let begin = Reply::Json(json!({"success": true, "poll": true, "taskId": "t"}));
    let poll_with = |reply: Reply| {
        let begin = begin.clone();
        webhook.answer(move |asked| if asked.is_first() { begin.clone() } else { reply.clone() });
    };
    poll_with(Reply::Text(500, "no database"));
    let operator: Operator = scene.operator("updater", "update");
    begin_all(&operator, &one("web")).await?;
    until_refused(&scene, &operator, "web", &["polling task t", "500"]).await?;
    poll_with(Reply::Text(200, "nonsense"));
    until_refused(&scene, &operator, "web", &["polling task t", "not JSON"]).await?;
    poll_with(Reply::Json(json!({"success": true, "finished": true})));
    finish_all(&scene, &operator, &one("web")).await?;
    let begun = webhook.first_requests().len();
    ensure!(begun == 1, "{begun} tasks were begun: {:?}", webhook.log());
    Ok(())
}
