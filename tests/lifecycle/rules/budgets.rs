//! Limits for the number of unavailable pods.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::{
    objects::{
        at_most, begin_all, finish_all, names, put, rule, rule_for, rules_of, serving, until_at_work,
        until_refused,
    },
    unavailable_pods::outages,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("rules_one_at_a_time", one_at_a_time),
        Test::simulated("rules_two_budgets_on_one_pod", two_budgets_on_one_pod),
        Test::simulated("rules_fewest_in_service", fewest_in_service),
        Test::simulated("rules_amount_as_a_function", amount_as_a_function),
        Test::simulated("rules_oldest_asker_first", oldest_asker_first),
    ]
}

/// On a real node, with real restarts: an operator that requests all pods at once gets one after the other.
async fn one_at_a_time(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", 3);
    serving(&fixture, &names, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([at_most("one", 1.into())]))).await?;
    let operator = fixture.operator("updater", "update");
    let image = &fixture.images().v2;
    operator.update_all(&names, image, names.len()).await?;
    let outages = outages(&fixture, |_| true).await?;
    ensure!(outages.most == 1 && outages.order.len() == names.len(), "{outages:?}");
    Ok(())
}

/// Each limit holds, whichever is reached, and the condition names the one that a pod waits for.
async fn two_budgets_on_one_pod(fixture: Arc<Fixture>) -> Result<()> {
    let (front, back) = (names("front", 4), names("back", 4));
    serving(&fixture, &front, json!({"tier": "front"})).await?;
    serving(&fixture, &back, json!({"tier": "back"})).await?;
    let rules = rules_of(&fixture);
    put(&rules, rule("all", json!([at_most("half", "50%".into())]))).await?;
    let selector = json!({"matchLabels": {"tier": "front"}});
    put(&rules, rule_for("front", selector, json!([at_most("one", 1.into())]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &front).await?;
    until_at_work(&fixture, &operator, 1).await?;
    begin_all(&operator, &back).await?;
    let at_work = until_at_work(&fixture, &operator, 4).await?;
    let of_front = at_work.iter().filter(|name| front.contains(name)).count();
    ensure!(of_front == 1, "{of_front} of the front's pods are worked on");
    for waits in front.iter().chain(&back).filter(|name| !at_work.contains(name)) {
        let full = "rule all/half: [half] blocked by max unavailable policy: [max unavailable]=4/8";
        until_refused(&fixture, &operator, waits, &[full]).await?;
        if front.contains(waits) {
            let full = "rule front/one: [one] blocked by max unavailable policy: [max unavailable]=1/4";
            until_refused(&fixture, &operator, waits, &[full]).await?;
        }
    }
    let all: Vec<String> = front.iter().chain(&back).cloned().collect();
    finish_all(&fixture, &operator, &all).await?;
    let (of_all, of_front) =
        (outages(&fixture, |_| true).await?, outages(&fixture, |name| name.starts_with("front")).await?);
    ensure!(of_all.most == 4 && of_front.most == 1, "{of_all:?} {of_front:?}");
    Ok(())
}

/// `minAvailableValue`, a percentage that is rounded down.
async fn fewest_in_service(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", 5);
    serving(&fixture, &names, json!({})).await?;
    let half = json!({"name": "half", "availablePolicy": {"minAvailableValue": "50%"}});
    put(&rules_of(&fixture), rule("web", json!([half]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &names).await?;
    let at_work = until_at_work(&fixture, &operator, 3).await?;
    for waits in names.iter().filter(|name| !at_work.contains(name)) {
        let full = "[half] blocked by min available policy: [min available]=2/5, [current available]=2/5";
        until_refused(&fixture, &operator, waits, &[full]).await?;
    }
    finish_all(&fixture, &operator, &names).await?;
    let outages = outages(&fixture, |_| true).await?;
    ensure!(outages.most == 3, "{outages:?}");
    Ok(())
}

/// `expFunc`: the square root of nine pods. The stricter of two limits counts.
async fn amount_as_a_function(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", 9);
    serving(&fixture, &names, json!({})).await?;
    let root = json!({
        "name": "root",
        "availablePolicy": {
            "maxUnavailableValue": "100%",
            "maxUnavailablePolicy": {"expFunc": {"coeff": "1", "pow": "0.5"}},
        },
    });
    put(&rules_of(&fixture), rule("web", json!([root]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &names).await?;
    let at_work = until_at_work(&fixture, &operator, 3).await?;
    for waits in names.iter().filter(|name| !at_work.contains(name)) {
        until_refused(&fixture, &operator, waits, &["[max unavailable]=3/9"]).await?;
    }
    finish_all(&fixture, &operator, &names).await?;
    let outages = outages(&fixture, |_| true).await?;
    ensure!(outages.most == 3, "{outages:?}");
    Ok(())
}

/// In the order in which the operations began, which is not that of the pods' names.
async fn oldest_asker_first(fixture: Arc<Fixture>) -> Result<()> {
    let order = ["e", "c", "a", "d", "b"].map(str::to_owned);
    serving(&fixture, &order, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([at_most("one", 1.into())]))).await?;
    let operator = fixture.operator("updater", "update");
    for name in &order {
        operator.begin(name).await?;
        // The operation begins now. The first one is allowed at once.
        let asks = |pod: &_| {
            use podward_core::keys::Stage;
            operator.has(pod, Stage::PreCheck) || operator.has(pod, Stage::PreChecked)
        };
        fixture.feed().until(name, "it asks", asks).await?;
    }
    finish_all(&fixture, &operator, &order).await?;
    let outages = outages(&fixture, |_| true).await?;
    ensure!(outages.order == order && outages.most == 1, "{outages:?}");
    Ok(())
}
