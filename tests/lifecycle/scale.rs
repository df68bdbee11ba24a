//! Many operations at once, on simulated nodes.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use podward_core::keys;
use podward_e2e::{CONSUMER, Fixture, Test};
use podward_support::{TrafficLoop, pods};
use serde_json::json;

const PODS: usize = 50;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("fifty_operations_at_once", fifty_operations_at_once)]
}

async fn fifty_operations_at_once(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let names: Vec<String> = (0..PODS).map(|number| format!("web-{number:02}")).collect();
    let labels = json!({keys::CONTROL_LABEL: "true"});
    let expected = pods::expecting("Traffic/test/loop", &TrafficLoop::finalizer_of(CONSUMER));
    let annotations = json!({keys::AVAILABLE_CONDITIONS: expected});
    try_join_all(names.iter().map(|name| fixture.create_with(name, &labels, &annotations))).await?;
    try_join_all(names.iter().map(|name| fixture.until_available(name))).await?;
    let operator = fixture.operator("updater", "update");
    try_join_all(names.iter().map(|name| operator.update(name, &fixture.images().v2))).await?;
    let report = fixture.timeline().verify(true).await?;
    let ended = report
        .pods
        .iter()
        .filter(|pod| pod.operations.len() == 1 && pod.operations[0].available_ms.is_some());
    ensure!(ended.count() == PODS, "not every pod had its operation");
    ensure!(names.iter().all(|name| traffic.sends_traffic_to(name)), "not every pod has its traffic back");
    Ok(())
}
