//! From the first list to the last call.

use futures::StreamExt;
use podward_core::hooks::{Answer, Hook};
use serde_json::json;

use super::hook_server::{HookServer, done};
use super::{ApiServer, HookArgs, PATIENCE, Rig, hook, pod, question};

fn names(hooks: &[std::sync::Arc<Hook>]) -> Vec<&str> {
    hooks.iter().map(|hook| hook.name.as_str()).collect()
}

#[tokio::test]
async fn nothing_is_known_without_the_resource_and_pods_wake_when_it_comes() {
    let api = ApiServer::without_hooks();
    api.put_namespace("shop", json!({}));
    let web = pod("web");
    let mut rig = Rig::start(api.clone(), HookArgs::default(), std::slice::from_ref(&web));
    // The namespaces are listed: that alone wakes it.
    assert!(rig.woken.next().await.is_some());
    assert!(rig.callbacks.hooks_for(&web).is_none() && rig.callbacks.known().iter().next().is_none());
    api.put_hook(hook("lb", json!({"attachment": {}})));
    api.install_hooks();
    rig.until(|rig| rig.callbacks.hooks_for(&web).is_some_and(|hooks| names(&hooks) == ["lb"])).await;
}

#[tokio::test]
async fn pods_wake_when_other_hooks_are_for_them() {
    let web = pod("web");
    let only_web = json!({"attachment": {}, "podSelector": {"matchLabels": {"app": "web"}}});
    let mut rig = Rig::with(&[hook("web", only_web)], std::slice::from_ref(&web)).await;
    let hooks = |rig: &Rig| rig.callbacks.hooks_for(&pod("web")).map(|hooks| names(&hooks).join(" "));
    assert_eq!(hooks(&rig).as_deref(), Some("web"));
    let elsewhere = pod("elsewhere");
    let mut value = json!({"metadata": {"name": "e", "namespace": "new", "uid": "e"}});
    assert!(
        rig.callbacks.hooks_for(&serde_json::from_value(value.take()).unwrap()).is_none(),
        "no such namespace"
    );
    assert!(rig.callbacks.hooks_for(&elsewhere).is_some());

    let team = json!({"attachment": {}, "namespaceSelector": {"matchLabels": {"team": "core"}}});
    rig.api.put_hook(hook("core", team));
    rig.api.status("core", |status| status["conditions"][0]["reason"] == "MatchesNoPod").await;
    assert_eq!(hooks(&rig).as_deref(), Some("web"));
    rig.api.put_namespace("shop", json!({"team": "core"}));
    rig.until(|rig| hooks(rig).as_deref() == Some("core web")).await;
    rig.api.delete_hook("web");
    rig.until(|rig| hooks(rig).as_deref() == Some("core")).await;
    assert!(rig.callbacks.known().get("web").is_none());
}

#[tokio::test]
async fn an_end_of_leadership_ends_everything() {
    let server = HookServer::start(|_| std::future::pending()).await;
    let mut rig = Rig::with(&[server.hook("lb", json!({}))], &[]).await;
    rig.callbacks.ask(&pod("a"), &[question("lb")]);
    let mut calls = server.calls.clone();
    tokio::time::timeout(PATIENCE, calls.wait_for(|calls| *calls == 1)).await.unwrap().unwrap();
    let callbacks = rig.callbacks.clone();
    rig.stop.cancel();
    callbacks.stopped().await;
    let mut ended = server.ended.clone();
    tokio::time::timeout(PATIENCE, ended.wait_for(|ended| *ended == 1)).await.unwrap().unwrap();
    while rig.woken.next().await.is_some() {}
    assert!(callbacks.hooks_for(&pod("a")).is_none());
    callbacks.ask(&pod("a"), &[question("lb")]);
    assert_eq!(rig.answer(&pod("a"), &question("lb")), None);
}

#[tokio::test]
async fn another_leader_asks_again() {
    let server = HookServer::start(|_| async { Ok(done("")) }).await;
    let mut rig = Rig::with(&[server.hook("lb", json!({}))], &[]).await;
    rig.ask_until_done(&pod("a"), &question("lb")).await;
    let api = rig.stop().await;
    let mut next = Rig::start(api, HookArgs::default(), &[]);
    next.ask_until_done(&pod("a"), &question("lb")).await;
    assert_eq!(*server.calls.borrow(), 2);
}

#[tokio::test]
async fn a_hook_that_moves_is_asked_where_it_is() {
    let old = HookServer::start(|_| std::future::pending()).await;
    let new = HookServer::start(|_| async { Ok(done("new")) }).await;
    let mut rig = Rig::with(&[old.hook("lb", json!({}))], &[]).await;
    let (web, question) = (pod("a"), question("lb"));
    rig.callbacks.ask(&web, std::slice::from_ref(&question));
    let mut calls = old.calls.clone();
    tokio::time::timeout(PATIENCE, calls.wait_for(|calls| *calls == 1)).await.unwrap().unwrap();
    assert_eq!(rig.answer(&web, &question), Some(Answer::Open { message: String::new() }));
    rig.api.put_hook(new.hook("lb", json!({})));
    assert_eq!(rig.ask_until_done(&web, &question).await, "new");
    let mut ended = old.ended.clone();
    tokio::time::timeout(PATIENCE, ended.wait_for(|ended| *ended == 1)).await.unwrap().unwrap();
}
