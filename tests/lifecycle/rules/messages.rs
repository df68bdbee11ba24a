//! Rules that require labels, pods that rules do not apply to, and the messages of waiting pods.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_proto::v1::Phase;
use serde_json::{Value, json};

use super::objects::{
    finish_all, patch, put, rule, rules_of, serving, told, until_held, until_refused, until_status, wants,
};
use crate::hooks::{script::HookReply, server::HookServer};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rules_label_check_says_who_and_why", label_check_names_rule_and_reason),
        Test::node("rules_after_the_operation", after_the_operation),
        Test::node("rules_pass_by_pods_that_they_are_not_for", pass_by_pods),
        Test::node("rules_and_hooks_are_asked_side_by_side", beside_hooks),
    ]
}

fn one(name: &str) -> [String; 1] {
    [name.to_owned()]
}

async fn label_check_names_rule_and_reason(fixture: Arc<Fixture>) -> Result<()> {
    serving(&fixture, &one("web"), json!({})).await?;
    put(&rules_of(&fixture), rule("gate", json!([wants("backed-up", "backup")]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    let reason = format!("pod {}/web labels not match", fixture.namespace());
    until_refused(&fixture, &operator, "web", &["rule gate/backed-up", &reason, "backup"]).await?;
    until_status(&fixture, "gate", "it says who waits", |status| status.waiting_count == Some(1)).await?;

    let shown = fixture.kubectl(&["get", "ptr", "gate", "--output=yaml"]).await?.succeeded()?;
    let shown: Value = serde_saphyr::from_str(&shown.said).context("understand what kubectl has shown")?;
    let status = &shown["status"];
    ensure!(status["targets"] == json!(["web"]) && status["observedGeneration"] == 1, "{status}");
    let detail = &status["details"][0];
    ensure!(
        detail["name"] == "web" && detail["stage"] == "PreCheck" && detail["passed"] == false,
        "{status}"
    );
    let refusal = &detail["rejectInfo"][0];
    let why = refusal["reason"].as_str().unwrap_or_default();
    ensure!(refusal["ruleName"] == "backed-up" && why.contains(&reason), "{status}");
    let table = fixture.kubectl(&["get", "ptr", "gate", "--no-headers"]).await?.succeeded()?;
    let columns: Vec<&str> = table.said.split_whitespace().take(3).collect();
    ensure!(columns == ["gate", "1", "1"], "kubectl has shown {:?}", table.said);

    let event = fixture.until_event("web", "RuleRefuses").await?;
    let tells = ["rule backed-up", "/gate", &reason].iter().all(|word| event.contains(word));
    ensure!(tells, "the event says {event:?}");
    let why = fixture.plugin(&["why", "web", "--output=json"]).await?.succeeded()?;
    let why: Value = serde_json::from_str(&why.said).context("understand the plugin")?;
    let wait = &why["waits"][0];
    ensure!(wait["operation"] == "updater" && wait["stage"] == "PreCheck", "it says {why}");
    ensure!(wait["who"] == "rule gate/backed-up", "it says {why}");
    ensure!(wait["why"].as_str().is_some_and(|why| why.contains(&reason)), "it says {why}");

    fixture.label("web", &[("backup", Some("no"))]).await?;
    until_refused(&fixture, &operator, "web", &["rule gate/backed-up"]).await?;
    fixture.label("web", &[("backup", Some("yes"))]).await?;
    let passed = operator.await_operate("web").await?;
    let said = detail_of(&passed, "gate")?;
    ensure!(said == json!({"stage": "PreCheck", "passed": true}), "the pod's annotation says {said}");
    until_status(&fixture, "gate", "nobody waits", |status| status.waiting_count == Some(0)).await?;
    finish_all(&fixture, &operator, &one("web")).await
}

/// Returns the entry of a rule object in a pod's annotation.
fn detail_of(pod: &Pod, rule: &str) -> Result<Value> {
    let text = pod.annotations().get(&format!("{}{rule}", keys::RULE_DETAIL_PREFIX));
    serde_json::from_str(text.context("the pod has no annotation of the rule")?).context("understand it")
}

/// A result is not accepted, and the pod stays out of service, until the rule approves.
async fn after_the_operation(fixture: Arc<Fixture>) -> Result<()> {
    serving(&fixture, &one("web"), json!({})).await?;
    let mut result = wants("good", "tested");
    result["stage"] = "PostCheck".into();
    put(&rules_of(&fixture), rule("result", json!([result]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    until_held(&fixture, &operator, "web", &["rule result/good", "tested"]).await?;
    let is_told = |detail: &podward_core::rules::RuleDetail| {
        let by = detail.reject_info.iter().map(|refusal| refusal.rule_name.as_str());
        detail.name == "web" && detail.stage == "PostCheck" && !detail.passed && by.eq(["good"])
    };
    until_status(&fixture, "result", "it says who waits", |status| status.details.iter().any(is_told))
        .await?;
    fixture.label("web", &[("tested", Some("yes"))]).await?;
    operator.await_end("web").await
}

/// Pods are allowed if a filter does not match them, their annotation names the rule, or they do not have the stage.
/// If a rule is disabled, all pods are.
async fn pass_by_pods(fixture: Arc<Fixture>) -> Result<()> {
    let mut never = wants("never", "never");
    never["filter"] = json!({"labelSelector": {"matchLabels": {"tier": "front"}}});
    let mut disabled = wants("disabled", "never");
    disabled["disabled"] = true.into();
    let mut conditional = wants("conditional", "never");
    conditional["conditions"] = json!(["Whenever"]);
    let mut elsewhere = wants("elsewhere", "never");
    elsewhere["stage"] = "PreTrafficOff".into();
    put(&rules_of(&fixture), rule("web", json!([never, disabled, conditional, elsewhere]))).await?;
    serving(&fixture, &one("bound"), json!({"tier": "front"})).await?;
    serving(&fixture, &one("back"), json!({"tier": "back"})).await?;
    serving(&fixture, &one("skipping"), json!({"tier": "front"})).await?;
    let skip = json!({keys::SKIP_RULES: json!({"skipRules": ["never"]}).to_string()});
    fixture.patch("skipping", json!({"metadata": {"annotations": skip}})).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("bound").await?;
    let refused = until_refused(&fixture, &operator, "bound", &["rule web/never"]).await?;
    for passed in ["disabled", "conditional", "elsewhere"] {
        ensure!(!told(&refused).contains(passed), "{}", told(&refused));
    }
    let others = ["back", "skipping"].map(str::to_owned);
    for name in &others {
        operator.begin(name).await?;
    }
    finish_all(&fixture, &operator, &others).await?;
    until_refused(&fixture, &operator, "bound", &["rule web/never"]).await?;
    let mut never = wants("never", "never");
    never["disabled"] = true.into();
    patch(&fixture, "web", json!({"spec": {"rules": [never]}})).await?;
    finish_all(&fixture, &operator, &one("bound")).await
}

/// All rejections are reported, and all rules have to approve.
async fn beside_hooks(fixture: Arc<Fixture>) -> Result<()> {
    let hook = HookServer::start(&fixture, "beside-rules").await?;
    hook.put_reachable(json!({"phases": ["PreCheck"]})).await?;
    hook.answer(Phase::PreCheck, HookReply::Rejected("not today"));
    serving(&fixture, &one("web"), json!({})).await?;
    let rules = rules_of(&fixture);
    put(&rules, rule("first", json!([wants("backed-up", "backup"), wants("idle", "idle")]))).await?;
    put(&rules, rule("second", json!([wants("approved", "approval")]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("web").await?;
    let all = ["rule first/backed-up", "rule first/idle", "rule second/approved", "not today"];
    until_refused(&fixture, &operator, "web", &all).await?;
    fixture
        .label("web", &[("backup", Some("yes")), ("idle", Some("yes")), ("approval", Some("yes"))])
        .await?;
    let hook_alone = |pod: &Pod| told(pod).contains("not today") && !told(pod).contains("rule ");
    fixture.feed().until("web", "only the hook refuses", hook_alone).await?;
    until_refused(&fixture, &operator, "web", &["not today"]).await?;
    fixture.label("web", &[("idle", None)]).await?;
    until_refused(&fixture, &operator, "web", &["not today", "rule first/idle"]).await?;
    hook.answer(Phase::PreCheck, HookReply::Done);
    let rule_alone = |pod: &Pod| told(pod).contains("rule first/idle") && !told(pod).contains("not today");
    fixture.feed().until("web", "only the rule refuses", rule_alone).await?;
    until_refused(&fixture, &operator, "web", &["rule first/idle"]).await?;
    fixture.label("web", &[("idle", Some("yes"))]).await?;
    finish_all(&fixture, &operator, &one("web")).await
}
