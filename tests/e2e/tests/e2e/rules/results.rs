//! Results that rules refuse, and whose operators are told so.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys::{POST_CHECK_REJECTION, REFUSED, Stage};
use podward_e2e::{Scene, Test};
use podward_support::{Operator, pods};
use serde_json::{Value, json};

use super::{
    made::{put, rule, rules_of, serving, until_held, wants},
    server::{Webhook, approved, rejected},
};
use crate::{hooks::told::until_event, lifecycle::Watched};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rule_label_check_refuses_a_result", label_check_refuses_a_result),
        Test::node("rule_webhook_refuses_a_result", webhook_refuses_a_result),
        Test::node("rule_that_refuses_results_is_checked", rule_that_refuses_results_is_checked),
    ]
}

/// A rule object whose refusals of results operators are told of.
fn telling(rules: Value) -> Value {
    let mut rule = rule("web", rules);
    rule["metadata"]["annotations"] = json!({POST_CHECK_REJECTION: "Rollback"});
    rule
}

fn after_work(mut rule: Value) -> Value {
    rule["stage"] = "PostCheck".into();
    rule
}

async fn work(operator: &Operator) -> Result<()> {
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    operator.finish("web").await.map(drop)
}

async fn until_refused(scene: &Scene, operator: &Operator, by: &str, why: &str) -> Result<()> {
    let pod = operator.await_stage("web", Stage::Rollback).await?;
    ensure!(!pods::is_available(&pod), "in service all the same: {}", pods::describe(&pod));
    until_held(scene, operator, "web", &["its result is refused by", by, why]).await?;
    until_event(scene, "web", "ResultRefused", &[operator.id(), by, why]).await
}

async fn until_over(scene: &Scene, operator: &Operator) -> Result<()> {
    operator.await_end("web").await?;
    let is_clean = |pod: &Pod| !pod.annotations().contains_key(REFUSED);
    scene.feed().until("web", "the record is gone", is_clean).await.map(drop)
}

/// The operator begins anew and puts right what was wrong.
async fn label_check_refuses_a_result(scene: Arc<Scene>) -> Result<()> {
    serving(&scene, &["web".to_owned()], json!({})).await?;
    put(&rules_of(&scene), telling(json!([after_work(wants("good", "good"))]))).await?;
    let operator = scene.operator("release", "update");
    let mut watched = Watched::start(&scene, "web").await?;
    work(&operator).await?;
    until_refused(&scene, &operator, "rule web/good", "labels not match").await?;
    let is_told = |state: &podward_proto::v1::OperationState| {
        state.refused.iter().any(|refused| refused.by == "rule web/good")
    };
    watched.until("release", "it tells who refuses", |state| state.is_some_and(is_told)).await?;
    operator.begin("web").await?;
    let pod = operator.await_operate("web").await?;
    ensure!(!operator.has(&pod, Stage::Rollback), "the label is still there: {}", pods::describe(&pod));
    scene.label("web", &[("good", Some("yes"))]).await?;
    operator.finish("web").await?;
    until_over(&scene, &operator).await
}

/// A webhook that can't be asked has refused nothing, and taken nothing back.
async fn webhook_refuses_a_result(scene: Arc<Scene>) -> Result<()> {
    let webhook = Webhook::start(&scene).await?;
    webhook.go_away().await?;
    serving(&scene, &["web".to_owned()], json!({})).await?;
    put(&rules_of(&scene), telling(json!([after_work(webhook.rule("result", "Fail"))]))).await?;
    let operator = scene.operator("release", "update");
    work(&operator).await?;
    let pod =
        until_held(&scene, &operator, "web", &["rule web/result", "Fail to do webhook request"]).await?;
    ensure!(!operator.has(&pod, Stage::Rollback), "nobody has refused: {}", pods::describe(&pod));
    webhook.answer(|_| rejected("errors in the log"));
    webhook.come_back().await?;
    until_refused(&scene, &operator, "rule web/result", "errors in the log").await?;
    webhook.go_away().await?;
    let pod = until_held(&scene, &operator, "web", &["Fail to do webhook request"]).await?;
    ensure!(operator.has(&pod, Stage::Rollback), "it was taken back: {}", pods::describe(&pod));
    webhook.answer(|_| approved());
    webhook.come_back().await?;
    until_over(&scene, &operator).await
}

/// What can't be meant isn't taken, and says where it is.
async fn rule_that_refuses_results_is_checked(scene: Arc<Scene>) -> Result<()> {
    let rules = rules_of(&scene);
    let mut unknown = telling(json!([after_work(wants("good", "good"))]));
    unknown["metadata"]["annotations"][POST_CHECK_REJECTION] = "Sometimes".into();
    let webhook = Webhook::start(&scene).await?;
    let ignored = telling(json!([after_work(webhook.rule("result", "Ignore"))]));
    for (object, words) in [
        (unknown, "is neither Hold (the same as none) nor Rollback"),
        (ignored, "spec.rules[0].webhook.failurePolicy"),
    ] {
        let refused = put(&rules, object).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(refused.contains(words), "{words:?} is not in {refused:?}");
    }
    Ok(())
}
