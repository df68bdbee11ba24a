//! Evictions, of both versions of the API.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::Request;
use podward_core::wish::DeletionKind;
use podward_e2e::{Scene, Test};
use podward_support::Behaviour;
use serde_json::{Value, json};

use super::made::{too_many, until_gone, until_leaving, wish_of};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("evictions_of_both_versions_are_held", evictions_of_both_versions_are_held)]
}

async fn evictions_of_both_versions_are_held(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["v1", "v1beta1"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let seven = json!({"gracePeriodSeconds": 7});
    for name in ["v1", "v1beta1"] {
        let held = ["Eviction triggered evacuation", "is evicted by itself", traffic.finalizer()];
        too_many(evict(&scene, name, name, seven.clone()).await, &held)?;
        let leaving = until_leaving(&scene, name).await?;
        let wish = wish_of(&leaving).context("no wish stands on the pod")?;
        ensure!((wish.kind, wish.grace_period_seconds) == (DeletionKind::Evict, Some(7)), "{wish:?}");
        too_many(evict(&scene, name, name, seven.clone()).await, &["waits since 2", traffic.finalizer()])?;
    }
    traffic.behave(Behaviour::PROMPT);
    for name in ["v1", "v1beta1"] {
        until_gone(&scene, name).await?;
        scene.until_event(name, "PodEvicted").await?;
    }
    Ok(())
}

/// Evicts the pod by this version of the API. By hand: kube sends options under a name that the API server doesn't know.
pub(super) async fn evict(
    scene: &Scene,
    version: &str,
    pod: &str,
    options: Value,
) -> Result<Value, kube::Error> {
    let eviction = json!({
        "apiVersion": format!("policy/{version}"),
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": scene.namespace()},
        "deleteOptions": options,
    });
    let url = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", scene.namespace());
    let request = Request::post(url).header("content-type", "application/json");
    let request = request.body(eviction.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    scene.client().request(request).await
}
