//! From the first list to the last call.

use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use podward_core::hooks::{Hook, HookAnswer, hook_finalizer};
use podward_kube_util::CachedPod;
use podward_support::{eventually, metrics_text};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::hook_server::{HookServer, done};
use super::{ApiServer, Fixture, HookArgs, TEST_TIMEOUT, hook, pod, question};

fn names(hooks: &[Arc<Hook>]) -> Vec<&str> {
    hooks.iter().map(|hook| hook.name.as_str()).collect()
}

#[tokio::test]
async fn pods_wait_for_the_resource_definition_and_continue_when_it_exists() {
    let api = ApiServer::without_hooks();
    api.put_namespace("shop", json!({}));
    let web = pod("web");
    let mut fixture = Fixture::start(api.clone(), HookArgs::default(), std::slice::from_ref(&web));
    let mut registry = Registry::default();
    fixture.watches.register(&mut registry);
    let failing = |value: u8| {
        metrics_text(&registry).contains(&format!("watch_failing{{watch=\"lifecyclehooks\"}} {value}\n"))
    };
    // The namespaces are listed: that alone wakes it.
    assert!(fixture.woken.next().await.is_some());
    eventually(TEST_TIMEOUT, || metrics_text(&registry), || failing(1)).await.unwrap();
    assert!(fixture.hook_calls.hooks_for(&web).is_none());
    api.put_hook(hook("lb", json!({"attachment": {}})));
    api.install_hooks();
    fixture
        .until(|fixture| fixture.hook_calls.hooks_for(&web).is_some_and(|(hooks, _)| names(&hooks) == ["lb"]))
        .await;
    assert!(failing(0), "{}", metrics_text(&registry));
}

