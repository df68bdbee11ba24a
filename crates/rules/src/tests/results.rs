//! Results of operations that rules refuse, their report to operators, and what rules say about finished pods.

use kube::runtime::reflector;
use podward_core::keys::{POST_CHECK_REJECTION, RESULT_REFUSED, Stage};
use podward_core::rules::check_requests;
use podward_core::{CheckResult, Checks};
use podward_kube_util::CachedPod;
use serde_json::json;

use super::super::state::{PodRules, RuleCache, RuleRecord};
use super::api_server::{ApiServer, Kind};
use super::leader::{Leader, pod};

fn is_reported(server: &ApiServer) -> bool {
    server.labels("web-0").contains_key(&Stage::Rollback.key("a"))
}

/// No consumer is expected, so the operation ends with the check.
fn is_accepted(server: &ApiServer) -> bool {
    !server.labels("web-0").contains_key(&Stage::PostCheck.key("a"))
}

/// The result is held, then reported, across a change of the leader, until it is good.
#[tokio::test]
async fn a_refused_result_is_reported_until_its_rule_accepts_it() {
    let server = ApiServer::new();
    server.pods(1, 1);
    let requires = json!({"matchLabels": {"good": "yes"}});
    let good = json!({"name": "good", "stage": "PostCheck", "labelCheck": {"requires": requires}});
    server.rule("web", json!({"selector": {"matchLabels": {"app": "web"}}, "rules": [good]}));
    let mut first = Leader::start(&server, "one");
    server.finish_work("web-0");
    first
        .until("the result is held", |leader| {
            leader.reconcile("web-0").contains("rule web/good: block by label check")
        })
        .await;
    assert!(!is_reported(&server) && !is_accepted(&server), "{:?}", server.labels("web-0"));

    server.annotate_rule("web", POST_CHECK_REJECTION, "Rollback");
    first.until("the operator gets the report", |leader| is_reported(&leader.server)).await;
    let object = server.get(Kind::Pods, "web-0").unwrap();
    let record = object["metadata"]["annotations"][RESULT_REFUSED].as_str().unwrap_or_default();
    assert!(record.contains(r#"{"a":{"rule web/good":{"reason":"block by label check policy"#), "{record}");
    first.end().await;

    // The next leader does not know the rules at first.
    server.hold_watch(true);
    let mut second = Leader::start(&server, "two");
    for _ in 0..50 {
        let message = second.reconcile("web-0");
        assert!(message.contains("its result is refused by rule web/good"), "{message}");
        assert!(is_reported(&server) && !is_accepted(&server));
        tokio::task::yield_now().await;
    }
    server.hold_watch(false);
    second
        .until("it knows the rule", |leader| {
            leader.reconcile("web-0").contains("rule web/good: block by label check")
        })
        .await;
    assert!(is_reported(&server) && !is_accepted(&server));
    server.label("web-0", "good", "yes");
    second.until("the result is accepted", |leader| is_accepted(&leader.server)).await;
    assert!(!is_reported(&server));
    let object = server.get(Kind::Pods, "web-0").unwrap();
    assert!(object["metadata"]["annotations"][RESULT_REFUSED].is_null(), "{object}");
    second.end().await;
}

/// Its webhook is not asked about the pod, because rules do not count pods that have finished.
#[test]
fn the_webhook_of_a_rule_does_not_hold_a_pod_that_has_finished() {
    let (store, _writer) = reflector::store();
    let mut cache = RuleCache::default();
    cache.relist_pods(&store);
    let object = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": "web", "namespace": "shop", "uid": "web", "resourceVersion": "1"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "rules": [
                {"name": "outside", "webhook": {"clientConfig": {"url": "https://127.0.0.1:1"}}},
                {"name": "saved", "labelCheck": {"requires": {"matchLabels": {"saved": "yes"}}}},
            ],
        },
    });
    cache.put(RuleRecord::new(serde_json::from_value(object).unwrap()), &store, true);
    let mut object = pod("web-0");
    object["metadata"]["namespace"] = json!("shop");
    for (stage, value) in [(Stage::Operating, "1"), (Stage::OperationType, "update"), (Stage::PreCheck, "1")]
    {
        object["metadata"]["labels"][stage.key("a")] = json!(value);
    }
    let mut result = |phase: &str, saved: &str| {
        object["status"]["phase"] = json!(phase);
        object["metadata"]["labels"]["saved"] = json!(saved);
        let pod: CachedPod = serde_json::from_value(object.clone()).unwrap();
        let requests = check_requests(pod.labels());
        PodRules::of(&cache, &pod, &pod.skipped_rules(), requests, None).pre_check("a", "update")
    };
    let waiting = CheckResult::Wait("rule web/outside: its webhook has not answered yet".to_owned());
    assert_eq!(result("Running", "yes"), waiting);
    for phase in ["Failed", "Succeeded"] {
        assert_eq!(result(phase, "yes"), CheckResult::Pass, "{phase}");
        assert!(matches!(result(phase, "no"), CheckResult::Wait(_)), "other rules hold it");
    }
}
