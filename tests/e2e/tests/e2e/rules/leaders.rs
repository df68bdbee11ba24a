//! A budget across changes of leaders: one that is killed while pods ask, and one that sleeps and wakes.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join;
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::Stage;
use podward_e2e::{Scene, Service, Test};
use podward_support::Operator;
use serde_json::json;

use super::{
    count::outages,
    made::{at_most, begin_all, finish_all, names, put, rule, rules_of, serving, until_at_work},
};
use crate::controllers::{leader, next_leader};

const PODS: usize = 24;
/// A quarter of them.
const ROOM: usize = 6;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated_alone("rules_budget_when_the_leader_is_killed", leader_is_killed),
        Test::simulated_alone("rules_budget_when_the_leader_sleeps", leader_sleeps),
    ]
}

async fn set_up(scene: &Scene) -> Result<Vec<String>> {
    let names = names("web", PODS);
    serving(scene, &names, json!({})).await?;
    put(&rules_of(scene), rule("web", json!([at_most("a-quarter", "25%".into())]))).await?;
    Ok(names)
}

/// Has all pods ask, and gives the leader over to `work` when it has let the first one through.
async fn ask(
    scene: &Scene,
    operator: &Operator,
    names: &[String],
    work: impl AsyncFnOnce(&Service) -> Result<()>,
) -> Result<Service> {
    let old = leader(scene).await?;
    let first = async {
        let may = |pods: &[&Pod]| pods.iter().any(|pod| operator.has(pod, Stage::Operate));
        scene.feed().until_pods("the first pod may be worked on", may).await?;
        work(&old).await
    };
    try_join(begin_all(operator, names), first).await?;
    Ok(old)
}

async fn leader_is_killed(scene: Arc<Scene>) -> Result<()> {
    let names = set_up(&scene).await?;
    for round in 0..2 {
        let operator = scene.operator(&format!("updater-{round}"), "update");
        let old = ask(&scene, &operator, &names, async |leader| leader.kill().await).await?;
        let went_on = async {
            next_leader(&scene, &old).await?;
            until_at_work(&scene, &operator, ROOM).await
        };
        let went_on = went_on.await;
        old.start().await?;
        went_on?;
        finish_all(&scene, &operator, &names).await?;
    }
    let outages = outages(&scene, |_| true).await?;
    ensure!(outages.most == ROOM, "{} were out of service at a time", outages.most);
    Ok(())
}

/// It wakes in the belief that it leads, with what it knew then, when others have gone out of service.
async fn leader_sleeps(scene: Arc<Scene>) -> Result<()> {
    let names = set_up(&scene).await?;
    for round in 0..2 {
        let operator = scene.operator(&format!("updater-{round}"), "update");
        let old = ask(&scene, &operator, &names, async |leader| leader.freeze().await).await?;
        let went_on = async {
            next_leader(&scene, &old).await?;
            let first = until_at_work(&scene, &operator, ROOM).await?;
            finish_all(&scene, &operator, &first).await?;
            until_at_work(&scene, &operator, ROOM).await?;
            Ok::<_, anyhow::Error>(first)
        };
        let went_on = went_on.await;
        old.thaw().await?;
        let first = went_on?;
        let others: Vec<String> = names.iter().filter(|name| !first.contains(name)).cloned().collect();
        finish_all(&scene, &operator, &others).await?;
    }
    let outages = outages(&scene, |_| true).await?;
    ensure!(outages.most == ROOM, "{} were out of service at a time", outages.most);
    Ok(())
}
