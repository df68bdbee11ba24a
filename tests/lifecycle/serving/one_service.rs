//! Pods of one Service, of two, and of none.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use podward_e2e::{Fixture, Test};
use podward_support::{Operator, pods};
use serde_json::json;

use super::service_fixture::{
    HOOK, ask_to_delete, crowd, has_no_service, in_service, is_held, labels, lost_nothing, of_app, operate,
    proves, serve, until_gone,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("a_pod_of_one_service", a_pod_of_one_service),
        Test::serving("a_pod_of_two_services", a_pod_of_two_services),
        Test::serving("a_pod_of_no_service", a_pod_of_no_service),
        Test::serving("a_pod_that_reports_requests_in_flight", a_pod_that_reports_requests_in_flight),
    ]
}

/// Created, updated in place and deleted, without a lost request.
async fn a_pod_of_one_service(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["web-0", "web-1"]).await?;
    for pod in fixture.feed().all() {
        ensure!(is_held(&pod), "available, but without traffic: {}", pods::describe(&pod));
    }
    let crowd = crowd(&fixture, "web").await?;
    let operator = fixture.operator("a", "update");
    update(&fixture, &operator, "web-0").await?;
    ask_to_delete(&fixture, "web-1").await?;
    until_gone(&fixture, "web-1").await?;
    in_service(&fixture, "web", ["web-2"]).await?;
    lost_nothing(crowd).await
}

/// Updates the pod, and checks the evidence that was recorded before the permission.
async fn update(fixture: &Fixture, operator: &Operator, pod: &str) -> Result<()> {
    operator.begin(pod).await?;
    let allowed = operator.await_operate(pod).await?;
    // The time of the last use of connections is unknown: there is proof that no new ones arrive, but not that no
    // request does.
    let proven = [
        "not ready in 1 slice of Service",
        "kube-proxy of 1 node has applied the change",
        "waited 2 s for requests in flight",
    ];
    proves(&allowed, "BOUNDED", &proven)?;
    ensure!(!is_held(&allowed), "allowed, and still held: {}", pods::describe(&allowed));
    operator.set_image(pod, &fixture.images().v2).await?;
    operator.await_image(&allowed, &fixture.images().v2).await?;
    operator.finish(pod).await?;
    operator.await_end(pod).await?;
    let back = fixture.feed().until(pod, "its Service leads to it again", is_held).await?;
    ensure!(pods::is_ready(&back), "{}", pods::describe(&back));
    Ok(())
}

/// Both Services have to release the pod, and both have to list it again.
async fn a_pod_of_two_services(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    serve(
        &fixture,
        "all",
        json!({"selector": {"kusionstack.io/control": "true"}, "ports": [{"port": 80, "targetPort": 8080}]}),
    )
    .await?;
    in_service(&fixture, "web", ["web-0", "web-1"]).await?;
    let (web, all) = (crowd(&fixture, "web").await?, crowd(&fixture, "all").await?);
    let allowed = operate(&fixture, "web-0").await?;
    let of = |name: &str| format!("not ready in 1 slice of Service {}/{name}", fixture.namespace());
    proves(&allowed, "BOUNDED", &[&of("all"), &of("web")])?;
    ask_to_delete(&fixture, "web-1").await?;
    until_gone(&fixture, "web-1").await?;
    lost_nothing(web).await?;
    lost_nothing(all).await
}

/// There is no Service to wait for.
async fn a_pod_of_no_service(fixture: Arc<Fixture>) -> Result<()> {
    in_service(&fixture, "lonely", ["lonely"]).await?;
    let allowed = operate(&fixture, "lonely").await?;
    has_no_service(&allowed)?;
    // It may succeed at once: the API server repeats the review if the pod has changed meanwhile, and nothing uses the pod.
    let asked = fixture.api().delete("lonely", &DeleteParams::default()).await;
    let is_held = matches!(&asked, Err(kube::Error::Api(status)) if status.code == 429);
    ensure!(is_held || asked.is_ok(), "{asked:?}");
    until_gone(&fixture, "lonely").await
}

/// With the number of its connections, everything is proven.
async fn a_pod_that_reports_requests_in_flight(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    let mut tells = labels("web");
    tells["podward.io/in-flight-port"] = json!("8080");
    for pod in ["web-0", "web-1"] {
        fixture.create_with(pod, &tells, &json!({})).await?;
    }
    for pod in ["web-0", "web-1"] {
        fixture.until_available(pod).await?;
    }
    let crowd = crowd(&fixture, "web").await?;
    let allowed = operate(&fixture, "web-0").await?;
    let words = ["kube-proxy of 1 node has applied the change", "the pod reports no requests in flight"];
    proves(&allowed, "PROVEN", &words)?;
    ensure!(!allowed.metadata.finalizers.iter().flatten().any(|name| name.contains(HOOK)), "held by name");
    lost_nothing(crowd).await
}
