//! The exact requests to webhooks, and the effects of their answers.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use podward_e2e::{Fixture, Test};
use serde_json::{Value, json};

use super::{
    objects::{begin_all, finish_all, put, rule, rules_of, serving, until_held, until_refused, until_status},
    server::{RuleWebhook, WebhookReply, WebhookRequest, approved, rejected},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rule_webhook_is_asked_as_the_protocol_has_it", requests_follow_the_protocol),
        Test::node("rule_webhook_refuses_then_approves", refuses_then_approves),
        Test::node("rule_webhook_approves_some", approves_some),
        Test::node("rule_webhook_is_asked_about_many_at_once", one_request_for_many_pods),
        Test::node("rule_webhook_judges_the_result", judges_the_result),
    ]
}

fn one(name: &str) -> [String; 1] {
    [name.to_owned()]
}

/// Returns whether `text` is a random UUID of 36 characters.
fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let are_hex = text.chars().all(|c| c == '-' || (c.is_ascii_hexdigit() && !c.is_ascii_uppercase()));
    are_hex && parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
}

/// All fields of the request, with parameters of each kind. The stage is present if the rule has one.
async fn requests_follow_the_protocol(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    let from = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let fields = [
        ("name", "metadata.name"),
        ("namespace", "metadata.namespace"),
        ("uid", "metadata.uid"),
        ("tier", "metadata.labels['tier']"),
        ("note", "metadata.annotations['example.com/note']"),
        ("address", "status.podIP"),
        ("grace", "spec.terminationGracePeriodSeconds"),
        ("nothing", "spec.activeDeadlineSeconds"),
    ];
    let mut parameters: Vec<Value> =
        fields.iter().map(|(key, path)| json!({"key": key, "valueFrom": from(path)})).collect();
    parameters.push(json!({"key": "fixed", "value": "as it is", "valueFrom": from("metadata.name")}));
    let mut with_stage = webhook.rule("with-stage", "Fail");
    with_stage["stage"] = "PreCheck".into();
    with_stage["webhook"]["parameters"] = parameters.into();
    with_stage["webhook"]["clientConfig"]["url"] = webhook.url("/with/stage?from=podward").into();
    let plain = webhook.rule("plain", "Fail");
    serving(&fixture, &one("web"), json!({"tier": "front"})).await?;
    fixture.patch("web", json!({"metadata": {"annotations": {"example.com/note": "a \"note\""}}})).await?;
    let pod = fixture
        .feed()
        .until("web", "it has its note", |pod| pod.annotations().contains_key("example.com/note"));
    let pod = pod.await?;
    put(&rules_of(&fixture), rule("web", json!([with_stage, plain]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    finish_all(&fixture, &operator, &one("web")).await?;

    let log = webhook.log();
    let of = |path: &str| {
        let mut found = log.iter().filter(|asked| asked.path == path);
        let first = found.next().with_context(|| format!("{path} was not asked: {log:?}"))?;
        ensure!(found.next().is_none(), "{path} was asked more than once: {log:?}");
        Ok(first.clone())
    };
    let trace_of = |asked: &WebhookRequest| {
        let trace = asked.body["traceId"].as_str().unwrap_or_default().to_owned();
        ensure!(is_uuid(&trace), "{trace:?} is no UUID");
        Ok(trace)
    };
    let asked = of("/with/stage")?;
    let address =
        pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("a pod without an address")?;
    let first_trace = trace_of(&asked)?;
    let expected = WebhookRequest {
        method: "POST".to_owned(),
        path: "/with/stage".to_owned(),
        query: "from=podward".to_owned(),
        content_type: "application/json".to_owned(),
        body: json!({
            "traceId": first_trace,
            "ruleName": "with-stage",
            "stage": "PreCheck",
            "resources": [{
                "apiVersion": "core/v1",
                "kind": "Pod",
                "name": "web",
                "parameters": {
                    "name": "web",
                    "namespace": fixture.namespace(),
                    "uid": pod.uid(),
                    "tier": "front",
                    "note": "a \"note\"",
                    "address": address,
                    "grace": "5",
                    "nothing": "",
                    "fixed": "as it is",
                },
            }],
        }),
    };
    ensure!(asked == expected, "asked {asked:?}, expected {expected:?}");
    let asked = of("/check")?;
    let trace = trace_of(&asked)?;
    ensure!(trace != first_trace, "both requests have the id {trace}");
    let expected = json!({
        "traceId": trace,
        "ruleName": "plain",
        "resources": [{"apiVersion": "core/v1", "kind": "Pod", "name": "web"}],
    });
    ensure!(asked.body == expected && asked.query.is_empty(), "asked {asked:?}, expected {expected}");
    Ok(())
}

/// The reason is reported, the webhook is called again, and its new answer counts.
async fn refuses_then_approves(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.answer(|_| rejected("a backup is being made"));
    serving(&fixture, &one("web"), json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.rule("backup", "Fail")]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    let name = format!("Webhook check {}/web/backup rejected", fixture.namespace());
    until_refused(&fixture, &operator, "web", &["rule web/backup", &name, "a backup is being made"]).await?;
    webhook.answer(|_| rejected("the backup is being checked"));
    until_refused(&fixture, &operator, "web", &["the backup is being checked"]).await?;
    let is_told = |detail: &podward_core::rules::RuleDetail| {
        let why = detail.reject_info.first().map(|refusal| refusal.reason.as_str()).unwrap_or_default();
        detail.name == "web" && why.contains("the backup is being checked")
    };
    until_status(&fixture, "web", "it says why", |status| status.details.iter().any(is_told)).await?;
    webhook.answer(|_| approved());
    finish_all(&fixture, &operator, &one("web")).await
}

/// `finishedNames` of an answer without success.
async fn approves_some(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    let some = || {
        WebhookReply::Json(
            json!({"success": false, "message": "not all", "finishedNames": ["a", "stranger"]}),
        )
    };
    webhook.answer(move |_| some());
    let pods = ["a", "b"].map(str::to_owned);
    serving(&fixture, &pods, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.rule("some", "Fail")]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &pods).await?;
    finish_all(&fixture, &operator, &pods[..1]).await?;
    until_refused(&fixture, &operator, "b", &["rule web/some", "not all"]).await?;
    webhook.answer(|_| approved());
    finish_all(&fixture, &operator, &pods[1..]).await?;
    let about_a = webhook.first_requests().iter().filter(|asked| asked.pods().contains(&"a")).count();
    ensure!(about_a == 1, "it was asked {about_a} times about a pod that it approved: {:?}", webhook.log());
    Ok(())
}

/// The next request contains all pods that began while the webhook was pending.
async fn one_request_for_many_pods(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.answer(|_| WebhookReply::Silent);
    let pods = ["a", "b", "c"].map(str::to_owned);
    serving(&fixture, &pods, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.rule("batch", "Fail")]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("a").await?;
    webhook.until("it is asked about the first", |log| !log.is_empty()).await?;
    begin_all(&operator, &pods[1..]).await?;
    until_status(&fixture, "web", "all wait", |status| status.waiting_count == Some(3)).await?;
    webhook.answer(|_| approved());
    finish_all(&fixture, &operator, &pods).await?;
    let mut asked: Vec<Vec<String>> = Vec::new();
    for request in webhook.log() {
        let mut pods: Vec<String> = request.pods().into_iter().map(str::to_owned).collect();
        pods.sort_unstable();
        asked.push(pods);
    }
    // Another leader, which a busy machine can cause, sends one request for all of them again.
    let together = |request: &Vec<String>| request.contains(&pods[1]) == request.contains(&pods[2]);
    ensure!(asked.first() == Some(&pods[..1].to_vec()), "it was asked about {asked:?}");
    ensure!(asked.len() > 1 && asked.iter().all(together), "it was asked about {asked:?}");
    Ok(())
}

/// `PostCheck`: requested when the operator has finished, and not before. The pod stays out of service until the
/// webhook approves.
async fn judges_the_result(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.answer(|_| rejected("errors in the log"));
    serving(&fixture, &one("web"), json!({})).await?;
    let mut result = webhook.rule("result", "Fail");
    result["stage"] = "PostCheck".into();
    put(&rules_of(&fixture), rule("web", json!([result]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    ensure!(webhook.log().is_empty(), "it was asked before the operator was done: {:?}", webhook.log());
    operator.finish("web").await?;
    until_held(&fixture, &operator, "web", &["rule web/result", "errors in the log"]).await?;
    let asked = webhook.log();
    ensure!(asked.iter().all(|asked| asked.body["stage"] == "PostCheck"), "{asked:?}");
    webhook.answer(|_| approved());
    operator.await_end("web").await
}
