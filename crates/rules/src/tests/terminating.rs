//! Rule objects that are being deleted.

use podward_core::keys::RULE_PROTECTION;
use serde_json::json;

use super::api_server::{ApiServer, Kind};
use super::leader::Leader;
use super::{budget, is_out};

const OTHER: &str = "example.com/kept";

fn finalizers(server: &ApiServer) -> Option<serde_json::Value> {
    Some(server.get(Kind::Rules, "web")?["metadata"]["finalizers"].clone())
}

/// KusionStack's kuperator puts its finalizer on every rule object, and only it removes the finalizer.
#[tokio::test]
async fn a_deleted_rule_of_kuperator_is_gone() {
    let server = ApiServer::new();
    server.pods(1, 1);
    server.rule("web", budget(json!(0)));
    server.set_rule_finalizers("web", &[RULE_PROTECTION]);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the rule refuses", |leader| leader.reconcile("web-0").contains("rule web/budget")).await;
    assert_eq!(finalizers(&server), Some(json!([RULE_PROTECTION])), "it is not being deleted");
    // The first attempts conflict with another writer.
    server.disturb("web", 2);
    server.delete(Kind::Rules, "web");
    leader.until("the rule is gone", |leader| finalizers(&leader.server).is_none()).await;
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// The other finalizer stays, and keeps the object. Its rules do not apply any more.
#[tokio::test]
async fn a_terminating_rule_does_not_apply() {
    let server = ApiServer::new();
    server.pods(2, 2);
    server.rule("web", budget(json!(0)));
    server.set_rule_finalizers("web", &[OTHER, RULE_PROTECTION]);
    let mut first = Leader::start(&server, "one");
    server.begin("web-0");
    first.until("the rule refuses", |leader| leader.reconcile("web-0").contains("rule web/budget")).await;
    server.delete(Kind::Rules, "web");
    first.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    first.until("one is left", |leader| finalizers(&leader.server) == Some(json!([OTHER]))).await;
    first.end().await;
    // Another leader finds the terminating object when it lists.
    let mut second = Leader::start(&server, "two");
    server.begin("web-1");
    second.until("the next pod goes", |leader| is_out(&leader.server, "web-1")).await;
    second.end().await;
    assert_eq!(finalizers(&server), Some(json!([OTHER])));
}

/// The object was deleted while nothing of Podward ran.
#[tokio::test]
async fn a_leader_releases_rules_that_were_deleted_before() {
    let server = ApiServer::new();
    server.pods(1, 1);
    // It can't be read.
    server.rule("web", json!({"selector": {"matchLabels": {"app": "web"}}, "rules": "none"}));
    server.set_rule_finalizers("web", &[RULE_PROTECTION]);
    server.delete(Kind::Rules, "web");
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the rule is gone", |leader| finalizers(&leader.server).is_none()).await;
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}
