//! Services of every kind: each is handled, or the limitation is reported.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use podward_core::keys::{self, Stage};
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::{Value, json};

use super::service_fixture::{
    OwnSlice, has_no_service, in_service, of_app, operate, proves, serve, until_gone, until_message_contains,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("headless_services_get_the_time_of_dns", headless_services_get_the_time_of_dns),
        Test::serving("addresses_that_are_published_anyway", addresses_that_are_published_anyway),
        Test::serving("slices_that_others_write", slices_that_others_write),
        Test::serving("names_and_distributions_change_nothing", names_and_distributions_change_nothing),
        Test::serving("pods_without_the_gate", pods_without_the_gate),
    ]
}

/// Clients of a headless Service have cached its DNS records.
async fn headless_services_get_the_time_of_dns(fixture: Arc<Fixture>) -> Result<()> {
    let mut spec = of_app("web");
    spec["clusterIP"] = json!("None");
    serve(&fixture, "web", spec).await?;
    in_service(&fixture, "web", ["web"]).await?;
    let allowed = operate(&fixture, "web").await?;
    proves(&allowed, "BOUNDED", &["4 s for clients that cache the DNS answer of a headless Service"])?;
    let took = fixture.report("web").await?.operations[0].begin_to_operate();
    ensure!(took >= Some(4000.0), "allowed after {took:?} ms, while clients still know the address");
    Ok(())
}

/// Nothing removes a pod from such a Service. That is reported, instead of waiting without end.
async fn addresses_that_are_published_anyway(fixture: Arc<Fixture>) -> Result<()> {
    let mut spec = of_app("web");
    spec["publishNotReadyAddresses"] = json!(true);
    serve(&fixture, "web", spec).await?;
    in_service(&fixture, "web", ["web"]).await?;
    let allowed = operate(&fixture, "web").await?;
    proves(&allowed, "ASSUMED", &["publishes addresses that are not ready"])
}

/// Users who write slices have to remove the pod themselves. The pod waits for that, and they see it. All slices
/// count, of each address family, and whether they refer to the pod or only contain its address.
async fn slices_that_others_write(fixture: Arc<Fixture>) -> Result<()> {
    in_service(&fixture, "web", ["web", "other"]).await?;
    let own = OwnSlice::open(&fixture, "own").await?;
    let by_address = OwnSlice::open(&fixture, "by-address").await?;
    own.show("web", true, true).await?;
    own.show_v6("web", true).await?;
    by_address.show("web", false, true).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let held = until_message_contains(
        &fixture,
        "web",
        &["PREPARE", "whoever writes its slices must remove the pod"],
    )
    .await?;
    ensure!(!operator.has(&held, Stage::Operate), "allowed while slices show it");
    own.show("web", true, false).await?;
    until_message_contains(&fixture, "web", &["Service", "by-address still shows the pod as ready"]).await?;
    by_address.show("web", false, false).await?;
    until_message_contains(&fixture, "web", &["own-web-v6 of Service"]).await?;
    // These slices do not concern its neighbour.
    has_no_service(&*operate(&fixture, "other").await?)?;
    own.show_v6("web", false).await?;
    let allowed = operator.await_operate("web").await?;
    proves(&allowed, "BOUNDED", &["by-address", "not ready in 2 slices of Service"])?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// An ExternalName routes to no pod, and a traffic distribution only chooses among the endpoints.
async fn names_and_distributions_change_nothing(fixture: Arc<Fixture>) -> Result<()> {
    let name = json!({"type": "ExternalName", "externalName": "example.com", "selector": {"app": "named"}});
    serve(&fixture, "named", name).await?;
    let with = |field: &str, value: &str| {
        let mut spec = of_app("web");
        spec[field] = Value::from(value);
        spec
    };
    serve(&fixture, "close", with("trafficDistribution", "PreferClose")).await?;
    serve(&fixture, "local", with("internalTrafficPolicy", "Local")).await?;
    in_service(&fixture, "named", ["named"]).await?;
    in_service(&fixture, "web", ["web"]).await?;
    has_no_service(&*operate(&fixture, "named").await?)?;
    proves(
        &*operate(&fixture, "web").await?,
        "BOUNDED",
        &["close", "local", "kube-proxy of 1 node has applied the change"],
    )
}

/// A pod that is older than Podward has no readiness gate, so nothing removes it from its Services. An operation
/// reports that and waits, and can be cancelled. A delete is allowed with a warning.
async fn pods_without_the_gate(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    fixture.create_with("web", &json!({"app": "web"}), &json!({})).await?;
    fixture.feed().until("web", "it is Ready", pods::is_ready).await?;
    fixture.label("web", &[(keys::CONTROL_LABEL, Some("true"))]).await?;
    let available = fixture.until_available("web").await?;
    ensure!(!pods::has_gate(&available), "a gate can't be added: {}", pods::describe(&available));
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let held = until_message_contains(
        &fixture,
        "web",
        &["still shows the pod as ready", "check that the pod has the readiness gate"],
    )
    .await?;
    ensure!(!operator.has(&held, Stage::Operate), "allowed with traffic on");
    operator.undo("web").await?;
    operator.await_end("web").await?;
    fixture.api().delete("web", &DeleteParams::default()).await.context("delete a pod without the gate")?;
    until_gone(&fixture, "web").await?;
    let events =
        Api::<Event>::namespaced(fixture.client(), fixture.namespace()).list(&ListParams::default()).await?;
    let reasons: Vec<&str> = events.items.iter().filter_map(|event| event.reason.as_deref()).collect();
    ensure!(reasons.contains(&"NotHeld"), "no event says that the pod was not held: {reasons:?}");
    Ok(())
}
