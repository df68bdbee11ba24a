//! Rules that have, or had, a webhook.

use futures::FutureExt;
use podward_core::keys::Stage;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::api_server::{ApiServer, Kind};
use super::leader::{Leader, pod};
use super::{budget, is_out};

/// Returns a rule set with one rule, whose `check` is `settings`.
fn with(check: &str, settings: Value) -> Value {
    json!({
        "selector": {"matchLabels": {"app": "web"}},
        "rules": [{"name": "outside", check: settings}],
    })
}

#[tokio::test]
async fn a_webhook_that_is_taken_from_a_rule_is_not_called_any_more() {
    let server = ApiServer::new();
    server.pods(1, 1);
    server.rule("web", with("webhook", json!({"clientConfig": {"url": "https://127.0.0.1:1"}})));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the webhook is called", |leader| leader.rules.context.webhooks.count() == 1).await;
    server.rule("web", with("labelCheck", json!({"requires": {"matchLabels": {"ready": "yes"}}})));
    leader.until("it is not called any more", |leader| leader.rules.context.webhooks.count() == 0).await;
    leader.end().await;
}

/// The controller has read the object after a conflict, before the watch delivers its last two versions.
#[tokio::test]
async fn an_old_version_of_a_rule_does_not_end_the_calls_of_a_newer_one() {
    let server = ApiServer::new();
    server.pods(1, 1);
    let check = json!({"requires": {"matchLabels": {"ready": "yes"}}});
    server.rule("web", with("labelCheck", check.clone()));
    let mut leader = Leader::start(&server, "one");
    leader.until("the rule is stored", |leader| !leader.server.status_writes().is_empty()).await;
    server.hold_watch(true);
    server.annotate_rule("web", "note", "an older version");
    server.rule("web", with("webhook", json!({"clientConfig": {"url": "https://127.0.0.1:1"}})));
    server.begin("web-0");
    leader.until("the webhook is called", |leader| leader.rules.context.webhooks.count() == 1).await;
    server.hold_watch(false);
    server.rules_followed().await;
    assert_eq!(leader.rules.context.webhooks.count(), 1);
    leader.end().await;
}

/// Creates a budget for the pods of the ReplicaSet, and a webhook for the pod `alone`, which has no owner.
fn budget_and_webhook(server: &ApiServer) {
    let mut alone = pod("alone");
    alone["metadata"]["labels"]["app"] = json!("other");
    alone["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    server.store(Kind::Pods, alone, None).unwrap();
    server.rule("budget", budget(json!(1)));
    let settings = json!({"clientConfig": {"url": "https://127.0.0.1:1"}, "failurePolicy": "Fail"});
    let mut webhook = with("webhook", settings);
    webhook["selector"] = json!({"matchLabels": {"app": "other"}});
    server.rule("webhook", webhook);
}

#[tokio::test]
async fn a_webhook_is_called_while_other_pods_cannot_be_listed() {
    let server = ApiServer::new();
    server.pods(1, 2);
    budget_and_webhook(&server);
    server.fail_outside_lists(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("pods are listed", |leader| leader.server.outside_lists() > 0).await;
    server.begin("alone");
    leader.until("the webhook is called", |leader| leader.rules.context.webhooks.count() == 1).await;
    // Its answer is published.
    let why = "Fail to do webhook request shop/webhook/outside";
    leader.until("its answer is reported", |leader| leader.reconcile("alone").contains(why)).await;
    assert!(!is_out(&server, "web-0"));
    let why =
        "waits until budgets can be kept: could not list the pods of ReplicaSet web that are not opted in";
    leader.until("the reason is reported", |leader| leader.reconcile("web-0").contains(why)).await;
    leader.end().await;
}

#[tokio::test]
async fn a_webhook_is_called_while_owners_cannot_be_read() {
    let server = ApiServer::new();
    server.pods(1, 1);
    budget_and_webhook(&server);
    server.fail_owner_reads(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    let why = "waits until budgets can be kept: could not read ReplicaSet web";
    leader.until("the reason is reported", |leader| leader.reconcile("web-0").contains(why)).await;
    server.begin("alone");
    leader.until("the webhook is called", |leader| leader.rules.context.webhooks.count() == 1).await;
    assert!(!is_out(&server, "web-0"));
    server.fail_owner_reads(false);
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// It has not refused. If the pod had to make its request again, another pod could get its room, and it would be
/// written for nothing.
#[tokio::test]
async fn a_pod_keeps_its_grant_while_the_webhook_has_not_answered_a_new_leader() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = ApiServer::new();
    server.pods(1, 1);
    let rules = json!([
        {"name": "budget", "availablePolicy": {"maxUnavailableValue": 1}},
        {"name": "outside", "webhook": {"clientConfig": {"url": url}, "failurePolicy": "Fail"}},
    ]);
    server.rule("web", json!({"selector": {"matchLabels": {"app": "web"}}, "rules": rules}));
    server.begin("web-0");
    let request = server.labels("web-0")[&Stage::PreCheck.key("a")].clone();
    let mut rule = server.get(Kind::Rules, "web").unwrap();
    let uid = &server.get(Kind::Pods, "web-0").unwrap()["metadata"]["uid"];
    let grant =
        json!({"pod": "web-0", "uid": uid, "stage": "PreCheck", "operation": "a", "askedAt": request});
    rule["status"] = json!({"holder": "zero", "grants": [grant]});
    server.store(Kind::Rules, rule, None).unwrap();
    let mut leader = Leader::start(&server, "one");
    let mut calls = Vec::new();
    leader
        .until("the webhook is called", |_| {
            calls.extend(listener.accept().now_or_never());
            !calls.is_empty()
        })
        .await;
    let (mut call, _) = calls.remove(0).unwrap();
    let mut decisions = 0;
    leader
        .until("that is decided about", |leader| {
            let is_known = leader.reconcile("web-0").contains("its webhook has not answered yet");
            decisions = if is_known { decisions + 1 } else { 0 };
            decisions == 50
        })
        .await;
    assert_eq!(server.labels("web-0")[&Stage::PreCheck.key("a")], request);
    call.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"success\": true}").await.unwrap();
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}
