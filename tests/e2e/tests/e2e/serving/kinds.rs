//! Services of every kind: each is handled, or it is said what isn't.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use podward_core::keys::{self, Stage};
use podward_e2e::{Scene, Test};
use podward_support::pods;
use serde_json::{Value, json};

use super::place::{OwnSlice, in_service, of_app, operate, proves, serve, until_gone, until_it_says};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("headless_services_get_the_time_of_dns", headless_services_get_the_time_of_dns),
        Test::serving("addresses_that_are_published_anyway", addresses_that_are_published_anyway),
        Test::serving("slices_that_others_write", slices_that_others_write),
        Test::serving("names_and_distributions_change_nothing", names_and_distributions_change_nothing),
        Test::serving("pods_without_the_gate", pods_without_the_gate),
    ]
}

/// Clients of a headless Service have asked DNS, and believe its answer for a while.
async fn headless_services_get_the_time_of_dns(scene: Arc<Scene>) -> Result<()> {
    let mut spec = of_app("web");
    spec["clusterIP"] = json!("None");
    serve(&scene, "web", spec).await?;
    in_service(&scene, "web", ["web"]).await?;
    let allowed = operate(&scene, "web").await?;
    proves(&allowed, "BOUNDED", &["4 s for clients to forget the DNS answer of a headless Service"])?;
    let took = scene.report("web").await?.operations[0].begin_to_operate();
    ensure!(took >= Some(4000.0), "allowed after {took:?} ms, while clients still know the address");
    Ok(())
}

/// Nothing takes a pod out of such a Service: that is said, instead of waiting for what can't come.
async fn addresses_that_are_published_anyway(scene: Arc<Scene>) -> Result<()> {
    let mut spec = of_app("web");
    spec["publishNotReadyAddresses"] = json!(true);
    serve(&scene, "web", spec).await?;
    in_service(&scene, "web", ["web"]).await?;
    let allowed = operate(&scene, "web").await?;
    proves(&allowed, "ASSUMED", &["publishes addresses that are not ready"])
}

/// Who writes slices himself has to take the pod out himself; that is waited for, and he is told. All slices count, of whichever
/// address family and whether they name the pod or only have its address.
async fn slices_that_others_write(scene: Arc<Scene>) -> Result<()> {
    in_service(&scene, "web", ["web", "other"]).await?;
    let own = OwnSlice::open(&scene, "own").await?;
    let by_address = OwnSlice::open(&scene, "by-address").await?;
    own.show("web", true, true).await?;
    own.show_v6("web", true).await?;
    by_address.show("web", false, true).await?;
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    let held =
        until_it_says(&scene, "web", &["PREPARE", "whoever writes its slices has to take the pod out"])
            .await?;
    ensure!(!operator.has(&held, Stage::Operate), "allowed while slices show it");
    own.show("web", true, false).await?;
    until_it_says(&scene, "web", &["Service", "by-address still shows the pod ready"]).await?;
    by_address.show("web", false, false).await?;
    until_it_says(&scene, "web", &["own-web-v6 of Service"]).await?;
    // Its neighbour is no concern of these slices.
    proves(&*operate(&scene, "other").await?, "PROVEN", &["no Service selects it"])?;
    own.show_v6("web", false).await?;
    let allowed = operator.await_operate("web").await?;
    proves(&allowed, "BOUNDED", &["by-address", "not ready in 2 slices of Service"])?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// An ExternalName leads to no pod, and a distribution only chooses among the endpoints.
async fn names_and_distributions_change_nothing(scene: Arc<Scene>) -> Result<()> {
    let name = json!({"type": "ExternalName", "externalName": "example.com", "selector": {"app": "named"}});
    serve(&scene, "named", name).await?;
    let with = |field: &str, value: &str| {
        let mut spec = of_app("web");
        spec[field] = Value::from(value);
        spec
    };
    serve(&scene, "close", with("trafficDistribution", "PreferClose")).await?;
    serve(&scene, "local", with("internalTrafficPolicy", "Local")).await?;
    in_service(&scene, "named", ["named"]).await?;
    in_service(&scene, "web", ["web"]).await?;
    proves(&*operate(&scene, "named").await?, "PROVEN", &["no Service selects it"])?;
    proves(&*operate(&scene, "web").await?, "BOUNDED", &["close", "local", "kube-proxy of 1 node has it"])
}

/// What was there before Podward has no readiness gate: nothing takes it out of its Services. An operation says so and waits, and
/// can be cancelled; a delete goes through with a warning.
async fn pods_without_the_gate(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    scene.create_with("web", &json!({"app": "web"}), &json!({})).await?;
    scene.feed().until("web", "it is Ready", pods::is_ready).await?;
    scene.label("web", &[(keys::CONTROL_LABEL, Some("true"))]).await?;
    let available = scene.until_available("web").await?;
    ensure!(!pods::has_gate(&available), "a gate can't be added: {}", pods::describe(&available));
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    let held = until_it_says(&scene, "web", &["still shows the pod ready", "has the pod the readiness gate"])
        .await?;
    ensure!(!operator.has(&held, Stage::Operate), "allowed with traffic on");
    operator.undo("web").await?;
    operator.await_end("web").await?;
    scene.api().delete("web", &DeleteParams::default()).await.context("delete a pod without the gate")?;
    until_gone(&scene, "web").await?;
    let events =
        Api::<Event>::namespaced(scene.client(), scene.namespace()).list(&ListParams::default()).await?;
    let reasons: Vec<&str> = events.items.iter().filter_map(|event| event.reason.as_deref()).collect();
    ensure!(reasons.contains(&"NotHeld"), "no event says that the pod was not held: {reasons:?}");
    Ok(())
}
