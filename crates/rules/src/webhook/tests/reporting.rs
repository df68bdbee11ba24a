//! The metrics and reports of calls.

use serde_json::{Value, json};

use super::super::WebhookVerdict;
use super::super::client::{CALL_TIMEOUT, WebhookEndpoint};
use super::super::outcome::RuleWebhookOutcome;
use super::fixture::{WebhookFixture, id, local_dialer, rule};
use super::waiting;
use super::webhook_server::{WebhookServer, json as answer, text};

/// Calls a server that answers `body` with `status`, and returns when it has answered.
async fn called(status: u16, body: &'static str, change: Value) -> WebhookFixture {
    let server = WebhookServer::start(true, move |_, _| async move { text(status, body) }).await;
    let fixture = WebhookFixture::new();
    let has_answered = |verdict: &WebhookVerdict| *verdict != WebhookVerdict::NotAnswered;
    fixture.until(&rule(&server, change), &waiting(&["a"]), |found| has_answered(&found.verdicts[0])).await;
    fixture
}

#[tokio::test]
async fn every_call_is_counted_by_outcome() {
    for (status, body, outcome) in [
        (200, r#"{"success": true}"#, RuleWebhookOutcome::Passed),
        (200, r#"{"success": false, "message": "not today"}"#, RuleWebhookOutcome::Rejected),
        (200, r#"{"success": true, "poll": true, "taskId": "t"}"#, RuleWebhookOutcome::Polling),
        (200, r#"{"success": true, "poll": true}"#, RuleWebhookOutcome::Failed),
        (200, "<html>", RuleWebhookOutcome::Failed),
        (500, "out of order", RuleWebhookOutcome::Failed),
    ] {
        let fixture = called(status, body, json!({})).await;
        assert_eq!(fixture.metrics.count(&id("outside"), outcome), 1, "{body}");
        assert_eq!(!fixture.failing.lock().is_empty(), outcome == RuleWebhookOutcome::Failed, "{body}");
    }
    let fixture = called(200, "{}", json!({"clientConfig": {"caBundle": ""}})).await;
    assert_eq!(
        fixture.metrics.count(&id("outside"), RuleWebhookOutcome::Unreachable),
        1,
        "its certificate is not trusted"
    );
}

#[tokio::test]
async fn a_failure_has_answered_once_though_it_goes_on() {
    let server = WebhookServer::start(true, |before, _| async move {
        if before < 2 { text(500, "out of order") } else { answer(json!({"success": true})) }
    })
    .await;
    let fixture = WebhookFixture::new();
    fixture.passed(&rule(&server, json!({})), &waiting(&["a"])).await;
    assert_eq!(fixture.metrics.count(&id("outside"), RuleWebhookOutcome::Failed), 2);
    let reports = fixture.failing.lock().clone();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].0.contains("it answered 500") && !reports[0].1, "{reports:?}");
    let ignoring = called(500, "", json!({"failurePolicy": "Ignore"})).await;
    assert!(ignoring.failing.lock()[0].1, "pods pass in spite of it");
}

#[tokio::test]
async fn a_removed_rule_leaves_no_series() {
    let fixture = called(200, r#"{"success": true}"#, json!({})).await;
    assert_eq!(fixture.metrics.count(&id("outside"), RuleWebhookOutcome::Passed), 1);
    fixture.webhooks.retain("shop", "rules", |_| false);
    fixture.webhooks.stopped().await;
    assert_eq!(fixture.metrics.count(&id("outside"), RuleWebhookOutcome::Passed), 0);
}

#[tokio::test]
async fn the_trace_context_is_sent_to_the_webhook() {
    let server = WebhookServer::start(false, |_, _| async { answer(json!({})) }).await;
    let endpoint =
        WebhookEndpoint::new(&format!("http://{}/x", server.address), "", CALL_TIMEOUT, &local_dialer())
            .unwrap();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    endpoint.post(b"{}".to_vec(), Some(parent.to_owned())).await.unwrap();
    assert_eq!(server.received()[0].traceparent.as_deref(), Some(parent));
}
