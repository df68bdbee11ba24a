//! The state of namespaces follows their PodTransitionRules and pods.

use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use serde_json::{Value, json};

use super::super::state::{RuleCache, RuleRecord};
use super::api_server::{ApiServer, Kind};
use super::leader::{Leader, pod};
use super::{budget, is_out};
use podward_kube_util::CachedPod;

fn record(name: &str, version: u64, labels: Value) -> RuleRecord {
    let object = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()},
        "spec": {"selector": {"matchLabels": labels}},
    });
    RuleRecord::new(serde_json::from_value(object).unwrap())
}

/// Returns pods with these labels. Those with the label `requests` have a check request.
fn pods(all: &[(&str, &[(&str, &str)])]) -> Store<CachedPod> {
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for (name, labels) in all {
        let mut object = pod(name);
        (object["metadata"]["namespace"], object["metadata"]["uid"]) = (json!("shop"), json!(name));
        for (key, value) in *labels {
            let labels = &mut object["metadata"]["labels"];
            labels[*key] = json!(value);
            if *key == "requests" {
                labels[Stage::Operating.key("a")] = json!("1");
                labels[Stage::OperationType.key("a")] = json!("update");
                labels[Stage::PreCheck.key("a")] = json!("1");
            }
        }
        writer.apply_watcher_event(&Event::InitApply(serde_json::from_value(object).unwrap()));
    }
    writer.apply_watcher_event(&Event::InitDone);
    store
}

#[test]
fn after_a_change_rules_select_the_same_pods_as_the_index() {
    let pods = pods(&[("a", &[("tier", "front")]), ("b", &[("tier", "back")]), ("c", &[])]);
    let mut cache = RuleCache::default();
    cache.relist_pods(&pods);
    let selected = |cache: &RuleCache| {
        let mut found = Vec::new();
        for (uid, observed) in &cache.namespaces["shop"].pods {
            let wanted = cache.index.selecting("shop", observed.pod.labels());
            assert!(
                observed.sets.iter().eq(wanted.iter().map(|set| &set.name)),
                "{uid}: {:?}",
                observed.sets
            );
            found.push(format!("{uid}:{}", observed.sets.join(",")));
        }
        found.sort();
        found.join(" ")
    };
    let mut version = 0;
    let mut put = |cache: &mut RuleCache, name: &str, labels: Value| {
        version += 1;
        cache.put(record(name, version, labels), &pods, true);
    };
    put(&mut cache, "m", json!({"app": "web"}));
    assert_eq!(selected(&cache), "a:m b:m c:m");
    put(&mut cache, "z", json!({"tier": "front"}));
    put(&mut cache, "d", json!({"tier": "back"}));
    assert_eq!(selected(&cache), "a:m,z b:d,m c:m");
    put(&mut cache, "m", json!({"tier": "front"}));
    assert_eq!(selected(&cache), "a:m,z b:d c:");
    put(&mut cache, "d", json!({"app": "web"}));
    cache.remove("shop", "z");
    assert_eq!(selected(&cache), "a:d,m b:d c:d");
    let listed = [("shop".to_owned(), "m".to_owned())];
    assert_eq!(cache.retain(&listed), [("shop".to_owned(), "d".to_owned())]);
    assert_eq!(selected(&cache), "a:m b: c:");
}

#[test]
fn rule_sets_that_share_a_pod_with_a_check_request_are_decided_together() {
    let pods = pods(&[
        ("ab", &[("a", ""), ("b", ""), ("requests", "")]),
        ("bc", &[("b", ""), ("c", ""), ("requests", "")]),
        ("cd", &[("c", ""), ("d", ""), ("requests", "")]),
        ("de", &[("d", ""), ("e", "")]),
        ("f", &[("f", ""), ("requests", "")]),
    ]);
    let mut cache = RuleCache::default();
    cache.relist_pods(&pods);
    for (version, name) in (1..).zip(["a", "b", "c", "d", "e", "f"]) {
        cache.put(record(name, version, json!({name: ""})), &pods, true);
    }
    let together = |cache: &mut RuleCache, touched: &str| {
        cache.take_changed("shop");
        cache.namespaces.get_mut("shop").unwrap().mark_changed([&touched.to_owned()]);
        cache.take_changed("shop").unwrap().into_iter().collect::<String>()
    };
    assert_eq!(together(&mut cache, "a"), "abcd");
    assert_eq!(together(&mut cache, "d"), "abcd");
    assert_eq!(together(&mut cache, "e"), "e", "a pod without a check request joins nothing");
    assert_eq!(together(&mut cache, "f"), "f");
}

#[test]
fn a_namespace_is_dropped_after_its_results_are_published() {
    let pods = pods(&[("a", &[("requests", "")]), ("b", &[])]);
    let mut cache = RuleCache::default();
    cache.relist_pods(&pods);
    cache.put(record("web", 1, json!({"app": "web"})), &pods, true);
    cache.take_changed("shop");
    assert!(!cache.drop_if_empty("shop"), "there is a rule object");
    cache.remove("shop", "web");
    // The pod has no result, and is reconciled all the same.
    assert!(cache.namespaces["shop"].reports.keys().eq(["a"]));
    assert!(!cache.drop_if_empty("shop"), "its result is not published");
    assert_eq!(cache.take_changed("shop"), Some([].into()));
    assert!(cache.drop_if_empty("shop") && cache.namespaces.is_empty());
    // An earlier write of a deleted object does not restore it.
    assert!(!cache.put(record("web", 2, json!({"app": "web"})), &pods, false) && cache.namespaces.is_empty());
    assert!(cache.index.get("shop", "web").is_none());
    assert!(cache.put(record("web", 3, json!({"app": "web"})), &pods, true));
    assert_eq!(cache.namespaces["shop"].pods.len(), 2);
}

#[tokio::test]
async fn the_state_of_a_namespace_without_rules_is_dropped() {
    let server = ApiServer::new();
    server.pods(4, 4);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    (0..3).for_each(|pod| server.begin(&format!("web-{pod}")));
    leader.until("one is out, and the others wait", |leader| leader.server.out(4).len() == 1).await;
    server.delete(Kind::Rules, "web");
    leader.until("all with a check request are out", |leader| leader.server.out(4).len() == 3).await;
    let is_kept = |leader: &Leader| !leader.rules.context.cache.lock().namespaces.is_empty();
    leader.until("the namespace is dropped", |leader| !is_kept(leader)).await;
    assert_eq!(leader.rules.context.owners.count(), 0, "its owners are not watched");
    // A rule that is created later applies.
    server.rule("web", budget(json!(1)));
    (0..3).for_each(|pod| server.finish(&format!("web-{pod}")));
    leader.until("all are in service", |leader| leader.server.out(4).is_empty()).await;
    (0..4).for_each(|pod| server.begin(&format!("web-{pod}")));
    leader.until("one is out", |leader| leader.server.out(4).len() == 1).await;
    let waits = |leader: &mut Leader, pod: usize| {
        let name = format!("web-{pod}");
        is_out(&leader.server, &name) || leader.reconcile(&name).contains("blocked by max unavailable policy")
    };
    leader.until("the others wait", |leader| (0..4).all(|pod| waits(leader, pod))).await;
    assert!(is_kept(&leader) && server.labels("web-3").contains_key(SERVICE_AVAILABLE));
    leader.end().await;
}
