//! What people see of a hook.

use serde_json::{Value, json};

use super::hook_server::{HookServer, done};
use super::{Fixture, HookArgs, hook, pod, question};

fn condition(status: &Value, type_: &str) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default()
}

fn has(status: &Value, type_: &str, wanted: &str) -> bool {
    condition(status, type_)["status"] == wanted
}

#[tokio::test]
async fn a_hook_is_connected_to_before_it_is_asked() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let web = pod("web");
    let fixture = Fixture::with(&[server.hook("lb", json!({}))], std::slice::from_ref(&web)).await;
    let status = fixture.api.status("lb", |status| has(status, "Reachable", "True")).await;
    assert!(
        has(&status, "Accepted", "True") && condition(&status, "Accepted")["reason"] == "Valid",
        "{status}"
    );
    assert_eq!((&status["observedGeneration"], &status["callsInFlight"]), (&json!(1), &json!(0)));
    assert_eq!(*server.calls.borrow(), 0);
    assert_eq!(fixture.api.status_writes("lb"), 1, "one write for all that");
}

#[tokio::test]
async fn the_status_reports_an_invalid_hook_until_it_is_fixed() {
    let fixture = Fixture::with(&[hook("lb", json!({"phases": [], "attachment": {}}))], &[pod("web")]).await;
    let status = fixture.api.status("lb", |status| has(status, "Accepted", "False")).await;
    let accepted = condition(&status, "Accepted");
    assert_eq!(accepted["reason"], "Invalid");
    assert!(accepted["message"].as_str().unwrap().contains("spec.phases"), "{accepted}");
    assert_eq!(condition(&status, "Reachable")["reason"], "NotAsked");
    let (responsible, known) = fixture.hook_calls.hooks_for(&pod("web")).unwrap();
    assert!(known.get("lb").is_some(), "its finalizers are not to be taken for nobody's");
    assert!(responsible.is_empty());

    fixture.api.put_hook(hook("lb", json!({"attachment": {}})));
    let status = fixture.api.status("lb", |status| has(status, "Accepted", "True")).await;
    assert_eq!(status["observedGeneration"], 2);
    let reachable = condition(&status, "Reachable");
    assert!(reachable["message"].as_str().unwrap().contains("no hook system is attached"), "{reachable}");
    let _attachment = fixture.hook_calls.attach("lb").unwrap();
    fixture
        .api
        .status("lb", |status| has(status, "Reachable", "True") && status["lastError"].is_null())
        .await;
}

#[tokio::test]
async fn another_leader_writes_nothing_that_stands_there() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let web = pod("web");
    let mut fixture = Fixture::with(&[server.hook("lb", json!({}))], std::slice::from_ref(&web)).await;
    fixture.ask_until_done(&web, &question("lb")).await;
    fixture
        .api
        .status("lb", |status| status["lastAnswerTime"].is_string() && status["callsInFlight"] == 0)
        .await;
    let api = fixture.stop().await;
    let writes = api.status_writes("lb");
    // A second hook's first write comes after everything that there was to write about the first.
    let next = Fixture::start(api, HookArgs::default(), std::slice::from_ref(&web));
    next.api.put_hook(hook("other", json!({"attachment": {}})));
    next.api.status("other", |status| has(status, "Reachable", "False")).await;
    assert_eq!(next.api.status_writes("lb"), writes);
}
