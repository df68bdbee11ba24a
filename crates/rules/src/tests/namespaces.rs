//! The state of namespaces follows their PodTransitionRules and pods.

use std::collections::HashMap;
use std::time::Duration;

use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use podward_core::rules::{OtherChecks, WebhookAnswer, check_requests};
use serde_json::{Value, json};

use super::super::state::{KnownAnswer, RequestReport, RuleCache, RuleRecord};
use super::super::worker::until_cached;
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

/// A reconciliation can end after its pod is gone. A pod that no rule set selects may be selected later.
#[test]
fn the_results_of_other_checks_are_kept_while_their_pod_exists() {
    let pods = pods(&[("a", &[("requests", ""), ("tier", "back")])]);
    let mut cache = RuleCache::default();
    cache.relist_pods(&pods);
    cache.put(record("web", 1, json!({"tier": "front"})), &pods, true);
    let pod = cache.namespaces["shop"].pods["a"].pod.clone();
    let request = check_requests(pod.labels()).remove(0);
    let set = |cache: &mut RuleCache| {
        let results = HashMap::from([(request.clone(), OtherChecks::Agree)]);
        cache.set_other_checks(&pod.key(), pod.uid(), results);
    };
    set(&mut cache);
    cache.put(record("web", 2, json!({"tier": "back"})), &pods, true);
    assert_eq!(cache.namespaces["shop"].others("a", &request), OtherChecks::Agree, "it is selected now");
    cache.pod_deleted(&pod);
    set(&mut cache);
    assert!(cache.namespaces["shop"].others.is_empty(), "it is gone");
}

/// The response of a write for a deleted rule can arrive after a rule of the same name was created.
#[test]
fn only_the_watch_replaces_a_rule_by_another_one_of_its_name() {
    let pods = pods(&[("a", &[("tier", "front")])]);
    let of_uid = |uid: &str, version: u64, labels: Value| RuleRecord {
        uid: uid.to_owned(),
        ..record("web", version, labels)
    };
    let (first, second) = (json!({"app": "web"}), json!({"tier": "back"}));
    let stored = |cache: &RuleCache| {
        let record = cache.namespaces["shop"].records.get("web");
        assert_eq!(
            record.map(|record| &record.set),
            cache.index.get("shop", "web"),
            "the index has the same rules"
        );
        record.map(|record| (record.uid.clone(), record.version_number()))
    };
    let mut cache = RuleCache::default();
    cache.relist_pods(&pods);
    cache.put(of_uid("1", 10, first.clone()), &pods, true);
    cache.remove("shop", "web");
    cache.put(of_uid("1", 11, first.clone()), &pods, false);
    assert_eq!(stored(&cache), None, "a late response does not restore a deleted rule");
    cache.put(of_uid("2", 12, second.clone()), &pods, true);
    // A write that began before the deletion has the older version. A version says nothing about another object.
    for late in [11, 13] {
        cache.put(of_uid("1", late, first.clone()), &pods, false);
        assert_eq!(stored(&cache), Some(("2".to_owned(), 12)), "after a response with version {late}");
        assert!(cache.namespaces["shop"].pods["a"].sets.is_empty(), "the pod is not selected");
    }
    cache.put(of_uid("2", 14, second), &pods, false);
    assert_eq!(stored(&cache), Some(("2".to_owned(), 14)), "its own writes are stored");
    cache.put(of_uid("3", 15, first), &pods, true);
    assert_eq!(stored(&cache), Some(("3".to_owned(), 15)), "the watch replaces it");
}

/// Until the watch delivers a recreated rule, writes fail. They are repeated with growing delays.
#[tokio::test]
async fn a_recreated_rule_waits_for_the_watch() {
    let server = ApiServer::new();
    server.pods(2, 2);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    (0..2).for_each(|pod| server.begin(&format!("web-{pod}")));
    leader.until("one is out, and the other waits", |leader| leader.server.out(2).len() == 1).await;
    server.hold_watch(true);
    server.delete(Kind::Rules, "web");
    server.rule("web", budget(json!(0)));
    let served = server.out(2).remove(0);
    server.finish(&served);
    let error = |leader: &Leader| {
        let cache = leader.rules.context.cache.lock();
        let rules = cache.namespaces.get("shop");
        rules.and_then(|rules| rules.unstored.error("web").map(ToOwned::to_owned))
    };
    leader.until("the decision fails", |leader| error(leader).is_some()).await;
    assert_eq!(error(&leader).as_deref(), Some("PodTransitionRule web is gone"));
    assert!(server.out(2).is_empty(), "no grant without a stored decision");
    server.hold_watch(false);
    leader.until("it decides again", |leader| error(leader).is_none()).await;
    let waits = if served == "web-0" { "web-1" } else { "web-0" };
    leader
        .until("the new rule refuses", |leader| leader.reconcile(waits).contains("[max unavailable]=0/2"))
        .await;
    assert!(server.out(2).is_empty());
    leader.end().await;
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
    assert_eq!(leader.rules.context.owners.watched(), [] as [&str; 0], "its owners are not watched");
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

/// Until the next decision it would be taken for an answer to the present version.
#[test]
fn what_webhooks_answered_to_another_version_of_a_rule_does_not_count() {
    let pods = pods(&[("a", &[("requests", "")])]);
    let mut cache = RuleCache::default();
    cache.relist_pods(&pods);
    let put = |cache: &mut RuleCache, uid: &str, version: u64, generation: i64| {
        let (uid, record) = (uid.to_owned(), record("web", version, json!({"app": "web"})));
        cache.put(RuleRecord { uid, generation, ..record }, &pods, true);
    };
    let answer = |cache: &mut RuleCache| {
        let rules = cache.namespaces.get_mut("shop").unwrap();
        let request = rules.pods["a"].requests[0].clone();
        let key = ("web".to_owned(), "outside".to_owned(), "a".to_owned(), request);
        rules.reports.entry("a".to_owned()).or_default().insert(key.3.clone(), RequestReport::default());
        rules.answers.insert(key, KnownAnswer { answer: WebhookAnswer::Approved, fingerprint: None });
    };
    let is_known = |cache: &RuleCache| {
        let rules = &cache.namespaces["shop"];
        // A decision has a pod reconciled that has no report.
        assert_eq!(rules.answers.is_empty(), rules.reports["a"].is_empty());
        !rules.answers.is_empty()
    };
    put(&mut cache, "first", 1, 1);
    answer(&mut cache);
    put(&mut cache, "first", 2, 1);
    assert!(is_known(&cache), "only its status has changed");
    put(&mut cache, "first", 3, 2);
    assert!(!is_known(&cache));
    answer(&mut cache);
    put(&mut cache, "second", 4, 2);
    assert!(!is_known(&cache), "another rule has its name");
    answer(&mut cache);
    cache.remove("shop", "web");
    assert!(!is_known(&cache));
}

/// Otherwise the operations of a namespace would wait as long as anybody changes rules anywhere.
#[tokio::test]
async fn a_rule_that_is_gone_is_not_waited_for_while_others_change() {
    let mut leader = Leader::start(&ApiServer::new(), "one");
    leader.until("rules are watched", |leader| leader.server.rule_watches() > 0).await;
    let context = leader.rules.context.clone();
    let others_change = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            context.rule_events.send_modify(|count| *count += 1);
        }
    };
    let gone = vec![("gone".to_owned(), "uid".to_owned(), 1)];
    tokio::select! {
        () = until_cached(&context, "shop", gone) => {}
        () = others_change => panic!("it waits for a rule that does not exist"),
    }
    leader.end().await;
}
