//! What metrics and people are told of calls.

use serde_json::{Value, json};

use super::super::Verdict;
use super::super::client::{CALL, Endpoint};
use super::super::metrics::Outcome;
use super::scene::{Scene, id, rule};
use super::server::{Server, json as answer, text};
use super::subjects;

/// Asks a server that answers `body` with `status`, until it isn't just being asked any more.
async fn asked(status: u16, body: &'static str, change: Value) -> Scene {
    let server = Server::start(true, move |_, _| async move { text(status, body) }).await;
    let scene = Scene::new();
    let is_told =
        |verdict: &Verdict| !matches!(verdict, Verdict::Waiting(why) if why.ends_with("it is being asked"));
    scene.until(&rule(&server, change), &subjects(&["a"]), |found| is_told(&found.verdicts[0])).await;
    scene
}

#[tokio::test]
async fn every_call_is_counted_by_what_became_of_it() {
    for (status, body, outcome) in [
        (200, r#"{"success": true}"#, Outcome::Passed),
        (200, r#"{"success": false, "message": "not today"}"#, Outcome::Rejected),
        (200, r#"{"success": true, "poll": true, "taskId": "t"}"#, Outcome::Polling),
        (200, r#"{"success": true, "poll": true}"#, Outcome::Failed),
        (200, "<html>", Outcome::Failed),
        (500, "out of order", Outcome::Failed),
    ] {
        let scene = asked(status, body, json!({})).await;
        assert_eq!(scene.metrics.so_far(&id("outside"), outcome), 1, "{body}");
        assert_eq!(!scene.failing.lock().is_empty(), outcome == Outcome::Failed, "{body}");
    }
    let scene = asked(200, "{}", json!({"clientConfig": {"caBundle": ""}})).await;
    assert_eq!(scene.metrics.so_far(&id("outside"), Outcome::Unreachable), 1, "nobody who is believed");
}

#[tokio::test]
async fn a_failure_is_told_once_though_it_goes_on() {
    let server = Server::start(true, |before, _| async move {
        if before < 2 { text(500, "out of order") } else { answer(json!({"success": true})) }
    })
    .await;
    let scene = Scene::new();
    scene.passed(&rule(&server, json!({})), &subjects(&["a"])).await;
    assert_eq!(scene.metrics.so_far(&id("outside"), Outcome::Failed), 2);
    let told = scene.failing.lock().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].0.contains("out of order") && !told[0].1, "{told:?}");
    let ignoring = asked(500, "", json!({"failurePolicy": "Ignore"})).await;
    assert!(ignoring.failing.lock()[0].1, "pods pass all the same");
}

#[tokio::test]
async fn nothing_is_left_of_a_rule_that_is_gone() {
    let scene = asked(200, r#"{"success": true}"#, json!({})).await;
    assert_eq!(scene.metrics.so_far(&id("outside"), Outcome::Passed), 1);
    scene.webhooks.keep("shop", "rules", |_| false);
    scene.webhooks.stopped().await;
    assert_eq!(scene.metrics.so_far(&id("outside"), Outcome::Passed), 0);
}

#[tokio::test]
async fn the_webhooks_own_spans_can_be_parts_of_ours() {
    let server = Server::start(false, |_, _| async { answer(json!({})) }).await;
    let endpoint = Endpoint::new(&format!("http://{}/x", server.address), "", CALL).unwrap();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    endpoint.post(b"{}".to_vec(), Some(parent.to_owned())).await.unwrap();
    assert_eq!(server.asked()[0].traceparent.as_deref(), Some(parent));
}
