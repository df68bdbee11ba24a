//! Services and labels that change while a pod is let go or taken in.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use podward_core::keys::Stage;
use podward_e2e::{Scene, Test};
use podward_support::pods;
use serde_json::{Value, json};

use super::place::{
    OwnSlice, allow_slices, crowd, forbid_slices, in_service, is_held, labels, lost_nothing, of_app, operate,
    proves, serve, services, until_it_says,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving(
            "services_that_change_while_a_pod_is_taken_in",
            services_that_change_while_a_pod_is_taken_in,
        ),
        Test::serving("services_that_change_while_a_pod_lets_go", services_that_change_while_a_pod_lets_go),
        Test::serving("a_service_that_is_gone_without_its_slices", a_service_that_is_gone_without_its_slices),
        Test::serving("a_pod_that_leaves_its_service", a_pod_that_leaves_its_service),
    ]
}

async fn change(scene: &Scene, service: &str, change: Value) -> Result<()> {
    let changed = services(scene).patch(service, &PatchParams::default(), &Patch::Merge(&change)).await;
    changed.map(drop).with_context(|| format!("change Service {service}"))
}

async fn remove(scene: &Scene, service: &str) -> Result<()> {
    services(scene).delete(service, &DeleteParams::default()).await.context("delete a Service")?;
    Ok(())
}

/// Each of these pods has a Service that doesn't name it yet, and so is not taken in. Then the Service is deleted, selects others, or
/// names it after all; or the pod leaves it.
async fn services_that_change_while_a_pod_is_taken_in(scene: Arc<Scene>) -> Result<()> {
    forbid_slices(&scene).await?;
    let all = ["deleted", "turns", "leaves", "named"];
    for name in all {
        scene.create_with(name, &labels(name), &json!({})).await?;
    }
    // One comes before the pod is asked about, the others when it has long been available: then an operation has to take it in again.
    let operator = scene.operator("a", "update");
    for name in all {
        scene.until_available(name).await?;
        operator.begin(name).await?;
        operator.await_operate(name).await?;
        serve(&scene, name, of_app(name)).await?;
        operator.finish(name).await?;
    }
    for name in all {
        let says = ["COMPLETE", "no EndpointSlice of Service", "names the pod yet"];
        let waits = until_it_says(&scene, name, &says).await?;
        ensure!(!pods::is_available(&waits) && !is_held(&waits), "{}", pods::describe(&waits));
    }
    remove(&scene, "deleted").await?;
    change(&scene, "turns", json!({"spec": {"selector": {"app": "others"}}})).await?;
    scene.label("leaves", &[("app", Some("nobody"))]).await?;
    for name in ["deleted", "turns", "leaves"] {
        operator.await_end(name).await?;
    }
    let waits = scene.feed().get("named").context("pod named is gone")?;
    ensure!(!pods::is_available(&waits), "available without its Service: {}", pods::describe(&waits));
    allow_slices(&scene).await?;
    // The controller of slices has given up for a while; a change of the Service wakes it.
    change(&scene, "named", json!({"metadata": {"annotations": {"example.com/wake": "up"}}})).await?;
    operator.await_end("named").await
}

/// A pod is held by one Service. Meanwhile another one comes, one goes, and one turns away; the pod is allowed when the first has let
/// go, and back when the one that came leads to it.
async fn services_that_change_while_a_pod_lets_go(scene: Arc<Scene>) -> Result<()> {
    for name in ["goes", "turns"] {
        serve(&scene, name, of_app("web")).await?;
    }
    in_service(&scene, "web", ["web-0", "web-1"]).await?;
    let own = OwnSlice::open(&scene, "own").await?;
    own.show("web-0", true, true).await?;
    let operator = scene.operator("a", "update");
    operator.begin("web-0").await?;
    let held =
        until_it_says(&scene, "web-0", &["PREPARE", "of Service", "own still shows the pod ready"]).await?;
    ensure!(!operator.has(&held, Stage::Operate), "allowed while a slice shows it");
    serve(&scene, "came", of_app("web")).await?;
    let crowd = crowd(&scene, "came").await?;
    remove(&scene, "goes").await?;
    change(&scene, "turns", json!({"spec": {"selector": {"app": "others"}}})).await?;
    own.show("web-0", true, false).await?;
    let allowed = operator.await_operate("web-0").await?;
    proves(&allowed, "BOUNDED", &["came", "own"])?;
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;
    // Now the one that came is what counts.
    proves(&*operate(&scene, "web-0").await?, "BOUNDED", &["came", "kube-proxy of 1 node has it"])?;
    lost_nothing(crowd).await
}

/// Slices that people write stay when their Service is deleted. They lead nowhere then, and hold nobody.
async fn a_service_that_is_gone_without_its_slices(scene: Arc<Scene>) -> Result<()> {
    in_service(&scene, "web", ["web"]).await?;
    let own = OwnSlice::open(&scene, "own").await?;
    own.show("web", true, true).await?;
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    until_it_says(&scene, "web", &["PREPARE", "own still shows the pod ready"]).await?;
    remove(&scene, "own").await?;
    let allowed = operator.await_operate("web").await?;
    proves(&allowed, "BOUNDED", &["own", "is gone"])?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// A pod whose labels change leaves its Service: what it has taken in of the Service's traffic is waited for as ever.
async fn a_pod_that_leaves_its_service(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    in_service(&scene, "web", ["web-0", "web-1", "web-2"]).await?;
    let crowd = crowd(&scene, "web").await?;
    let operator = scene.operator("a", "update");
    // One leaves before the operation, and one in the middle of it.
    scene.label("web-0", &[("app", Some("debug"))]).await?;
    operator.begin("web-0").await?;
    operator.begin("web-1").await?;
    scene.label("web-1", &[("app", Some("debug"))]).await?;
    for pod in ["web-0", "web-1"] {
        let allowed = operator.await_operate(pod).await?;
        proves(&allowed, "BOUNDED", &["no Service selects it", "kube-proxy of 1 node has it"])?;
        operator.set_image(pod, &scene.images().v2).await?;
        operator.await_image(&allowed, &scene.images().v2).await?;
        operator.finish(pod).await?;
        operator.await_end(pod).await?;
    }
    // And back it comes.
    scene.label("web-0", &[("app", Some("web"))]).await?;
    proves(&*operate(&scene, "web-0").await?, "BOUNDED", &["not ready in 1 slice of Service"])?;
    lost_nothing(crowd).await
}
