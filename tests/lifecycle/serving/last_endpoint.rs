//! The last endpoint of a Service.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_core::keys::{self, Stage};
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::json;

use super::service_fixture::{
    ask_to_delete, crowd, in_service, labels, lost_nothing, of_app, operate, serve, until_gone,
    until_message_contains,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("the_last_endpoint_waits_for_the_next", the_last_endpoint_waits_for_the_next),
        Test::serving("the_last_endpoint_does_not_wait_for_ever", the_last_endpoint_does_not_wait_for_ever),
        Test::serving("the_only_endpoint", the_only_endpoint),
    ]
}

/// The replacement exists but is not ready yet: the pod stays in service, and the Service keeps its endpoint.
async fn the_last_endpoint_waits_for_the_next(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["web-0"]).await?;
    let crowd = crowd(&fixture, "web").await?;
    come(&fixture, "web-1").await?;
    ask_to_delete(&fixture, "web-0").await?;
    let waits = until_message_contains(
        &fixture,
        "web-0",
        &["the pod is the last ready endpoint of Service", "not ready yet: waited"],
    )
    .await?;
    ensure!(pods::is_ready(&waits), "the last endpoint was cut: {}", pods::describe(&waits));
    fixture.label("web-1", &[(keys::STAY_OFFLINE, None)]).await?;
    until_gone(&fixture, "web-0").await?;
    lost_nothing(crowd).await
}

/// After the maximum wait the operation continues, and the Service is without an endpoint, as the operator requested.
async fn the_last_endpoint_does_not_wait_for_ever(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["web-0"]).await?;
    come(&fixture, "web-1").await?;
    let operator = fixture.operator("a", "update");
    let begun = operator.begin("web-0").await?;
    ensure!(operator.has(&begun, Stage::PreCheck), "{}", pods::describe(&begun));
    until_message_contains(&fixture, "web-0", &["the pod is the last ready endpoint of Service"]).await?;
    operator.await_operate("web-0").await?;
    let took = fixture.report("web-0").await?.operations[0].begin_to_operate();
    ensure!(took >= Some(20_000.0), "the next endpoint got {took:?} ms to come");
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;
    fixture.ends_in_the_middle();
    Ok(())
}

/// There is no replacement, so there is nothing to wait for.
async fn the_only_endpoint(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["web"]).await?;
    operate(&fixture, "web").await?;
    let took = fixture.report("web").await?.operations[0].begin_to_operate();
    ensure!(took.is_some_and(|took| took < 20_000.0), "waited {took:?} ms for nothing");
    Ok(())
}

/// Creates a pod that is not in service yet, and waits until its Service lists it.
async fn come(fixture: &Fixture, name: &str) -> Result<()> {
    let mut offline = labels("web");
    offline[keys::STAY_OFFLINE] = json!("1");
    fixture.create_with(name, &offline, &json!({})).await?;
    let runs =
        |pod: &k8s_openapi::api::core::v1::Pod| pods::container(pod).is_some_and(|status| status.ready);
    fixture.feed().until(name, "its container is ready", runs).await?;
    super::service_fixture::until_listed(fixture, "web", name).await
}
