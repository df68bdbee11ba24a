//! Webhooks that answer later and are polled.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_api::pod_transition_rule::{PodTransitionRuleStatus, TaskInfo};
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use serde_json::{Value, json};

use super::{
    objects::{begin_all, finish_all, put, rule, rules_of, serving, until_refused, until_status},
    server::{RuleWebhook, WebhookReply, WebhookRequest},
};
use crate::controllers::{leader, next_leader};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rule_webhook_is_polled_until_all_are_finished", polled_until_finished),
        Test::node("rule_webhook_is_polled_by_its_trace_id", polled_by_trace_id),
        Test::node("rule_webhook_that_stops_is_asked_anew", stopped),
        Test::alone("rule_webhook_is_polled_on_by_the_next_leader", polled_on_by_the_next_leader),
    ]
}

/// Sets the names in answers to polls. First requests get a task that is named after their pods.
fn finished(names: &'static [&'static str]) -> impl Fn(&WebhookRequest) -> WebhookReply + Send + Sync {
    move |asked| match asked.is_first() {
        true => task(asked),
        false => WebhookReply::Json(json!({"success": true, "message": "at it", "finishedNames": names})),
    }
}

fn task(asked: &WebhookRequest) -> WebhookReply {
    let id = format!("task of {}", asked.pods().join("+"));
    WebhookReply::Json(json!({"success": true, "poll": true, "taskId": id, "message": "begun"}))
}

fn polls(log: &[WebhookRequest]) -> Vec<&WebhookRequest> {
    log.iter().filter(|asked| !asked.is_first()).collect()
}

fn tasks(status: &PodTransitionRuleStatus) -> Vec<&TaskInfo> {
    let of_rules = status.rule_states.iter().filter_map(|state| state.webhook_status.as_ref());
    of_rules.flat_map(|status| &status.task_states).collect()
}

/// The pods are allowed one by one. The task is recorded meanwhile, and in the history afterwards.
async fn polled_until_finished(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    // All pods must be in one task.
    webhook.answer(|_| WebhookReply::Silent);
    let pods = ["first", "a", "b", "c"].map(str::to_owned);
    serving(&fixture, &pods, json!({})).await?;
    let polling = webhook.polling_rule("polled", "/tasks?from=podward", "id");
    put(&rules_of(&fixture), rule("web", json!([polling]))).await?;
    let operator = fixture.operator("updater", "update");
    operator.begin("first").await?;
    webhook.until("it is asked about the first", |log| !log.is_empty()).await?;
    begin_all(&operator, &pods[1..]).await?;
    until_status(&fixture, "web", "all wait", |status| status.waiting_count == Some(4)).await?;
    webhook.answer(finished(&["first"]));
    finish_all(&fixture, &operator, &pods[..1]).await?;
    for pod in &pods[1..] {
        until_refused(&fixture, &operator, pod, &["rule web/polled", "polling task", "at it"]).await?;
    }
    let log = webhook.log();
    let of_all = log.iter().filter(|asked| asked.is_first() && asked.pods().len() == 3);
    ensure!(of_all.count() == 1 && webhook.first_requests().len() == 2, "{log:?}");
    for asked in polls(&log) {
        ensure!(asked.method == "GET" && asked.path == "/tasks" && asked.body == Value::Null, "{asked:?}");
        // In form encoding a space is a plus.
        let ids: Vec<String> = log
            .iter()
            .filter(|asked| asked.is_first())
            .map(|asked| format!("from=podward&id=task+of+{}", asked.pods().join("%2B")))
            .collect();
        ensure!(ids.contains(&asked.query), "{asked:?} is none of {ids:?}");
    }
    for (finished_by_now, pod) in [(&["a"][..], "a"), (&["a", "b"][..], "b")] {
        webhook.answer(finished(finished_by_now));
        finish_all(&fixture, &operator, &[pod.to_owned()]).await?;
        let is_recorded = |status: &PodTransitionRuleStatus| {
            tasks(status).iter().any(|task| {
                task.processing.iter().any(|name| name == "c") && task.approved.iter().any(|name| name == pod)
            })
        };
        until_status(&fixture, "web", &format!("{pod} is approved on record"), is_recorded).await?;
        until_refused(&fixture, &operator, "c", &["polling task"]).await?;
    }
    webhook.answer(|asked| match asked.is_first() {
        true => task(asked),
        false => WebhookReply::Json(json!({"success": true, "finished": true})),
    });
    finish_all(&fixture, &operator, &pods[3..]).await?;
    let is_over = |status: &PodTransitionRuleStatus| {
        let ended = status.rule_states.iter().filter_map(|state| state.webhook_status.as_ref());
        tasks(status).is_empty() && ended.map(|status| status.history.len()).sum::<usize>() == 2
    };
    until_status(&fixture, "web", "its tasks are history", is_over).await?;
    let begun = webhook.first_requests().len();
    ensure!(begun == 2, "{begun} tasks were begun: {:?}", webhook.log());
    Ok(())
}

