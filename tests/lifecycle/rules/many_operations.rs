//! Many operations that begin at once.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::{
    objects::{
        at_most, begin_all, finish_all, names, put, rule, rules_of, serving, until_at_work, until_status,
    },
    unavailable_pods::outages,
};

const PODS: usize = 200;
/// A quarter of the pods.
const ROOM: usize = 50;
/// The limit for the size of a status, in bytes.
const STATUS_LIMIT: usize = 256 * 1024;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("rules_two_hundred_under_a_quarter", two_hundred_under_a_quarter)]
}

async fn two_hundred_under_a_quarter(fixture: Arc<Fixture>) -> Result<()> {
    let names = names("web", PODS);
    serving(&fixture, &names, json!({})).await?;
    put(&rules_of(&fixture), rule("web", json!([at_most("a-quarter", "25%".into())]))).await?;
    let operator = fixture.operator("updater", "update");
    begin_all(&operator, &names).await?;
    // No operation finishes before the limit is reached.
    until_at_work(&fixture, &operator, ROOM).await?;
    let waiting = u32::try_from(PODS - ROOM)?;
    let all_wait = |status: &podward_api::pod_transition_rule::PodTransitionRuleStatus| {
        status.waiting_count == Some(waiting)
    };
    let status = until_status(&fixture, "web", "all others wait", all_wait).await?;
    let bytes = serde_json::to_vec(&status)?.len();
    ensure!(bytes < STATUS_LIMIT, "the status has {bytes} bytes");
    finish_all(&fixture, &operator, &names).await?;
    let outages = outages(&fixture, |_| true).await?;
    ensure!(outages.most == ROOM, "{} were out of service at a time", outages.most);
    ensure!(outages.order.len() == PODS, "{} pods had their operation", outages.order.len());
    Ok(())
}
