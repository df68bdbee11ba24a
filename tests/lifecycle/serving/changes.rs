//! Services and labels that change while a pod is drained or added to traffic.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::{Value, json};

use super::service_fixture::{
    OwnSlice, allow_slices, crowd, forbid_slices, in_service, is_held, labels, lost_nothing, of_app, operate,
    proves, serve, services, until_message_contains,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("services_that_change_while_a_pod_is_added", services_that_change_while_a_pod_is_added),
        Test::serving(
            "services_that_change_while_a_pod_is_drained",
            services_that_change_while_a_pod_is_drained,
        ),
        Test::serving("a_service_that_is_gone_without_its_slices", a_service_that_is_gone_without_its_slices),
        Test::serving("a_pod_that_leaves_its_service", a_pod_that_leaves_its_service),
    ]
}

async fn change(fixture: &Fixture, service: &str, change: Value) -> Result<()> {
    let changed = services(fixture).patch(service, &PatchParams::default(), &Patch::Merge(&change)).await;
    changed.map(drop).with_context(|| format!("change Service {service}"))
}

async fn remove(fixture: &Fixture, service: &str) -> Result<()> {
    services(fixture).delete(service, &DeleteParams::default()).await.context("delete a Service")?;
    Ok(())
}

/// Each of these pods has a Service that does not list it yet, so it is not available. Then the Service is deleted,
/// selects other pods, or lists it after all; or the pod leaves the Service.
async fn services_that_change_while_a_pod_is_added(fixture: Arc<Fixture>) -> Result<()> {
    forbid_slices(&fixture).await?;
    let all = ["deleted", "turns", "leaves", "named"];
    for name in all {
        fixture.create_with(name, &labels(name), &json!({})).await?;
    }
    // One Service exists before the pod is checked, the others when it has long been available: then an operation has
    // to add it again.
    let operator = fixture.operator("a", "update");
    for name in all {
        fixture.until_available(name).await?;
        operator.begin(name).await?;
        operator.await_operate(name).await?;
        serve(&fixture, name, of_app(name)).await?;
        operator.finish(name).await?;
    }
    for name in all {
        let says = ["COMPLETE", "no EndpointSlice of Service", "lists the pod yet"];
        let waits = until_message_contains(&fixture, name, &says).await?;
        ensure!(!pods::is_available(&waits) && !is_held(&waits), "{}", pods::describe(&waits));
    }
    remove(&fixture, "deleted").await?;
    change(&fixture, "turns", json!({"spec": {"selector": {"app": "others"}}})).await?;
    fixture.label("leaves", &[("app", Some("nobody"))]).await?;
    for name in ["deleted", "turns", "leaves"] {
        operator.await_end(name).await?;
    }
    let waits = fixture.feed().get("named").context("pod named is gone")?;
    ensure!(!pods::is_available(&waits), "available without its Service: {}", pods::describe(&waits));
    allow_slices(&fixture).await?;
    // The controller of slices pauses after failures. A change of the Service triggers it.
    change(&fixture, "named", json!({"metadata": {"annotations": {"example.com/wake": "up"}}})).await?;
    operator.await_end("named").await
}

/// One Service holds a pod. Meanwhile another one is created, one is deleted, and one stops selecting the pod. The
/// pod gets its permission when the first one has released it, and is available when the new one lists it.
async fn services_that_change_while_a_pod_is_drained(fixture: Arc<Fixture>) -> Result<()> {
    for name in ["goes", "turns"] {
        serve(&fixture, name, of_app("web")).await?;
    }
    in_service(&fixture, "web", ["web-0", "web-1"]).await?;
    let own = OwnSlice::open(&fixture, "own").await?;
    own.show("web-0", true, true).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web-0").await?;
    let held = until_message_contains(
        &fixture,
        "web-0",
        &["PREPARE", "of Service", "own still shows the pod as ready"],
    )
    .await?;
    ensure!(!operator.has(&held, Stage::Operate), "allowed while a slice shows it");
    serve(&fixture, "came", of_app("web")).await?;
    let crowd = crowd(&fixture, "came").await?;
    remove(&fixture, "goes").await?;
    change(&fixture, "turns", json!({"spec": {"selector": {"app": "others"}}})).await?;
    own.show("web-0", true, false).await?;
    let allowed = operator.await_operate("web-0").await?;
    proves(&allowed, "BOUNDED", &["came", "own"])?;
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;
    // Now the new Service counts.
    proves(
        &*operate(&fixture, "web-0").await?,
        "BOUNDED",
        &["came", "kube-proxy of 1 node has applied the change"],
    )?;
    lost_nothing(crowd).await
}

/// Slices that users write stay when their Service is deleted. They route no traffic then, and hold no pod.
async fn a_service_that_is_gone_without_its_slices(fixture: Arc<Fixture>) -> Result<()> {
    in_service(&fixture, "web", ["web"]).await?;
    let own = OwnSlice::open(&fixture, "own").await?;
    own.show("web", true, true).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    until_message_contains(&fixture, "web", &["PREPARE", "own still shows the pod as ready"]).await?;
    remove(&fixture, "own").await?;
    let allowed = operator.await_operate("web").await?;
    proves(&allowed, "BOUNDED", &["own", "is deleted"])?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// A pod whose labels change leaves its Service. The requests that it already has are waited for.
async fn a_pod_that_leaves_its_service(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["web-0", "web-1", "web-2"]).await?;
    let crowd = crowd(&fixture, "web").await?;
    let operator = fixture.operator("a", "update");
    // One leaves before the operation, and one in the middle of it.
    fixture.label("web-0", &[("app", Some("debug"))]).await?;
    operator.begin("web-0").await?;
    operator.begin("web-1").await?;
    fixture.label("web-1", &[("app", Some("debug"))]).await?;
    for pod in ["web-0", "web-1"] {
        let allowed = operator.await_operate(pod).await?;
        proves(
            &allowed,
            "BOUNDED",
            &["no Service selects the pod", "kube-proxy of 1 node has applied the change"],
        )?;
        operator.set_image(pod, &fixture.images().v2).await?;
        operator.await_image(&allowed, &fixture.images().v2).await?;
        operator.finish(pod).await?;
        operator.await_end(pod).await?;
    }
    // The pod joins the Service again.
    fixture.label("web-0", &[("app", Some("web"))]).await?;
    proves(&*operate(&fixture, "web-0").await?, "BOUNDED", &["not ready in 1 slice of Service"])?;
    lost_nothing(crowd).await
}
