//! EndpointSlices that contradict a pod.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::{Value, json};

use super::asked::{create, pod, until_said};
use crate::deletion::own_nodes::OwnNode;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("why_an_endpoint_slice_contradicts_a_pod", contradicted),
        Test::simulated("why_no_endpoint_slice_lists_a_pod", not_listed),
    ]
}

async fn service(fixture: &Fixture, name: &str, spec: Value) -> Result<()> {
    let mut all = json!({"ports": [{"port": 80, "targetPort": 8080}]});
    super::asked::change(&mut all, spec);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": all});
    create(fixture, service).await
}

/// Creates an EndpointSlice that no controller of the cluster manages.
async fn slice(fixture: &Fixture, service: &str, name: &str, endpoint: Value) -> Result<()> {
    let labels = json!({
        "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "mesh.example.com",
    });
    create(
        fixture,
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": labels},
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}], "endpoints": [endpoint],
        }),
    )
    .await
}

/// Slices of another controller, whose endpoints name the pod or only its address.
async fn contradicted(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    pod(&fixture, "web", json!({}), json!({})).await?;
    let web = fixture.feed().until("web", "it is Ready", pods::is_ready).await?;
    let ip = web.status.as_ref().and_then(|status| status.pod_ip.clone()).context("it has no address")?;
    service(&fixture, "web", json!({"selector": {"app": "web"}})).await?;
    service(&fixture, "mesh", json!({})).await?;
    let reference = json!({"kind": "Pod", "namespace": fixture.namespace(), "name": "web", "uid": web.uid()});
    let endpoint =
        |ready: bool| json!({"addresses": [ip], "conditions": {"ready": ready}, "targetRef": reference});
    slice(&fixture, "web", "by-mesh", endpoint(false)).await?;
    let words = "is Ready, and EndpointSlice by-mesh of Service web, which mesh.example.com manages, lists it as not ready";
    let said = until_said(&fixture, "web", words, &["Service web: ready true"]).await?;
    let next = format!("; next: kubectl -n {} get endpointslice by-mesh -o yaml", fixture.namespace());
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    fixture.kubectl(&["delete", "endpointslice", "by-mesh"]).await?.succeeded()?;

    let gated = json!({"readinessGates": [{"conditionType": "example.com/load-balancer"}]});
    pod(&fixture, "gated", gated, json!({})).await?;
    let has_address = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())
    };
    let gated = fixture.feed().until("gated", "it has an address", has_address).await?;
    let ip = gated.status.as_ref().and_then(|status| status.pod_ip.clone());
    slice(&fixture, "mesh", "of-addresses", json!({"addresses": [ip], "conditions": {"ready": true}}))
        .await?;
    let words = "the condition of its readiness gate example.com/load-balancer was never written";
    let also = "also: is not Ready, and EndpointSlice of-addresses of Service mesh, which mesh.example.com manages, \
                lists it as ready, so that it gets traffic";
    until_said(&fixture, "gated", words, &[also]).await.map(drop)
}

/// The EndpointSlice controller leaves pods out whose node it does not find.
async fn not_listed(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "gone", 2, true).await?;
    let mut here = json!({});
    node.place(&mut here);
    pod(&fixture, "web", here, json!({})).await?;
    fixture.feed().until("web", "it is Ready", pods::is_ready).await?;
    let name = node.name.clone();
    node.remove().await?;
    service(&fixture, "web", json!({"selector": {"app": "web"}})).await?;
    let words = format!("is Ready, and its node {name} does not exist any more");
    let also = format!(
        "also: is Ready, and no EndpointSlice of Service web lists it; next: kubectl -n {} get endpointslices -l \
         kubernetes.io/service-name=web -o yaml",
        fixture.namespace()
    );
    until_said(&fixture, "web", &words, &[&also]).await.map(drop)
}
