//! Many pods that ask at once.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Scene, Test};
use serde_json::json;

use super::{
    count::outages,
    made::{
        at_most, begin_all, finish_all, names, put, rule, rules_of, serving, until_at_work, until_status,
    },
};

const PODS: usize = 200;
/// A quarter of them.
const ROOM: usize = 50;
/// What a status may have at most, in bytes.
const STATUS_LIMIT: usize = 256 * 1024;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("rules_two_hundred_under_a_quarter", two_hundred_under_a_quarter)]
}

async fn two_hundred_under_a_quarter(scene: Arc<Scene>) -> Result<()> {
    let names = names("web", PODS);
    serving(&scene, &names, json!({})).await?;
    put(&rules_of(&scene), rule("web", json!([at_most("a-quarter", "25%".into())]))).await?;
    let operator = scene.operator("updater", "update");
    begin_all(&operator, &names).await?;
    // Nobody finishes before the room is full.
    until_at_work(&scene, &operator, ROOM).await?;
    let waiting = u32::try_from(PODS - ROOM)?;
    let all_wait = |status: &podward_api::pod_transition_rule::PodTransitionRuleStatus| {
        status.waiting_count == Some(waiting)
    };
    let status = until_status(&scene, "web", "all others wait", all_wait).await?;
    let bytes = serde_json::to_vec(&status)?.len();
    ensure!(bytes < STATUS_LIMIT, "the status has {bytes} bytes");
    finish_all(&scene, &operator, &names).await?;
    let outages = outages(&scene, |_| true).await?;
    ensure!(outages.most == ROOM, "{} were out of service at a time", outages.most);
    ensure!(outages.order.len() == PODS, "{} pods had their operation", outages.order.len());
    Ok(())
}
