//! How many pods may be out of service.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Scene, Test};
use serde_json::json;

use super::{
    count::outages,
    made::{
        at_most, begin_all, finish_all, names, put, rule, rule_for, rules_of, serving, until_at_work,
        until_refused,
    },
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

/// On a real node, with real restarts: an operator that asks for all at once gets one after the other.
async fn one_at_a_time(scene: Arc<Scene>) -> Result<()> {
    let names = names("web", 3);
    serving(&scene, &names, json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([at_most("one", 1.into())]))).await?;
    let operator = scene.operator("updater", "update");
    let image = &scene.images().v2;
    operator.update_all(&names, image, names.len()).await?;
    let outages = outages(&scene, |_| true).await?;
    ensure!(outages.most == 1 && outages.order.len() == names.len(), "{outages:?}");
    Ok(())
}

/// Each is kept, whichever is full, and who waits is told by which.
async fn two_budgets_on_one_pod(scene: Arc<Scene>) -> Result<()> {
    let (front, back) = (names("front", 4), names("back", 4));
    serving(&scene, &front, json!({"tier": "front"})).await?;
    serving(&scene, &back, json!({"tier": "back"})).await?;
    let rules = rules_of(&scene);
    put(&rules, rule("all", json!([at_most("half", "50%".into())]))).await?;
    let selector = json!({"matchLabels": {"tier": "front"}});
    put(&rules, rule_for("front", selector, json!([at_most("one", 1.into())]))).await?;
    let operator = scene.operator("updater", "update");
    begin_all(&operator, &front).await?;
    until_at_work(&scene, &operator, 1).await?;
    begin_all(&operator, &back).await?;
    let at_work = until_at_work(&scene, &operator, 4).await?;
    let of_front = at_work.iter().filter(|name| front.contains(name)).count();
    ensure!(of_front == 1, "{of_front} of the front's pods are worked on");
    for waits in front.iter().chain(&back).filter(|name| !at_work.contains(name)) {
        let full = "rule all/half: [half] blocked by max unavailable policy: [max unavailable]=4/8";
        until_refused(&scene, &operator, waits, &[full]).await?;
        if front.contains(waits) {
            let full = "rule front/one: [one] blocked by max unavailable policy: [max unavailable]=1/4";
            until_refused(&scene, &operator, waits, &[full]).await?;
        }
    }
    let all: Vec<String> = front.iter().chain(&back).cloned().collect();
    finish_all(&scene, &operator, &all).await?;
    let (of_all, of_front) =
        (outages(&scene, |_| true).await?, outages(&scene, |name| name.starts_with("front")).await?);
    ensure!(of_all.most == 4 && of_front.most == 1, "{of_all:?} {of_front:?}");
    Ok(())
}

/// `minAvailableValue`, a percentage that is rounded down.
async fn fewest_in_service(scene: Arc<Scene>) -> Result<()> {
    let names = names("web", 5);
    serving(&scene, &names, json!({})).await?;
    let half = json!({"name": "half", "availablePolicy": {"minAvailableValue": "50%"}});
    put(&rules_of(&scene), rule("web", json!([half]))).await?;
    let operator = scene.operator("updater", "update");
    begin_all(&operator, &names).await?;
    let at_work = until_at_work(&scene, &operator, 3).await?;
    for waits in names.iter().filter(|name| !at_work.contains(name)) {
        let full = "[half] blocked by min available policy: [min available]=2/5, [current available]=2/5";
        until_refused(&scene, &operator, waits, &[full]).await?;
    }
    finish_all(&scene, &operator, &names).await?;
    let outages = outages(&scene, |_| true).await?;
    ensure!(outages.most == 3, "{outages:?}");
    Ok(())
}

/// `expFunc`: of nine pods the square root; the stricter of two limits counts.
async fn amount_as_a_function(scene: Arc<Scene>) -> Result<()> {
    let names = names("web", 9);
    serving(&scene, &names, json!({})).await?;
    let root = json!({
        "name": "root",
        "availablePolicy": {
            "maxUnavailableValue": "100%",
            "maxUnavailablePolicy": {"expFunc": {"coeff": "1", "pow": "0.5"}},
        },
    });
    put(&rules_of(&scene), rule("web", json!([root]))).await?;
    let operator = scene.operator("updater", "update");
    begin_all(&operator, &names).await?;
    let at_work = until_at_work(&scene, &operator, 3).await?;
    for waits in names.iter().filter(|name| !at_work.contains(name)) {
        until_refused(&scene, &operator, waits, &["[max unavailable]=3/9"]).await?;
    }
    finish_all(&scene, &operator, &names).await?;
    let outages = outages(&scene, |_| true).await?;
    ensure!(outages.most == 3, "{outages:?}");
    Ok(())
}

/// In the order in which they began to ask, which is not that of their names.
async fn oldest_asker_first(scene: Arc<Scene>) -> Result<()> {
    let order = ["e", "c", "a", "d", "b"].map(str::to_owned);
    serving(&scene, &order, json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([at_most("one", 1.into())]))).await?;
    let operator = scene.operator("updater", "update");
    for name in &order {
        operator.begin(name).await?;
        // Asks from now on; the first one is let through at once.
        let asks = |pod: &_| {
            use podward_core::keys::Stage;
            operator.has(pod, Stage::PreCheck) || operator.has(pod, Stage::PreChecked)
        };
        scene.feed().until(name, "it asks", asks).await?;
    }
    finish_all(&scene, &operator, &order).await?;
    let outages = outages(&scene, |_| true).await?;
    ensure!(outages.order == order && outages.most == 1, "{outages:?}");
    Ok(())
}
