//! Evictions, of both versions of the API.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::Request;
use podward_core::deletion::request::DeletionKind;
use podward_e2e::{Fixture, Test};
use podward_support::TrafficBehaviour;
use serde_json::{Value, json};

use super::objects::{deletion_request_of, too_many, until_gone, until_leaving};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("evictions_of_both_versions_are_held", evictions_of_both_versions_are_held)]
}

async fn evictions_of_both_versions_are_held(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["v1", "v1beta1"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let seven = json!({"gracePeriodSeconds": 7});
    for name in ["v1", "v1beta1"] {
        let held = ["Eviction triggered evacuation", "is evicted automatically", traffic.finalizer()];
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

/// Evicts the pod with this version of the API. The request is written by hand, because kube sends the options under
/// a name that the API server does not know.
pub(super) async fn evict(
    fixture: &Fixture,
    version: &str,
    pod: &str,
    options: Value,
) -> Result<Value, kube::Error> {
    let eviction = json!({
        "apiVersion": format!("policy/{version}"),
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": fixture.namespace()},
        "deleteOptions": options,
    });
    let url = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", fixture.namespace());
    let request = Request::post(url).header("content-type", "application/json");
    let request = request.body(eviction.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    fixture.client().request(request).await
}
