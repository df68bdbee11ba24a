//! Rules that are created, changed and deleted while pods wait, and when operations begin.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use podward_api::PodTransitionRule;
use podward_core::keys::{self, Stage};
use podward_e2e::{Fixture, Test};
use podward_support::{WAIT, await_condition, pods, within};
use serde_json::json;

use super::objects::{
    at_most, begin_all, finish_all, names, patch, put, remove, rule, rule_for, rules_of, serving,
    until_at_work, until_refused, wants,
};

/// The number of pods that each get a rule of their own at the same time, and the number of rounds.
const RACERS: usize = 16;
const ROUNDS: usize = 4;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("rules_added_and_removed_while_pods_wait", added_and_removed),
        Test::simulated("rules_changed_while_pods_wait", changed),
        Test::simulated("rules_of_kuperator_can_be_deleted", of_kuperator),
        Test::simulated("rules_made_right_before_an_operation", made_right_before),
    ]
}

async fn added_and_removed(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", 4);
    serving(&fixture, &names, json!({})).await?;
    let rules = rules_of(&fixture);
    put(&rules, rule("one", json!([at_most("one", 1.into())]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &names).await?;
    let first = until_at_work(&fixture, &operator, 1).await?;
    let waiting: Vec<String> = names.iter().filter(|name| !first.contains(name)).cloned().collect();
    for name in &waiting {
        until_refused(&fixture, &operator, name, &["rule one/one: [one] blocked by max unavailable policy"])
            .await?;
    }
    put(&rules, rule("ready", json!([wants("backed-up", "backup")]))).await?;
    for name in &waiting {
        until_refused(&fixture, &operator, name, &["rule one/one", "rule ready/backed-up"]).await?;
    }
    // There is room now, but no pod may use it.
    finish_all(&fixture, &operator, &first).await?;
    for name in &waiting {
        let room = "rule one/one: there is room, which is granted when no other check refuses";
        until_refused(&fixture, &operator, name, &[room, "rule ready/backed-up"]).await?;
    }
    remove(&fixture, "ready").await?;
    let second = until_at_work(&fixture, &operator, 1).await?;
    remove(&fixture, "one").await?;
    let last: Vec<String> = waiting.iter().filter(|name| !second.contains(name)).cloned().collect();
    until_at_work(&fixture, &operator, 3).await?;
    finish_all(&fixture, &operator, &second).await?;
    finish_all(&fixture, &operator, &last).await
}

/// A larger limit allows more pods at once, a disabled rule allows all.
async fn changed(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", 4);
    serving(&fixture, &names, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([at_most("some", 1.into())]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &names).await?;
    until_at_work(&fixture, &operator, 1).await?;
    patch(&fixture, "web", json!({"spec": {"rules": [at_most("some", 2.into())]}})).await?;
    let two = until_at_work(&fixture, &operator, 2).await?;
    for waits in names.iter().filter(|name| !two.contains(name)) {
        until_refused(&fixture, &operator, waits, &["[max unavailable]=2/4, [current unavailable]=2/4"])
            .await?;
    }
    let mut disabled = at_most("some", 2.into());
    disabled["disabled"] = true.into();
    patch(&fixture, "web", json!({"spec": {"rules": [disabled]}})).await?;
    until_at_work(&fixture, &operator, 4).await?;
    finish_all(&fixture, &operator, &names).await
}

/// Only kuperator would remove the finalizer that it puts on each rule object.
async fn of_kuperator(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", 1);
    serving(&fixture, &names, json!({})).await?;
    let mut written = rule("never", json!([at_most("none", 0.into())]));
    written["metadata"]["finalizers"] = json!([keys::RULE_PROTECTION]);
    let rules = rules_of(&fixture);
    put(&rules, written).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &names).await?;
    until_refused(&fixture, &operator, &names[0], &["rule never/none"]).await?;
    remove(&fixture, "never").await?;
    let first = until_at_work(&fixture, &operator, 1).await?;
    let gone = await_condition(rules, "never", |rule: Option<&PodTransitionRule>| rule.is_none());
    within(WAIT, || "rule never until it is gone".to_owned(), async { gone.await.map(drop) }).await?;
    finish_all(&fixture, &operator, &first).await
}

/// The operation begins as soon as the API server has the rule, before any watch has received it. The rule holds
/// anyway.
async fn made_right_before(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", RACERS);
    for name in &names {
        serving(&fixture, std::slice::from_ref(name), json!({"racer": name})).await?;
    }
    for round in 0..ROUNDS {
        let operator = fixture.operator(&format!("updater-{round}"), "update");
        try_join_all(names.iter().map(|name| race(&fixture, &operator, name, round))).await?;
    }
    Ok(())
}

async fn race(
    fixture: &Fixture,
    operator: &podward_support::Operator,
    name: &str,
    round: usize,
) -> Result<()> {
    let (object, key) = (format!("{name}-{round}"), format!("round-{round}"));
    let selector = json!({"matchLabels": {"racer": name}});
    let new = rule_for(&object, selector, json!([wants("gate", &key)]));
    put(&rules_of(fixture), new).await?;
    operator.begin(name).await?;
    until_refused(fixture, operator, name, &[&format!("rule {object}/gate")]).await?;
    let pod = fixture.label(name, &[(&key, Some("yes"))]).await?;
    ensure!(!operator.has(&pod, Stage::Preparing), "let through before: {}", pods::describe(&pod));
    finish_all(fixture, operator, &[name.to_owned()]).await?;
    remove(fixture, &object).await
}