/// `async` in place of `poll`, the trace's id in place of a task's, and the usual name of the query.
async fn polled_by_trace_id(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.answer(|asked| match asked.is_first() {
        true => WebhookReply::Json(json!({"success": true, "async": true, "traceId": asked.body["traceId"]})),
        false => WebhookReply::Json(json!({"success": true, "finished": true})),
    });
    let pods = ["web".to_owned()];
    serving(&fixture, &pods, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.polling_rule("polled", "/tasks", "")]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &pods).await?;
    finish_all(&fixture, &operator, &pods).await?;
    let log = webhook.log();
    let [first, poll] = &log[..] else { anyhow::bail!("not one request and one poll: {log:?}") };
    let trace = first.body["traceId"].as_str().context("a request without an id")?;
    ensure!(poll.method == "GET" && poll.query == format!("task-id={trace}"), "{log:?}");
    Ok(())
}

/// A task that stops: pods without approval are sent again, and get another task.
async fn stopped(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.answer(|asked| match asked.is_first() {
        true => task(asked),
        false => WebhookReply::Json(json!({"success": true, "stop": true, "message": "out of paper"})),
    });
    let pods = ["web".to_owned()];
    serving(&fixture, &pods, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.polling_rule("polled", "/tasks", "id")]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &pods).await?;
    let begun = |log: &[WebhookRequest]| log.iter().filter(|asked| asked.is_first()).count();
    webhook.until("it is asked anew", |log| begun(log) >= 2).await?;
    let pod = fixture.feed().get("web").context("the pod is gone")?;
    ensure!(!operator.has(&pod, Stage::PreChecked), "a task that stopped has let the pod through");
    webhook.answer(|asked| match asked.is_first() {
        true => task(asked),
        false => WebhookReply::Json(json!({"success": true, "finished": true})),
    });
    finish_all(&fixture, &operator, &pods).await
}

/// The next leader continues with the recorded task. No new request is sent.
async fn polled_on_by_the_next_leader(fixture: Arc<Fixture>) -> Result<()> {
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.answer(finished(&[]));
    let pods = ["a", "b"].map(str::to_owned);
    serving(&fixture, &pods, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([webhook.polling_rule("polled", "/tasks", "id")]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &pods).await?;
    let are_recorded = |status: &PodTransitionRuleStatus| {
        tasks(status).iter().map(|task| task.processing.len()).sum::<usize>() == pods.len()
    };
    let recorded = until_status(&fixture, "web", "its tasks are on record", are_recorded).await?;
    let ids: Vec<String> = tasks(&recorded).iter().map(|task| task.task_id.clone()).collect();
    webhook.until("it is polled", |log| !polls(log).is_empty()).await?;
    let begun = webhook.first_requests().len();
    let old = leader(&fixture).await?;
    old.kill().await?;
    let went_on = async {
        next_leader(&fixture, &old).await?;
        let before = polls(&webhook.log()).len();
        webhook.until("the next leader polls", |log| polls(log).len() >= before + 2 * ids.len()).await?;
        for pod in &pods {
            until_refused(&fixture, &operator, pod, &["rule web/polled", "polling task", "at it"]).await?;
        }
        webhook.answer(finished(&["a"]));
        finish_all(&fixture, &operator, &pods[..1]).await?;
        until_refused(&fixture, &operator, "b", &["polling task"]).await?;
        webhook.answer(finished(&["a", "b"]));
        finish_all(&fixture, &operator, &pods[1..]).await
    };
    let went_on = went_on.await;
    old.start().await?;
    went_on?;
    let log = webhook.log();
    ensure!(webhook.first_requests().len() == begun, "something was begun anew: {log:?}");
    let is_known = |asked: &&WebhookRequest| ids.iter().any(|id| asked.query == format!("id={}", form(id)));
    ensure!(polls(&log).iter().all(is_known), "an unknown task is polled: {log:?}");
    Ok(())
}

/// Returns `text` in form encoding.
fn form(text: &str) -> String {
    text.replace('+', "%2B").replace(' ', "+")
}
