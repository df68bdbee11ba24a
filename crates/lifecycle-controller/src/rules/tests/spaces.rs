//! What is kept of namespaces: no more than what their rule objects and pods are.

use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use serde_json::{Value, json};

use super::super::state::{Record, State};
use super::leader::{Leader, pod};
use super::server::{Kind, Server};
use super::{budget, is_out};
use crate::cached_pod::CachedPod;

fn record(name: &str, version: u64, labels: Value) -> Record {
    let object = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()},
        "spec": {"selector": {"matchLabels": labels}},
    });
    Record::new(serde_json::from_value(object).unwrap())
}

/// Pods with these labels each; those that have `asks` ask.
fn pods(all: &[(&str, &[(&str, &str)])]) -> Store<CachedPod> {
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for (name, labels) in all {
        let mut object = pod(name);
        (object["metadata"]["namespace"], object["metadata"]["uid"]) = (json!("shop"), json!(name));
        for (key, value) in *labels {
            let labels = &mut object["metadata"]["labels"];
            labels[*key] = json!(value);
            if *key == "asks" {
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
fn what_a_change_of_a_rule_object_selects_is_what_the_index_selects() {
    let pods = pods(&[("a", &[("tier", "front")]), ("b", &[("tier", "back")]), ("c", &[])]);
    let mut state = State::default();
    state.relist(&pods);
    let selected = |state: &State| {
        let mut found = Vec::new();
        for (uid, known) in &state.spaces["shop"].pods {
            let wanted = state.index.selecting("shop", known.pod.labels());
            assert!(known.sets.iter().eq(wanted.iter().map(|set| &set.name)), "{uid}: {:?}", known.sets);
            found.push(format!("{uid}:{}", known.sets.join(",")));
        }
        found.sort();
        found.join(" ")
    };
    let mut version = 0;
    let mut put = |state: &mut State, name: &str, labels: Value| {
        version += 1;
        state.put(record(name, version, labels), &pods, true);
    };
    put(&mut state, "m", json!({"app": "web"}));
    assert_eq!(selected(&state), "a:m b:m c:m");
    put(&mut state, "z", json!({"tier": "front"}));
    put(&mut state, "d", json!({"tier": "back"}));
    assert_eq!(selected(&state), "a:m,z b:d,m c:m");
    put(&mut state, "m", json!({"tier": "front"}));
    assert_eq!(selected(&state), "a:m,z b:d c:");
    put(&mut state, "d", json!({"app": "web"}));
    state.remove("shop", "z");
    assert_eq!(selected(&state), "a:d,m b:d c:d");
    let listed = [("shop".to_owned(), "m".to_owned())];
    assert_eq!(state.keep(&listed), [("shop".to_owned(), "d".to_owned())]);
    assert_eq!(selected(&state), "a:m b: c:");
}

#[test]
fn rule_sets_with_an_asking_pod_in_common_are_decided_about_together() {
    let pods = pods(&[
        ("ab", &[("a", ""), ("b", ""), ("asks", "")]),
        ("bc", &[("b", ""), ("c", ""), ("asks", "")]),
        ("cd", &[("c", ""), ("d", ""), ("asks", "")]),
        ("de", &[("d", ""), ("e", "")]),
        ("f", &[("f", ""), ("asks", "")]),
    ]);
    let mut state = State::default();
    state.relist(&pods);
    for (version, name) in (1..).zip(["a", "b", "c", "d", "e", "f"]) {
        state.put(record(name, version, json!({name: ""})), &pods, true);
    }
    let together = |state: &mut State, touched: &str| {
        state.take_touched("shop");
        state.spaces.get_mut("shop").unwrap().touch([&touched.to_owned()]);
        state.take_touched("shop").unwrap().into_iter().collect::<String>()
    };
    assert_eq!(together(&mut state, "a"), "abcd");
    assert_eq!(together(&mut state, "d"), "abcd");
    assert_eq!(together(&mut state, "e"), "e", "who doesn't ask binds nothing together");
    assert_eq!(together(&mut state, "f"), "f");
}

#[test]
fn a_namespace_is_let_go_of_once_those_who_waited_know() {
    let pods = pods(&[("a", &[("asks", "")]), ("b", &[])]);
    let mut state = State::default();
    state.relist(&pods);
    state.put(record("web", 1, json!({"app": "web"})), &pods, true);
    state.take_touched("shop");
    assert!(!state.let_go("shop"), "there is a rule object");
    state.remove("shop", "web");
    // Nothing has been said to it yet; it is looked at again all the same.
    assert!(state.spaces["shop"].said.keys().eq(["a"]));
    assert!(!state.let_go("shop"), "it has to be told first");
    assert_eq!(state.take_touched("shop"), Some([].into()));
    assert!(state.let_go("shop") && state.spaces.is_empty());
    // What was written before it was gone brings nothing back.
    assert!(!state.put(record("web", 2, json!({"app": "web"})), &pods, false) && state.spaces.is_empty());
    assert!(state.index.get("shop", "web").is_none());
    assert!(state.put(record("web", 3, json!({"app": "web"})), &pods, true));
    assert_eq!(state.spaces["shop"].pods.len(), 2);
}

#[tokio::test]
async fn nothing_is_kept_of_a_namespace_without_rules() {
    let server = Server::new();
    server.pods(4, 4);
    server.rule("web", budget(json!(1)));
    let mut leader = Leader::start(&server, "one");
    (0..3).for_each(|pod| server.begin(&format!("web-{pod}")));
    leader.until("one is out, and the others wait", |leader| leader.server.out(4).len() == 1).await;
    server.delete(Kind::Rules, "web");
    leader.until("all that asked are out", |leader| leader.server.out(4).len() == 3).await;
    let is_kept = |leader: &Leader| !leader.rules.shared.state.lock().spaces.is_empty();
    leader.until("the namespace is let go of", |leader| !is_kept(leader)).await;
    assert_eq!(leader.rules.shared.owners.count(), 0, "nor of its owners");
    // One that comes later is heeded as if there had never been any.
    server.rule("web", budget(json!(1)));
    (0..3).for_each(|pod| server.finish(&format!("web-{pod}")));
    leader.until("all are in service", |leader| leader.server.out(4).is_empty()).await;
    (0..4).for_each(|pod| server.begin(&format!("web-{pod}")));
    leader.until("one is out", |leader| leader.server.out(4).len() == 1).await;
    let waits = |leader: &mut Leader, pod: usize| {
        let name = format!("web-{pod}");
        is_out(&leader.server, &name) || leader.look(&name).contains("blocked by max unavailable policy")
    };
    leader.until("the others wait", |leader| (0..4).all(|pod| waits(leader, pod))).await;
    assert!(is_kept(&leader) && server.labels("web-3").contains_key(SERVICE_AVAILABLE));
    leader.end().await;
}
