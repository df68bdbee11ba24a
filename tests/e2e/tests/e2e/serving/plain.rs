//! Pods of one Service, of two, and of none.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Scene, Test};
use podward_support::{Operator, pods};
use serde_json::json;

use super::place::{
    HOOK, ask_to_delete, crowd, in_service, is_held, labels, lost_nothing, of_app, operate, proves, serve,
    until_gone,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("a_pod_of_one_service", a_pod_of_one_service),
        Test::serving("a_pod_of_two_services", a_pod_of_two_services),
        Test::serving("a_pod_of_no_service", a_pod_of_no_service),
        Test::serving("a_pod_that_says_what_is_in_flight", a_pod_that_says_what_is_in_flight),
    ]
}

/// Born, updated in place and deleted, and nobody who asks the Service notices.
async fn a_pod_of_one_service(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    in_service(&scene, "web", ["web-0", "web-1"]).await?;
    for pod in scene.feed().all() {
        ensure!(is_held(&pod), "available, but nobody leads traffic to it: {}", pods::describe(&pod));
    }
    let crowd = crowd(&scene, "web").await?;
    let operator = scene.operator("a", "update");
    update(&scene, &operator, "web-0").await?;
    ask_to_delete(&scene, "web-1").await?;
    until_gone(&scene, "web-1").await?;
    in_service(&scene, "web", ["web-2"]).await?;
    lost_nothing(crowd).await
}

/// Updates the pod, and looks what was proven before it was allowed.
async fn update(scene: &Scene, operator: &Operator, pod: &str) -> Result<()> {
    operator.begin(pod).await?;
    let allowed = operator.await_operate(pod).await?;
    // When connections were last used nobody tells: that no new ones come is proven, that no request does is not.
    let proven =
        ["not ready in 1 slice of Service", "kube-proxy of 1 node has it", "2 s for requests in flight"];
    proves(&allowed, "BOUNDED", &proven)?;
    ensure!(!is_held(&allowed), "allowed, and still held: {}", pods::describe(&allowed));
    operator.set_image(pod, &scene.images().v2).await?;
    operator.await_image(&allowed, &scene.images().v2).await?;
    operator.finish(pod).await?;
    operator.await_end(pod).await?;
    let back = scene.feed().until(pod, "its Service leads to it again", is_held).await?;
    ensure!(pods::is_ready(&back), "{}", pods::describe(&back));
    Ok(())
}

/// Both have to let go, and both have to take it in.
async fn a_pod_of_two_services(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    serve(
        &scene,
        "all",
        json!({"selector": {"kusionstack.io/control": "true"}, "ports": [{"port": 80, "targetPort": 8080}]}),
    )
    .await?;
    in_service(&scene, "web", ["web-0", "web-1"]).await?;
    let (web, all) = (crowd(&scene, "web").await?, crowd(&scene, "all").await?);
    let allowed = operate(&scene, "web-0").await?;
    let of = |name: &str| format!("not ready in 1 slice of Service {}/{name}", scene.namespace());
    proves(&allowed, "BOUNDED", &[&of("all"), &of("web")])?;
    ask_to_delete(&scene, "web-1").await?;
    until_gone(&scene, "web-1").await?;
    lost_nothing(web).await?;
    lost_nothing(all).await
}

/// There is nobody to wait for, which is proven.
async fn a_pod_of_no_service(scene: Arc<Scene>) -> Result<()> {
    in_service(&scene, "lonely", ["lonely"]).await?;
    let allowed = operate(&scene, "lonely").await?;
    proves(&allowed, "PROVEN", &["no Service selects it"])?;
    ask_to_delete(&scene, "lonely").await?;
    until_gone(&scene, "lonely").await
}

/// With the number of its connections, nothing is left to be believed.
async fn a_pod_that_says_what_is_in_flight(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    let mut tells = labels("web");
    tells["podward.io/in-flight-port"] = json!("8080");
    for pod in ["web-0", "web-1"] {
        scene.create_with(pod, &tells, &json!({})).await?;
    }
    for pod in ["web-0", "web-1"] {
        scene.until_available(pod).await?;
    }
    let crowd = crowd(&scene, "web").await?;
    let allowed = operate(&scene, "web-0").await?;
    let words = ["kube-proxy of 1 node has it", "the pod says that nothing is in flight"];
    proves(&allowed, "PROVEN", &words)?;
    ensure!(!allowed.metadata.finalizers.iter().flatten().any(|name| name.contains(HOOK)), "held by name");
    lost_nothing(crowd).await
}
