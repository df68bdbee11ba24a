//! Evictions, of both versions of the API.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::{Request, header::HeaderValue};
use podward_core::deletion::request::DeletionKind;
use podward_e2e::{Fixture, Test};
use podward_support::TrafficBehaviour;
use serde_json::{Value, json};

use super::objects::{
    deletion_request_of, deployment, is_delete_requested, make, too_many, until_gone, until_leaving,
    until_serving,
};

/// What the answer to an eviction that is recorded now begins with.
const RECORDED: &str = "Eviction triggered evacuation";
const TOOL: HeaderValue = HeaderValue::from_static("system:serviceaccount:argo-rollouts:argo-rollouts");

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("evictions_of_both_versions_are_held", evictions_of_both_versions_are_held),
        Test::simulated("evictions_by_a_tool_go_one_at_a_time", evictions_by_a_tool_go_one_at_a_time),
    ]
}

async fn evictions_of_both_versions_are_held(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["v1", "v1beta1"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let seven = json!({"gracePeriodSeconds": 7});
    for name in ["v1", "v1beta1"] {
        let held = [RECORDED, "is evicted automatically", traffic.finalizer()];
        too_many(evict(&fixture, name, name, seven.clone()).await, &held)?;
        let leaving = until_leaving(&fixture, name).await?;
        let request = deletion_request_of(&leaving).context("the pod has no deletion request")?;
        ensure!(
            (request.kind, request.grace_period_seconds) == (DeletionKind::Evict, Some(7)),
            "{request:?}"
        );
        too_many(evict(&fixture, name, name, seven.clone()).await, &["waits since 2", traffic.finalizer()])?;
    }
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    for name in ["v1", "v1beta1"] {
        until_gone(&fixture, name).await?;
        fixture.until_event(name, "PodEvicted").await?;
    }
    Ok(())
}

/// A tool that counts only accepted evictions evicts all pods of a workload without a budget.
async fn evictions_by_a_tool_go_one_at_a_time(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    make(&fixture, deployment(&fixture, "web", 3)).await?;
    let pods = until_serving(&fixture, "web", 3).await?;
    for (place, name) in pods.iter().take(2).enumerate() {
        traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
        too_many(evict_as_tool(&fixture, name).await, &[RECORDED])?;
        until_leaving(&fixture, name).await?;
        for other in &pods[place + 1..] {
            let refused = [other, name, "no PodDisruptionBudget selects it", "try again later"];
            too_many(evict_as_tool(&fixture, other).await, &refused)?;
            let is_requested = fixture.feed().get(other).is_none_or(|pod| is_delete_requested(&pod));
            ensure!(!is_requested, "the refused eviction of {other} is recorded");
        }
        traffic.set_behaviour(TrafficBehaviour::PROMPT);
        until_gone(&fixture, name).await?;
    }
    until_serving(&fixture, "web", 3).await.map(drop)
}

/// Evicts the pod as a service account with all rights.
async fn evict_as_tool(fixture: &Fixture, pod: &str) -> Result<Value, kube::Error> {
    let mut request = eviction(fixture, "v1", pod, json!({}))?;
    request.headers_mut().insert("impersonate-user", TOOL);
    request.headers_mut().insert("impersonate-group", HeaderValue::from_static("system:masters"));
    fixture.client().request(request).await
}

/// Evicts the pod with this version of the API.
pub(super) async fn evict(
    fixture: &Fixture,
    version: &str,
    pod: &str,
    options: Value,
) -> Result<Value, kube::Error> {
    fixture.client().request(eviction(fixture, version, pod, options)?).await
}

/// Returns the request that evicts the pod. It is written by hand, because kube sends the options under a name that the
/// API server does not know.
fn eviction(
    fixture: &Fixture,
    version: &str,
    pod: &str,
    options: Value,
) -> Result<Request<Vec<u8>>, kube::Error> {
    let eviction = json!({
        "apiVersion": format!("policy/{version}"),
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": fixture.namespace()},
        "deleteOptions": options,
    });
    let url = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", fixture.namespace());
    let request = Request::post(url).header("content-type", "application/json");
    request.body(eviction.to_string().into_bytes()).map_err(kube::Error::HttpError)
}
