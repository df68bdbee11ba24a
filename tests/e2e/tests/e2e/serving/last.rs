//! The last endpoint of a Service.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_core::keys::{self, Stage};
use podward_e2e::{Scene, Test};
use podward_support::pods;
use serde_json::json;

use super::place::{
    ask_to_delete, crowd, in_service, labels, lost_nothing, of_app, operate, serve, until_gone, until_it_says,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("the_last_endpoint_waits_for_the_next", the_last_endpoint_waits_for_the_next),
        Test::serving("the_last_endpoint_does_not_wait_for_ever", the_last_endpoint_does_not_wait_for_ever),
        Test::serving("the_only_endpoint", the_only_endpoint),
    ]
}

/// The next one is there, but not ready yet: the pod stays in service, and so does the Service.
async fn the_last_endpoint_waits_for_the_next(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    in_service(&scene, "web", ["web-0"]).await?;
    let crowd = crowd(&scene, "web").await?;
    come(&scene, "web-1").await?;
    ask_to_delete(&scene, "web-0").await?;
    let waits =
        until_it_says(&scene, "web-0", &["the pod is the last ready endpoint of Service", "waited for"])
            .await?;
    ensure!(pods::is_ready(&waits), "the last endpoint was cut: {}", pods::describe(&waits));
    scene.label("web-1", &[(keys::STAY_OFFLINE, None)]).await?;
    until_gone(&scene, "web-0").await?;
    lost_nothing(crowd).await
}

/// After the time that it is given the operation goes on, and the Service is without an endpoint: who announced it wanted that.
async fn the_last_endpoint_does_not_wait_for_ever(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    in_service(&scene, "web", ["web-0"]).await?;
    come(&scene, "web-1").await?;
    let operator = scene.operator("a", "update");
    let begun = operator.begin("web-0").await?;
    ensure!(operator.has(&begun, Stage::PreCheck), "{}", pods::describe(&begun));
    until_it_says(&scene, "web-0", &["the pod is the last ready endpoint of Service"]).await?;
    operator.await_operate("web-0").await?;
    let took = scene.report("web-0").await?.operations[0].begin_to_operate();
    ensure!(took >= Some(20_000.0), "the next endpoint got {took:?} ms to come");
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;
    scene.ends_in_the_middle();
    Ok(())
}

/// Nothing is on its way, so there is nothing to wait for.
async fn the_only_endpoint(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    in_service(&scene, "web", ["web"]).await?;
    operate(&scene, "web").await?;
    let took = scene.report("web").await?.operations[0].begin_to_operate();
    ensure!(took < Some(20_000.0), "waited {took:?} ms for nobody");
    Ok(())
}

/// Makes a pod that is not put into service yet, and waits until its Service knows it.
async fn come(scene: &Scene, name: &str) -> Result<()> {
    let mut offline = labels("web");
    offline[keys::STAY_OFFLINE] = json!("1");
    scene.create_with(name, &offline, &json!({})).await?;
    let runs =
        |pod: &k8s_openapi::api::core::v1::Pod| pods::container(pod).is_some_and(|status| status.ready);
    scene.feed().until(name, "its container is ready", runs).await?;
    super::place::until_listed(scene, "web", name).await
}