#[tokio::test]
async fn a_refused_spec_is_in_the_metrics_until_it_is_valid_or_the_hook_is_deleted() {
    let valid = |name: &str| hook(name, json!({"attachment": {}}));
    let refused = |name: &str| hook(name, json!({"attachment": {}, "phases": []}));
    let fixture = Fixture::with(&[valid("changed"), refused("new")], &[]).await;
    let mut registry = Registry::default();
    fixture.metrics.register(&mut registry);
    let has = |line: &str| metrics_text(&registry).contains(line);
    let until = async |is_met: &dyn Fn() -> bool| {
        eventually(TEST_TIMEOUT, || metrics_text(&registry), is_met).await.unwrap();
    };
    until(&|| has(r#"hook_rejected{hook="new"} 1"#)).await;
    assert!(has(r#"hook_reachable{hook="new"} 0"#), "nothing calls it");
    assert!(!has(r#"hook_rejected{hook="changed"}"#));
    // What was valid before is in force still.
    fixture.api.put_hook(refused("changed"));
    until(&|| has(r#"hook_rejected{hook="changed"} 1"#)).await;
    fixture.api.put_hook(valid("changed"));
    until(&|| !has(r#"hook_rejected{hook="changed"}"#)).await;
    fixture.api.delete_hook("new");
    until(&|| !has(r#"hook="new""#)).await;
}

#[tokio::test]
async fn pods_wake_when_other_hooks_are_for_them() {
    let web = pod("web");
    let only_web = json!({"attachment": {}, "podSelector": {"matchLabels": {"app": "web"}}});
    let mut fixture = Fixture::with(&[hook("web", only_web)], std::slice::from_ref(&web)).await;
    let hooks = |fixture: &Fixture| {
        fixture.hook_calls.hooks_for(&pod("web")).map(|(hooks, _)| names(&hooks).join(" "))
    };
    assert_eq!(hooks(&fixture).as_deref(), Some("web"));
    let elsewhere = pod("elsewhere");
    let mut value = json!({"metadata": {"name": "e", "namespace": "new", "uid": "e"}});
    assert!(
        fixture.hook_calls.hooks_for(&serde_json::from_value(value.take()).unwrap()).is_none(),
        "no such namespace"
    );
    assert!(fixture.hook_calls.hooks_for(&elsewhere).is_some());

    let team = json!({"attachment": {}, "namespaceSelector": {"matchLabels": {"team": "core"}}});
    fixture.api.put_hook(hook("core", team));
    fixture.api.status("core", |status| status["conditions"][0]["reason"] == "MatchesNoPod").await;
    assert_eq!(hooks(&fixture).as_deref(), Some("web"));
    fixture.api.put_namespace("shop", json!({"team": "core"}));
    fixture.until(|fixture| hooks(fixture).as_deref() == Some("core web")).await;
    fixture.api.delete_hook("web");
    fixture.until(|fixture| hooks(fixture).as_deref() == Some("core")).await;
    assert!(fixture.hook_calls.hooks_for(&pod("web")).unwrap().1.get("web").is_none());
}

/// Returns a pod that has the finalizer of the hook `lb`.
fn held_by_lb() -> Arc<CachedPod> {
    let value = json!({"metadata": {
        "name": "held", "namespace": "shop", "uid": "uid-held", "labels": {"app": "other"},
        "finalizers": [hook_finalizer("lb")],
    }});
    Arc::new(serde_json::from_value(value).unwrap())
}

/// Runs `change` and waits until it wakes the pod of [`held_by_lb`].
async fn until_it_wakes_held(fixture: &mut Fixture, change: impl FnOnce(&ApiServer)) {
    // All pods are woken when the hooks and the namespaces are listed.
    while fixture.woken.next().now_or_never().is_some() {}
    change(&fixture.api);
    let woken = async { while fixture.woken.next().await.expect("the stream ended").name != "held" {} };
    tokio::time::timeout(TEST_TIMEOUT, woken).await.expect("it was not woken");
}

#[tokio::test]
async fn a_pod_that_a_hook_holds_and_does_not_select_wakes_when_the_hook_changes_and_is_deleted() {
    let with = |policy: &str| {
        let selector = json!({"matchLabels": {"app": "web"}});
        hook("lb", json!({"attachment": {}, "podSelector": selector, "deadlinePolicy": policy}))
    };
    let mut fixture = Fixture::with(&[with("Hold")], &[held_by_lb()]).await;
    until_it_wakes_held(&mut fixture, |api| api.put_hook(with("Proceed"))).await;
    until_it_wakes_held(&mut fixture, |api| api.delete_hook("lb")).await;
}

#[tokio::test]
async fn a_pod_that_an_invalid_hook_holds_wakes_when_the_hook_is_deleted() {
    let invalid = hook("lb", json!({"attachment": {}, "phases": []}));
    let mut fixture = Fixture::with(&[invalid], &[held_by_lb()]).await;
    until_it_wakes_held(&mut fixture, |api| api.delete_hook("lb")).await;
}

#[tokio::test]
async fn an_end_of_leadership_ends_everything() {
    let server = HookServer::start(|_| std::future::pending()).await;
    let mut fixture = Fixture::with(&[server.hook("lb", json!({}))], &[]).await;
    fixture.hook_calls.ask(&pod("a"), &[question("lb")]);
    let mut calls = server.calls.clone();
    tokio::time::timeout(TEST_TIMEOUT, calls.wait_for(|calls| *calls == 1)).await.unwrap().unwrap();
    let hook_calls = fixture.hook_calls.clone();
    let (responsible, known) = hook_calls.hooks_for(&pod("a")).unwrap();
    fixture.stop.cancel();
    hook_calls.stopped().await;
    let mut ended = server.ended.clone();
    tokio::time::timeout(TEST_TIMEOUT, ended.wait_for(|ended| *ended == 1)).await.unwrap().unwrap();
    // A decision that began before does not take the end for the deletion of all hooks.
    assert!(names(&responsible) == ["lb"] && known.get("lb").is_some());
    while fixture.woken.next().await.is_some() {}
    assert!(hook_calls.hooks_for(&pod("a")).is_none());
    hook_calls.ask(&pod("a"), &[question("lb")]);
    assert_eq!(fixture.answer(&pod("a"), &question("lb")), None);
}

#[tokio::test]
async fn another_leader_asks_again() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let mut fixture = Fixture::with(&[server.hook("lb", json!({}))], &[]).await;
    fixture.ask_until_done(&pod("a"), &question("lb")).await;
    let api = fixture.stop().await;
    let mut next = Fixture::start(api, HookArgs::default(), &[]);
    next.ask_until_done(&pod("a"), &question("lb")).await;
    assert_eq!(*server.calls.borrow(), 2);
}

#[tokio::test]
async fn a_hook_that_was_made_again_is_asked_again() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let mut fixture = Fixture::with(&[server.hook("lb", json!({}))], &[]).await;
    fixture.ask_until_done(&pod("a"), &question("lb")).await;
    fixture.api.replace_hook("lb");
    let mut calls = server.calls.clone();
    tokio::time::timeout(TEST_TIMEOUT, calls.wait_for(|calls| *calls == 2)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_hook_that_moves_is_asked_where_it_is() {
    let old = HookServer::start(|_| std::future::pending()).await;
    let new = HookServer::start(|_| async { Ok(done("new")) }).await;
    let mut fixture = Fixture::with(&[old.hook("lb", json!({}))], &[]).await;
    let (web, question) = (pod("a"), question("lb"));
    fixture.hook_calls.ask(&web, std::slice::from_ref(&question));
    let mut calls = old.calls.clone();
    tokio::time::timeout(TEST_TIMEOUT, calls.wait_for(|calls| *calls == 1)).await.unwrap().unwrap();
    assert_eq!(fixture.answer(&web, &question), Some(HookAnswer::Open { message: String::new() }));
    fixture.api.put_hook(new.hook("lb", json!({})));
    assert_eq!(fixture.ask_until_done(&web, &question).await, "new");
    let mut ended = old.ended.clone();
    tokio::time::timeout(TEST_TIMEOUT, ended.wait_for(|ended| *ended == 1)).await.unwrap().unwrap();
}
