//! What webhooks are asked, word for word, and what becomes of their answers.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use podward_e2e::{Scene, Test};
use serde_json::{Value, json};

use super::{
    made::{begin_all, finish_all, put, rule, rules_of, serving, until_held, until_refused, until_status},
    server::{Asked, Reply, Webhook, approved, rejected},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rule_webhook_is_asked_as_the_protocol_has_it", asked_as_the_protocol_has_it),
        Test::node("rule_webhook_refuses_then_approves", refuses_then_approves),
        Test::node("rule_webhook_approves_some", approves_some),
        Test::node("rule_webhook_is_asked_about_many_at_once", asked_about_many_at_once),
        Test::node("rule_webhook_judges_the_result", judges_the_result),
    ]
}

fn one(name: &str) -> [String; 1] {
    [name.to_owned()]
}

/// Whether it is a random UUID, as 36 characters.
fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let are_hex = text.chars().all(|c| c == '-' || (c.is_ascii_hexdigit() && !c.is_ascii_uppercase()));
    are_hex && parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
}

/// Every field of the request, with parameters of each kind; the stage is there when the rule has one.
async fn asked_as_the_protocol_has_it(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
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
    serving(&scene, &one("web"), json!({"tier": "front"})).await?;
    scene.patch("web", json!({"metadata": {"annotations": {"example.com/note": "a \"note\""}}})).await?;
    let pod = scene
        .feed()
        .until("web", "it has its note", |pod| pod.annotations().contains_key("example.com/note"));
    let pod = pod.await?;
    put(&rules_of(&scene), rule("web", json!([with_stage, plain]))).await?;
    let operator = scene.operator("updater", "update");
    operator.begin("web").await?;
    finish_all(&scene, &operator, &one("web")).await?;

    let log = webhook.log();
    let of = |path: &str| {
        let mut found = log.iter().filter(|asked| asked.path == path);
        let first = found.next().with_context(|| format!("{path} was not asked: {log:?}"))?;
        ensure!(found.next().is_none(), "{path} was asked more than once: {log:?}");
        Ok(first.clone())
    };
    let trace_of = |asked: &Asked| {
        let trace = asked.body["traceId"].as_str().unwrap_or_default().to_owned();
        ensure!(is_uuid(&trace), "{trace:?} is no UUID");
        Ok(trace)
    };
    let asked = of("/with/stage")?;
    let address =
        pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("a pod without an address")?;
    let first_trace = trace_of(&asked)?;
    let expected = Asked {
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
                    "namespace": scene.namespace(),
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

/// The reason is told, it is asked again, and counts then.
async fn refuses_then_approves(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    webhook.answer(|_| rejected("a backup is being made"));
    serving(&scene, &one("web"), json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([webhook.rule("backup", "Fail")]))).await?;
    let operator = scene.operator("updater", "update");
    operator.begin("web").await?;
    let name = format!("Webhook check {}/web/backup rejected", scene.namespace());
    until_refused(&scene, &operator, "web", &["rule web/backup", &name, "a backup is being made"]).await?;
    webhook.answer(|_| rejected("the backup is being checked"));
    until_refused(&scene, &operator, "web", &["the backup is being checked"]).await?;
    let is_told = |detail: &podward_core::rules::Detail| {
        let why = detail.reject_info.first().map(|refusal| refusal.reason.as_str()).unwrap_or_default();
        detail.name == "web" && why.contains("the backup is being checked")
    };
    until_status(&scene, "web", "it says why", |status| status.details.iter().any(is_told)).await?;
    webhook.answer(|_| approved());
    finish_all(&scene, &operator, &one("web")).await
}

/// `finishedNames` of an answer without success.
async fn approves_some(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    let some =
        || Reply::Json(json!({"success": false, "message": "not all", "finishedNames": ["a", "stranger"]}));
    webhook.answer(move |_| some());
    let pods = ["a", "b"].map(str::to_owned);
    serving(&scene, &pods, json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([webhook.rule("some", "Fail")]))).await?;
    let operator = scene.operator("updater", "update");
    begin_all(&operator, &pods).await?;
    finish_all(&scene, &operator, &pods[..1]).await?;
    until_refused(&scene, &operator, "b", &["rule web/some", "not all"]).await?;
    webhook.answer(|_| approved());
    finish_all(&scene, &operator, &pods[1..]).await?;
    let about_a = webhook.first_requests().iter().filter(|asked| asked.pods().contains(&"a")).count();
    ensure!(about_a == 1, "it was asked {about_a} times about a pod that it approved: {:?}", webhook.log());
    Ok(())
}

/// All that ask while it makes up its mind are in its next request, together.
async fn asked_about_many_at_once(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    webhook.answer(|_| Reply::Silent);
    let pods = ["a", "b", "c"].map(str::to_owned);
    serving(&scene, &pods, json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([webhook.rule("batch", "Fail")]))).await?;
    let operator = scene.operator("updater", "update");
    operator.begin("a").await?;
    webhook.until("it is asked about the first", |log| !log.is_empty()).await?;
    begin_all(&operator, &pods[1..]).await?;
    until_status(&scene, "web", "all wait", |status| status.waiting_count == Some(3)).await?;
    webhook.answer(|_| approved());
    finish_all(&scene, &operator, &pods).await?;
    let mut asked: Vec<Vec<String>> = Vec::new();
    for request in webhook.log() {
        let mut pods: Vec<String> = request.pods().into_iter().map(str::to_owned).collect();
        pods.sort_unstable();
        asked.push(pods);
    }
    // Another leader, as there may be one on a busy machine, asks about all of them once more.
    let together = |request: &Vec<String>| request.contains(&pods[1]) == request.contains(&pods[2]);
    ensure!(asked.first() == Some(&pods[..1].to_vec()), "it was asked about {asked:?}");
    ensure!(asked.len() > 1 && asked.iter().all(together), "it was asked about {asked:?}");
    Ok(())
}

/// `PostCheck`: asked when the operator is done, and not before; the pod stays out of service until it agrees.
async fn judges_the_result(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    webhook.answer(|_| rejected("errors in the log"));
    serving(&scene, &one("web"), json!({})).await?;
    let mut result = webhook.rule("result", "Fail");
    result["stage"] = "PostCheck".into();
    put(&rules_of(&scene), rule("web", json!([result]))).await?;
    let operator = scene.operator("updater", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    ensure!(webhook.log().is_empty(), "it was asked before the operator was done: {:?}", webhook.log());
    operator.finish("web").await?;
    until_held(&scene, &operator, "web", &["rule web/result", "errors in the log"]).await?;
    let asked = webhook.log();
    ensure!(asked.iter().all(|asked| asked.body["stage"] == "PostCheck"), "{asked:?}");
    webhook.answer(|_| approved());
    operator.await_end("web").await
}
