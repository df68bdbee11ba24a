//! Rule objects whose status can't be written.

use serde_json::{Value, json};

use super::api_server::ApiServer;
use super::leader::Leader;
use super::outside_pods::{outside, store, unrelated_pod};
use super::{budget, is_out};

/// Creates the rule object `name` with a budget of 1 for the pods with the label of this name.
fn rule(server: &ApiServer, name: &str) {
    rule_for(server, name, 1);
}

fn rule_for(server: &ApiServer, name: &str, budget: u32) {
    let rules = json!([{"name": "budget", "availablePolicy": {"maxUnavailableValue": budget}}]);
    server.rule(name, json!({"selector": {"matchLabels": {name: "yes"}}, "rules": rules}));
}

#[tokio::test]
async fn a_status_that_cannot_be_written_holds_back_its_own_pods_only() {
    let server = ApiServer::new();
    server.pods(3, 3);
    [("web-0", "a"), ("web-1", "b"), ("web-2", "b")]
        .iter()
        .for_each(|(pod, set)| server.label(pod, set, "yes"));
    ["a", "b"].iter().for_each(|name| rule(&server, name));
    server.deny_status(Some("a"));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    let why = "waits until budgets can be kept: could not write the status of PodTransitionRule a";
    leader.until("the reason is reported", |leader| leader.reconcile("web-0").contains(why)).await;
    for pod in ["web-1", "web-2"] {
        server.begin(pod);
        leader.until("a pod of the other rule goes", |leader| is_out(&leader.server, pod)).await;
        assert!(!is_out(&server, "web-0"));
        server.finish(pod);
    }
    server.deny_status(None);
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// The first pod waits for both rule objects, and gets room in the one that can be written.
#[tokio::test]
async fn a_pod_that_waits_for_such_a_status_keeps_no_room_in_other_budgets() {
    let server = ApiServer::new();
    server.pods(2, 2);
    [("web-0", "a"), ("web-0", "b"), ("web-1", "b")]
        .iter()
        .for_each(|(pod, set)| server.label(pod, set, "yes"));
    ["a", "b"].iter().for_each(|name| rule(&server, name));
    server.deny_status(Some("a"));
    let mut leader = Leader::start(&server, "one");
    ["web-0", "web-1"].iter().for_each(|pod| server.begin(pod));
    leader.until("the other pod goes", |leader| is_out(&leader.server, "web-1")).await;
    assert!(!is_out(&server, "web-0"));
    server.finish("web-1");
    server.deny_status(None);
    leader.until("the first pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// A retry writes the status that failed before any other.
#[tokio::test]
async fn a_retry_of_such_a_status_takes_no_room_in_other_budgets() {
    let server = ApiServer::new();
    server.pods(2, 2);
    [("web-0", "a"), ("web-1", "a"), ("web-1", "b")]
        .iter()
        .for_each(|(pod, set)| server.label(pod, set, "yes"));
    [("a", 2), ("b", 1)].iter().for_each(|(name, budget)| rule_for(&server, name, *budget));
    server.deny_status(Some("a"));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the status is denied", |leader| leader.server.denials() > 0).await;
    let before = server.denials();
    server.begin("web-1");
    leader.until("it is denied again", |leader| leader.server.denials() > before + 1).await;
    let gave_room = |status: &Value| status["grants"].as_array().is_some_and(|grants| !grants.is_empty());
    assert!(!server.status_writes().iter().any(gave_room), "{:?}", server.status_writes());
    server.deny_status(None);
    leader.until("the second pod goes", |leader| is_out(&leader.server, "web-1")).await;
    leader.end().await;
}

/// Nothing would remove it from the list of those that are tried again.
#[tokio::test]
async fn the_status_of_a_deleted_rule_is_not_written_again() {
    let server = ApiServer::new();
    server.pods(2, 2);
    [("web-0", "a"), ("web-1", "b")].iter().for_each(|(pod, set)| server.label(pod, set, "yes"));
    ["a", "b"].iter().for_each(|name| rule(&server, name));
    server.delete_at_write("a");
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the pod goes without the rule", |leader| is_out(&leader.server, "web-0")).await;
    server.begin("web-1");
    leader.until("the pod of the other rule goes", |leader| is_out(&leader.server, "web-1")).await;
    let error = {
        let cache = leader.rules.context.cache.lock();
        cache.namespaces["shop"].unstored.error("a").map(ToOwned::to_owned)
    };
    assert_eq!(error, None);
    leader.end().await;
}

/// The status is written again, and denied again, in the decision for which pods were listed.
#[tokio::test]
async fn a_list_counts_for_the_decision_after_a_write_that_is_denied_again() {
    let server = ApiServer::new();
    server.pods(1, 2);
    store(&server, outside("old-1"));
    unrelated_pod(&server);
    server.rule("web", budget(json!(1)));
    rule(&server, "a");
    server.deny_status(Some("a"));
    server.hold_outside_lists(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("pods are listed", |leader| leader.server.outside_lists() > 0).await;
    leader.until("a status is denied twice", |leader| leader.server.denials() > 1).await;
    // The write for this pod is followed by a pause, in which the list ends and the denied status is due.
    server.begin("alone");
    leader.until("the other pod goes", |leader| is_out(&leader.server, "alone")).await;
    server.hold_outside_lists(false);
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    assert_eq!(server.outside_lists(), 1);
    leader.end().await;
}

/// The failed write may be long ago.
#[tokio::test]
async fn that_pods_cannot_be_listed_is_reported_rather_than_an_old_write() {
    let server = ApiServer::new();
    server.pods(1, 1);
    server.rule("web", budget(json!(1)));
    server.deny_status(Some("web"));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    let reports = |leader: &mut Leader, why: &str| leader.reconcile("web-0").contains(why);
    leader.until("the write is reported", |leader| reports(leader, "could not write the status")).await;
    server.fail_outside_lists(true);
    server.scale(2);
    leader.until("the list is reported", |leader| reports(leader, "could not list the pods")).await;
    leader.end().await;
}
