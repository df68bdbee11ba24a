//! Results that rules reject, with a rollback that their operators see.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_core::keys::{POST_CHECK_REJECTION, Stage};
use podward_e2e::{Fixture, Test};
use podward_support::{Operator, pods};
use serde_json::{Value, json};

use super::{
    objects::{put, rule, rules_of, serving, until_held, wants},
    server::{RuleWebhook, approved, rejected},
};
use crate::{
    hooks::reports::{until_event, until_over},
    lifecycle_api::WatchStream,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rule_label_check_refuses_a_result", label_check_refuses_a_result),
        Test::node("rule_webhook_refuses_a_result", webhook_refuses_a_result),
        Test::node("rule_that_refuses_results_is_checked", rule_that_refuses_results_is_checked),
    ]
}

/// A rule object whose rejections of results are reported to operators.
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

async fn until_refused(fixture: &Fixture, operator: &Operator, by: &str, why: &str) -> Result<()> {
    let pod = operator.await_stage("web", Stage::Rollback).await?;
    ensure!(!pods::is_available(&pod), "in service all the same: {}", pods::describe(&pod));
    until_held(fixture, operator, "web", &["its result is refused by", by, why]).await?;
    until_event(fixture, "web", "ResultRefused", &[operator.id(), by, why]).await
}

/// The operator begins again and fixes the problem.
async fn label_check_refuses_a_result(fixture: Arc<Fixture>) -> Result<()> {
    serving(&fixture, &["web".to_owned()], json!({})).await?;
    put(&rules_of(&fixture), telling(json!([after_work(wants("good", "good"))]))).await?;
    let operator = fixture.operator("release", "update");
    let mut watched = WatchStream::start(&fixture, "web").await?;
    work(&operator).await?;
    until_refused(&fixture, &operator, "rule web/good", "labels not match").await?;
    let is_told = |state: &podward_proto::v1::OperationState| {
        state.refused.iter().any(|refused| refused.by == "rule web/good")
    };
    watched.until("release", "it tells who refuses", |state| state.is_some_and(is_told)).await?;
    operator.begin("web").await?;
    let pod = operator.await_operate("web").await?;
    ensure!(!operator.has(&pod, Stage::Rollback), "the label is still there: {}", pods::describe(&pod));
    fixture.label("web", &[("good", Some("yes"))]).await?;
    operator.finish("web").await?;
    until_over(&fixture, &operator).await
}

/// A webhook that cannot be reached has rejected nothing and has not changed its verdict.
async fn webhook_refuses_a_result(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.shut_down().await?;
    serving(&fixture, &["web".to_owned()], json!({})).await?;
    put(&rules_of(&fixture), telling(json!([after_work(webhook.rule("result", "Fail"))]))).await?;
    let operator = fixture.operator("release", "update");
    work(&operator).await?;
    let pod =
        until_held(&fixture, &operator, "web", &["rule web/result", "Fail to do webhook request"]).await?;
    ensure!(!operator.has(&pod, Stage::Rollback), "nothing has refused: {}", pods::describe(&pod));
    webhook.answer(|_| rejected("errors in the log"));
    webhook.come_back().await?;
    until_refused(&fixture, &operator, "rule web/result", "errors in the log").await?;
    webhook.shut_down().await?;
    let pod = until_held(&fixture, &operator, "web", &["Fail to do webhook request"]).await?;
    ensure!(operator.has(&pod, Stage::Rollback), "it was taken back: {}", pods::describe(&pod));
    webhook.answer(|_| approved());
    webhook.come_back().await?;
    until_over(&fixture, &operator).await
}

/// Contradictory settings are rejected, with the field.
async fn rule_that_refuses_results_is_checked(fixture: Arc<Fixture>) -> Result<()> {
    let rules = rules_of(&fixture);
    let mut unknown = telling(json!([after_work(wants("good", "good"))]));
    unknown["metadata"]["annotations"][POST_CHECK_REJECTION] = "Sometimes".into();
    let webhook = RuleWebhook::start(&fixture).await?;
    let ignored = telling(json!([after_work(webhook.rule("result", "Ignore"))]));
    for (object, words) in [
        (unknown, "must be Hold (the default) or Rollback"),
        (ignored, "spec.rules[0].webhook.failurePolicy"),
    ] {
        let refused = put(&rules, object).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(refused.contains(words), "{words:?} is not in {refused:?}");
    }
    Ok(())
}
