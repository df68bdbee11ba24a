//! A pod with thousands of operations, which every user who may write the pod can cause.

use std::sync::Arc;

use kube::runtime::reflector;
use podward_core::keys::{SKIP_RULES, Stage};
use podward_core::rules::{OtherChecks, check_requests};
use podward_core::{CheckResult, Checks};
use podward_kube_util::CachedPod;
use serde_json::json;

use super::super::state::{PodRules, RuleCache, RuleRecord};
use super::leader::pod;

const OPERATIONS: usize = 3000;

/// Returns a rule set with a rule that refuses all pods.
fn record(name: &str) -> RuleRecord {
    let requires = json!({"matchLabels": {"tested": "yes"}});
    let object = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "rules": [{"name": "tested", "labelCheck": {"requires": requires}}],
        },
    });
    RuleRecord::new(serde_json::from_value(object).unwrap())
}

fn with_requests(version: &str, skip: &str) -> Arc<CachedPod> {
    let mut object = pod("web-0");
    let metadata = &mut object["metadata"];
    (metadata["namespace"], metadata["uid"]) = (json!("shop"), json!("u"));
    metadata["resourceVersion"] = json!(version);
    metadata["annotations"] = json!({SKIP_RULES: skip});
    for id in 0..OPERATIONS {
        let id = format!("a{id:04}");
        metadata["labels"][Stage::Operating.key(&id)] = json!("1");
        metadata["labels"][Stage::OperationType.key(&id)] = json!("update");
        metadata["labels"][Stage::PreCheck.key(&id)] = json!("1");
    }
    Arc::new(serde_json::from_value(object).unwrap())
}

/// The leader's cache is locked meanwhile. If the annotation were parsed for each request and rule set, this would take
/// minutes.
#[test]
fn the_results_of_a_pod_with_many_requests_and_a_long_skip_text() {
    let (store, _writer) = reflector::store();
    let mut cache = RuleCache::default();
    cache.relist_pods(&store);
    let names: Vec<String> = (0..10).map(|number| format!("web-{number}")).collect();
    for name in &names {
        cache.put(record(name), &store, true);
    }
    let text = format!(r#"{{"skipRules":[{}"tested"]}}"#, r#""x","#.repeat(50_000));
    let pod = with_requests("1", &text);
    cache.observe_pod(&pod, true);
    let requests = check_requests(pod.labels());
    let others = requests.iter().map(|request| (request.clone(), OtherChecks::Agree));
    cache.set_other_checks(&pod.key(), pod.uid(), others.collect());
    cache.observe_pod(&with_requests("2", &text), true);
    assert_eq!(cache.namespaces["shop"].others(pod.uid(), &requests[OPERATIONS - 1]), OtherChecks::Agree);

    let rules = PodRules::of(&cache, &pod, &pod.skipped_rules(), requests.clone(), None);
    assert_eq!(requests.len(), OPERATIONS);
    for request in &requests {
        assert_eq!(rules.refusals(request).unwrap().len(), names.len());
    }
    let CheckResult::Wait(message) = rules.pre_check("a2999", "update") else { panic!("it must wait") };
    assert!(message.contains("rule web-9/tested: block by label check policy"), "{message}");
    assert!(message.ends_with("is ignored, because it has more than 16 KiB"), "{message}");

    let pod = with_requests("3", r#"{"skipRules":["tested"]}"#);
    let rules = PodRules::of(&cache, &pod, &pod.skipped_rules(), requests, None);
    assert_eq!(rules.pre_check("a2999", "update"), CheckResult::Pass);
}
