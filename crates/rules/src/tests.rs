//! Rules against an API server in memory.

mod api_server;
mod deferred;
mod ending_owners;
mod leader;
mod many_requests;
mod namespaces;
mod outside_pods;
mod owners;
mod reports;
mod results;
mod statuses;
mod terminating;
mod unstored;
mod webhooks;

use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use serde_json::{Value, json};

use super::state::{RuleCache, RuleRecord};

use api_server::{ApiServer, Kind};
use leader::Leader;

fn budget(most: Value) -> Value {
    json!({
        "selector": {"matchLabels": {"app": "web"}},
        "rules": [{"name": "budget", "availablePolicy": {"maxUnavailableValue": most}}],
    })
}

#[test]
fn nothing_is_decided_before_the_pods_are_listed() {
    let (pods, _writer) = kube::runtime::reflector::store();
    let rule = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": budget(json!(1)),
    });
    let mut cache = RuleCache::default();
    cache.put(RuleRecord::new(serde_json::from_value(rule).unwrap()), &pods, true);
    assert_eq!(cache.take_changed("shop"), None);
    cache.relist_pods(&pods);
    assert_eq!(cache.take_changed("shop"), Some(["web".to_owned()].into()));
}

/// The interval holds although writes of another object conflict.
#[tokio::test]
async fn an_object_is_written_once_a_second_while_another_conflicts() {
    let server = ApiServer::new();
    server.pods(4, 4);
    (0..4).for_each(|pod| server.label(&format!("web-{pod}"), "half", if pod < 2 { "a" } else { "b" }));
    for half in ["a", "b"] {
        let rules = json!([{"name": "budget", "availablePolicy": {"maxUnavailableValue": 1}}]);
        server.rule(half, json!({"selector": {"matchLabels": {"half": half}}, "rules": rules}));
    }
    server.disturb("b", 3);
    let mut leader = Leader::start(&server, "one");
    [0, 2, 3].iter().for_each(|pod| server.begin(&format!("web-{pod}")));
    let mut waits = false;
    leader
        .until("b can be written", |leader| {
            // The status of a changes all the time.
            waits = !waits;
            if waits {
                leader.server.begin("web-1")
            } else {
                leader.server.finish("web-1")
            }
            leader.server.label("web-1", "half", "a");
            let out = leader.server.out(4);
            leader.server.disturbances() == 0 && out.iter().any(|name| name.as_str() >= "web-2")
        })
        .await;
    leader.end().await;
}

fn is_out(server: &ApiServer, name: &str) -> bool {
    !server.labels(name).contains_key(SERVICE_AVAILABLE)
}

#[tokio::test]
async fn a_budget_holds_for_many_pods_at_once() {
    let server = ApiServer::new();
    server.pods(20, 20);
    server.rule("web", budget(json!("25%")));
    let mut leader = Leader::start(&server, "one");
    (0..20).for_each(|number| server.begin(&format!("web-{number}")));
    let mut worst = 0;
    leader
        .until("a quarter is out", |leader| {
            worst = worst.max(leader.server.out(20).len());
            worst >= 5
        })
        .await;
    // Pods become available again, and the next become unavailable, the oldest first.
    let mut served: Vec<String> = Vec::new();
    leader
        .until("every pod was out once", |leader| {
            let out = leader.server.out(20);
            worst = worst.max(out.len());
            for name in out {
                leader.server.finish(&name);
                served.push(name);
            }
            served.len() == 20
        })
        .await;
    assert_eq!(worst, 5, "never more than the budget");
    for (place, names) in served.chunks(5).enumerate() {
        let is_its_turn = |name: &String| name[4..].parse::<usize>().unwrap() / 5 == place;
        assert!(names.iter().all(is_its_turn), "the oldest first: {served:?}");
    }
    leader
        .until("no pod waits", |leader| {
            leader.server.status_writes().last().is_some_and(|status| {
                status["waitingCount"] == 0 && status["grants"].is_null() && status["details"].is_null()
            })
        })
        .await;
    let writes = server.status_writes();
    assert!(writes.len() <= 12, "{} writes", writes.len());
    let last = writes.last().unwrap();
    assert_eq!((&last["targetCount"], &last["conditions"][0]["status"]), (&json!(20), &json!("True")));
    assert_eq!(last["targets"].as_array().unwrap().len(), 20);
    leader.end().await;
}

