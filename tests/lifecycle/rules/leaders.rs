//! A limit across changes of leaders: one is killed while operations begin, one is frozen and continues.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join;
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::Stage;
use podward_e2e::{Fixture, ServiceInstance, Test};
use podward_support::Operator;
use serde_json::json;

use super::{
    objects::{at_most, begin_all, finish_all, names, put, rule, rules_of, serving, until_at_work},
    unavailable_pods::outages,
};
use crate::controllers::{leader, next_leader};

const PODS: usize = 24;
/// A quarter of the pods.
const ROOM: usize = 6;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated_alone("rules_budget_when_the_leader_is_killed", leader_is_killed),
        Test::simulated_alone("rules_budget_when_the_leader_sleeps", leader_sleeps),
    ]
}

async fn set_up(fixture: &Fixture) -> Result<Vec<String>> {
    let names = names("web", PODS);
    serving(fixture, &names, json!({})).await?;
    put(&rules_of(fixture), rule("web", json!([at_most("a-quarter", "25%".into())]))).await?;
    Ok(names)
}

/// Begins operations on all pods, and passes the leader to `work` when it has allowed the first one.
async fn ask(
    fixture: &Fixture,
    operator: &Operator,
    names: &[String],
    work: impl AsyncFnOnce(&ServiceInstance) -> Result<()>,
) -> Result<ServiceInstance> {
    let old = leader(fixture).await?;
    let first = async {
        let may = |pods: &[&Pod]| pods.iter().any(|pod| operator.has(pod, Stage::Operate));
        fixture.feed().until_pods("the first pod may be worked on", may).await?;
        work(&old).await
    };
    try_join(begin_all(operator, names), first).await?;
    Ok(old)
}

async fn leader_is_killed(fixture: Arc<Fixture>) -> Result<()> {
    let names = set_up(&fixture).await?;
    for round in 0..2 {
        let operator = fixture.operator(&format!("updater-{round}"), "update");
        let old = ask(&fixture, &operator, &names, async |leader| leader.kill().await).await?;
        let went_on = async {
            next_leader(&fixture, &old).await?;
            until_at_work(&fixture, &operator, ROOM).await
        };
        let went_on = went_on.await;
        old.start().await?;
        went_on?;
        finish_all(&fixture, &operator, &names).await?;
    }
    let outages = outages(&fixture, |_| true).await?;
    ensure!(outages.most == ROOM, "{} were out of service at a time", outages.most);
    Ok(())
}

/// It continues as leader with an outdated state, when other pods are unavailable.
async fn leader_sleeps(fixture: Arc<Fixture>) -> Result<()> {
    let names = set_up(&fixture).await?;
    for round in 0..2 {
        let operator = fixture.operator(&format!("updater-{round}"), "update");
        let old = ask(&fixture, &operator, &names, async |leader| leader.freeze().await).await?;
        let went_on = async {
            next_leader(&fixture, &old).await?;
            let first = until_at_work(&fixture, &operator, ROOM).await?;
            finish_all(&fixture, &operator, &first).await?;
            until_at_work(&fixture, &operator, ROOM).await?;
            Ok::<_, anyhow::Error>(first)
        };
        let went_on = went_on.await;
        old.thaw().await?;
        let first = went_on?;
        let others: Vec<String> = names.iter().filter(|name| !first.contains(name)).cloned().collect();
        finish_all(&fixture, &operator, &others).await?;
    }
    let outages = outages(&fixture, |_| true).await?;
    ensure!(outages.most == ROOM, "{} were out of service at a time", outages.most);
    Ok(())
}
