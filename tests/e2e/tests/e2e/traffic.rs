//! Consumers that hold a pod.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use podward_core::{ConditionStatus, keys, keys::Stage};
use podward_e2e::{CONSUMER, Scene, Test};
use podward_support::{Behaviour, Operator, Pace, TrafficLoop, pods};
use serde_json::json;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("a_consumer_that_holds_the_pod", a_consumer_that_holds_the_pod),
        Test::node("a_consumer_that_hesitates", a_consumer_that_hesitates),
        Test::node("two_consumers", two_consumers),
        Test::node("not_available_before_it_is_taken_in", not_available_before_it_is_taken_in),
        Test::node("a_service_that_is_gone", a_service_that_is_gone),
    ]
}

/// No permission comes while the pod is held, whatever else is written to it; it comes when the pod is let go.
async fn a_consumer_that_holds_the_pod(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    until_out_and_held(&scene, &operator).await?;
    // Each of these writes passes the webhooks and wakes the controller.
    for round in 0..20 {
        let written =
            scene.patch("web", json!({"metadata": {"annotations": {"round": round.to_string()}}})).await?;
        ensure!(
            !operator.has(&written, Stage::Operate),
            "the permission came with the pod held: {}",
            pods::describe(&written)
        );
    }
    ensure!(traffic.sends_traffic_to("web"), "the consumer was to hold the pod");
    traffic.behave(Behaviour::PROMPT);
    operator.await_operate("web").await?;
    ensure!(!traffic.sends_traffic_to("web"), "the permission came before the traffic was off");
    operator.finish("web").await?;
    operator.await_end("web").await?;
    ensure!(traffic.sends_traffic_to("web"), "available without traffic");
    Ok(())
}

async fn a_consumer_that_hesitates(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    let slowly = Pace::After(Duration::from_millis(700));
    traffic.behave(Behaviour { let_go: slowly, take_in: slowly });
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await?;
    let report = scene.report("web").await?;
    let took = (report.operations[0].begin_to_operate(), report.operations[0].finish_to_available());
    ensure!(took.0 >= Some(700.0) && took.1 >= Some(700.0), "the consumer was not waited for: {took:?}");
    Ok(())
}

/// The second holds the pod by a finalizer that nobody expects: it counts all the same.
async fn two_consumers(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    let other = TrafficLoop::start(scene.api(), &format!("{}=true", keys::CONTROL_LABEL), "other");
    scene.in_service(["web"]).await?;
    let held = |pod: &_| pods::holders(pod).count() == 2;
    scene.feed().until("web", "both consumers hold it", held).await?;
    other.behave(Behaviour::HOLDS);
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    let left = |pod: &_| pods::holders(pod).eq([other.finalizer()]);
    let seen = scene.feed().until("web", "only the other consumer holds it", left).await?;
    ensure!(
        !operator.has(&seen, Stage::Operate),
        "the permission came while the other consumer holds the pod"
    );
    other.behave(Behaviour::PROMPT);
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

async fn not_available_before_it_is_taken_in(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    traffic.behave(Behaviour::KEEPS_OUT);
    let expected = pods::expecting("Traffic/test/loop", &TrafficLoop::finalizer_of(CONSUMER));
    let labels = json!({keys::CONTROL_LABEL: "true", keys::CREATING: "1"});
    scene.create_with("web", &labels, &json!({keys::AVAILABLE_CONDITIONS: expected})).await?;
    let ready = scene.feed().until("web", "it is Ready", pods::is_ready).await?;
    ensure!(
        !pods::is_available(&ready) && pods::has_label(&ready, keys::CREATING),
        "{}",
        pods::describe(&ready)
    );
    traffic.behave(Behaviour::PROMPT);
    let available = scene.until_available("web").await?;
    ensure!(!pods::has_label(&available, keys::CREATING), "the label creating stays on an available pod");
    Ok(())
}

/// What a Service is expected to do stands until it is gone, or selects other pods; then nobody waits for it any more.
async fn a_service_that_is_gone(scene: Arc<Scene>) -> Result<()> {
    let services: Api<Service> = Api::namespaced(scene.client(), scene.namespace());
    let service = |name: &str, selector: serde_json::Value| {
        let ports = json!([{"port": 80}]);
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"selector": selector, "ports": ports}}),
        )
    };
    let selects = json!({keys::CONTROL_LABEL: "true"});
    services.create(&PostParams::default(), &service("stays", selects.clone())?).await?;
    services.create(&PostParams::default(), &service("turns-away", selects)?).await?;
    let of = |name: &str| format!("Service/{}/{name}", scene.namespace());
    let finalizer = TrafficLoop::finalizer_of(CONSUMER);
    let expected = json!({"expectedFinalizers": {
        of("stays"): finalizer, of("turns-away"): finalizer, of("never-was"): finalizer,
    }});
    let labels = json!({keys::CONTROL_LABEL: "true"});
    scene.create_with("web", &labels, &json!({keys::AVAILABLE_CONDITIONS: expected.to_string()})).await?;
    let expects = |pod: &Pod| -> Vec<String> {
        let text = pod.annotations().get(keys::AVAILABLE_CONDITIONS).cloned().unwrap_or_default();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let names = document["expectedFinalizers"].as_object().into_iter().flat_map(|map| map.keys());
        names.filter_map(|employer| employer.rsplit('/').next()).map(ToOwned::to_owned).collect()
    };
    let forgotten = scene.feed().until("web", "the Service that never was is forgotten", |pod| {
        !expects(pod).contains(&"never-was".to_owned())
    });
    let forgotten = forgotten.await?;
    ensure!(expects(&forgotten) == ["stays", "turns-away"], "still expected: {:?}", expects(&forgotten));
    ensure!(!pods::is_available(&forgotten), "available without the Services that are there");

    let elsewhere = Patch::Merge(json!({"spec": {"selector": {"app": "other"}}}));
    services.patch("turns-away", &PatchParams::default(), &elsewhere).await?;
    scene.feed().until("web", "only one Service is expected", |pod| expects(pod) == ["stays"]).await?;
    services.delete("stays", &DeleteParams::default()).await?;
    let available = scene.until_available("web").await?;
    ensure!(expects(&available).is_empty(), "still expected: {:?}", expects(&available));
    Ok(())
}

async fn until_out_and_held(scene: &Scene, operator: &Operator) -> Result<()> {
    let is_out =
        |pod: &_| operator.has(pod, Stage::Preparing) && pods::view(pod).gate == Some(ConditionStatus::False);
    scene.feed().until("web", "it is out of service and held", is_out).await.map(drop)
}