#[tokio::test]
async fn an_operation_waits_until_the_rules_are_known() {
    let server = ApiServer::new();
    server.pods(1, 1);
    server.hold_watch(true);
    let mut leader = Leader::start(&server, "one");
    leader.until("rules are watched", |leader| leader.server.rule_watches() > 0).await;
    server.rule("web", budget(json!(0)));
    server.begin("web-0");
    let mut message = String::new();
    leader.follow();
    // While the watch delivers nothing the cache lacks the rule, and the operation waits.
    for _ in 0..50 {
        message = leader.reconcile("web-0");
        assert!(!is_out(&server, "web-0"));
        tokio::task::yield_now().await;
    }
    assert!(message.contains("the rules for it are being looked up"), "{message}");
    server.hold_watch(false);
    leader
        .until("the rule refuses", |leader| {
            assert!(!is_out(&leader.server, "web-0"));
            leader.reconcile("web-0").contains(
                "rule web/budget: [budget] blocked by max unavailable policy: [max unavailable]=0/1",
            )
        })
        .await;
    server.delete(Kind::Rules, "web");
    leader.until("the rule is gone, and the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// The rules that exist when an operation begins are known from its first check on. The check of its result looks up
/// nothing, unless the id is begun again or another leader has not seen the first check.
#[tokio::test]
async fn an_operation_looks_up_its_rules_once() {
    let server = ApiServer::new();
    server.pods(1, 1);
    let mut first = Leader::start(&server, "one");
    let works = |server: &ApiServer| server.labels("web-0").contains_key(&Stage::Operate.key("a"));
    let is_accepted = |server: &ApiServer| !server.labels("web-0").contains_key(&Stage::PostCheck.key("a"));
    for lists in [1, 2] {
        server.begin("web-0");
        first.until("the operator may work", |leader| works(&leader.server)).await;
        server.finish_work("web-0");
        first.until("the result is accepted", |leader| is_accepted(&leader.server)).await;
        assert_eq!(server.rule_lists(), lists, "one list for each run");
    }
    server.begin("web-0");
    first.until("the operator may work", |leader| works(&leader.server)).await;
    assert_eq!(server.rule_lists(), 3);
    first.end().await;
    server.finish_work("web-0");
    let mut second = Leader::start(&server, "two");
    second.until("the result is accepted", |leader| is_accepted(&leader.server)).await;
    assert_eq!(server.rule_lists(), 4, "the new leader does not know them");
    second.end().await;
}

#[tokio::test]
async fn a_failed_list_of_rules_does_not_count_as_no_rules() {
    let server = ApiServer::new();
    server.pods(1, 1);
    server.fail_lists(true);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader
        .until("the reason is reported", |leader| {
            assert!(!is_out(&leader.server, "web-0"));
            leader.reconcile("web-0").contains("can't be looked up")
        })
        .await;
    server.fail_lists(false);
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

#[tokio::test]
async fn without_the_resource_there_are_no_rules() {
    let server = ApiServer::new().without_rules();
    server.pods(1, 1);
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    assert!(server.status_writes().is_empty());
    leader.end().await;
}

#[tokio::test]
async fn every_refusal_is_reported_and_a_label_ends_one() {
    let server = ApiServer::new();
    server.pods(2, 2);
    let labels = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "rules": [
            {"name": "ready", "labelCheck": {"requires": {"matchLabels": {"ready": "yes"}}}},
            {"name": "tested", "labelCheck": {"requires": {"matchLabels": {"tested": "yes"}}}},
        ],
    });
    server.rule("labels", labels);
    server.rule("zero", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader
        .until("both are reported", |leader| {
            let message = leader.reconcile("web-0");
            let refused = |rule: &str| {
                message.contains(&format!("rule labels/{rule}: block by label check policy, pod shop/web-0"))
            };
            refused("ready") && refused("tested") && message.contains("rule zero/budget: there is room")
        })
        .await;
    let is_reported =
        |status: &Value| status["details"][0]["rejectInfo"].as_array().is_some_and(|info| info.len() == 2);
    leader.until("the status shows it", |leader| leader.server.status_writes().iter().any(is_reported)).await;
    assert!(
        !server.status_writes().iter().any(|status| status["grants"].is_array()),
        "no grant for a pod that another rule refuses"
    );
    server.label("web-0", "ready", "yes");
    server.label("web-0", "tested", "yes");
    leader.until("the pod goes", |leader| is_out(&leader.server, "web-0")).await;
    let object = server.get(Kind::Pods, "web-0").unwrap();
    let detail = &object["metadata"]["annotations"]["detail.podtransitionrule.kusionstack.io/labels"];
    assert_eq!(detail, r#"{"stage":"PreCheck","passed":true}"#);
    leader.end().await;
}

#[tokio::test]
async fn missing_replicas_count_as_unavailable() {
    let server = ApiServer::new();
    server.pods(4, 5);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    server.begin("web-0");
    leader
        .until("one replica is missing", |leader| {
            assert!(!is_out(&leader.server, "web-0"));
            leader.reconcile("web-0").contains("[missing replicas]=1")
        })
        .await;
    server.scale(4);
    leader.until("it isn't missing any more", |leader| is_out(&leader.server, "web-0")).await;
    leader.end().await;
}

/// A second controller takes over while the first one still acts as the leader.
#[tokio::test]
async fn two_controllers_do_not_overdraw_a_budget() {
    let server = ApiServer::new();
    server.pods(8, 8);
    server.rule("web", budget(json!(2)));
    let mut first = Leader::start(&server, "one");
    (0..8).for_each(|number| server.begin(&format!("web-{number}")));
    first.until("two are out", |leader| leader.server.out(8).len() == 2).await;
    let lists = server.pod_lists();
    let mut second = Leader::start(&server, "two");
    let mut done = 0;
    // The first controller continues to reconcile the pods in its cache.
    second
        .until("every pod was out once", |second| {
            first.reconcile_all();
            let out = second.server.out(8);
            assert!(out.len() <= 2, "{out:?}");
            let granted = out
                .iter()
                .filter(|name| second.server.labels(name).contains_key(&Stage::PreChecked.key("a")));
            for name in granted.cloned().collect::<Vec<_>>() {
                second.server.finish(&name);
                done += 1;
            }
            if done % 3 == 2 {
                first.follow();
            }
            done == 8
        })
        .await;
    assert!(server.pod_lists() > lists, "a controller reads the pods after the grants of another one");
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn an_event_names_rules_reasons_and_next_steps() {
    let server = ApiServer::new();
    server.pods(1, 1);
    server.rule("web", budget(json!(0)));
    let labels = json!({"matchLabels": {"backup": "done"}});
    let rules: Vec<Value> = (0..3)
        .map(|number| json!({"name": format!("b{number}"), "labelCheck": {"requires": labels}}))
        .collect();
    server.rule("backups", json!({"selector": {"matchLabels": {"app": "web"}}, "rules": rules}));
    let mut leader = Leader::start(&server, "one");
    assert!(leader.refusal_texts("web-0").is_empty(), "it has no check request");
    server.begin("web-0");
    leader.until("all refuse", |leader| leader.reconcile("web-0").contains("web/budget")).await;
    let words = leader.refusal_texts("web-0");
    assert_eq!(words.len(), 1);
    for part in [
        "rule b0 (labelCheck) of PodTransitionRule shop/backups refuses it: block by label check policy",
        "[next: the pod continues as soon as its labels match",
        "; and 2 more refuse",
    ] {
        assert!(words[0].contains(part), "{words:?}");
    }
    leader.end().await;
}
