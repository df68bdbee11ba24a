//! Consumers that hold a pod.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use podward_core::{ConditionStatus, keys, keys::Stage};
use podward_e2e::{CONSUMER, Fixture, Test};
use podward_support::{Operator, TrafficBehaviour, TrafficLoop, TrafficPace, pods};
use serde_json::json;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("a_consumer_that_holds_the_pod", a_consumer_that_holds_the_pod),
        Test::node("a_consumer_that_hesitates", a_consumer_that_hesitates),
        Test::node("two_consumers", two_consumers),
        Test::node(
            "not_available_before_it_is_added_to_traffic",
            not_available_before_it_is_added_to_traffic,
        ),
        Test::node("a_service_that_is_gone", a_service_that_is_gone),
    ]
}

/// There is no permission while the pod is held, whatever is written to it. It comes when the pod is drained.
async fn a_consumer_that_holds_the_pod(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    until_out_and_held(&fixture, &operator).await?;
    // Each of these writes passes the webhooks and triggers the controller.
    for round in 0..20 {
        let written =
            fixture.patch("web", json!({"metadata": {"annotations": {"round": round.to_string()}}})).await?;
        ensure!(
            !operator.has(&written, Stage::Operate),
            "the permission came with the pod held: {}",
            pods::describe(&written)
        );
    }
    ensure!(traffic.sends_traffic_to("web"), "the consumer was to hold the pod");
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    operator.await_operate("web").await?;
    ensure!(!traffic.sends_traffic_to("web"), "the permission came before the traffic was off");
    operator.finish("web").await?;
    operator.await_end("web").await?;
    ensure!(traffic.sends_traffic_to("web"), "available without traffic");
    Ok(())
}

async fn a_consumer_that_hesitates(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let slowly = TrafficPace::After(Duration::from_millis(700));
    traffic.set_behaviour(TrafficBehaviour { drain: slowly, add: slowly });
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await?;
    let report = fixture.report("web").await?;
    let took = (report.operations[0].begin_to_operate(), report.operations[0].finish_to_available());
    ensure!(took.0 >= Some(700.0) && took.1 >= Some(700.0), "the consumer was not waited for: {took:?}");
    Ok(())
}

/// The second consumer holds the pod with an unexpected finalizer, which counts, too.
async fn two_consumers(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    let other = TrafficLoop::start(fixture.api(), &format!("{}=true", keys::CONTROL_LABEL), "other");
    fixture.in_service(["web"]).await?;
    let held = |pod: &_| pods::holders(pod).count() == 2;
    fixture.feed().until("web", "both consumers hold it", held).await?;
    other.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let left = |pod: &_| pods::holders(pod).eq([other.finalizer()]);
    let seen = fixture.feed().until("web", "only the other consumer holds it", left).await?;
    ensure!(
        !operator.has(&seen, Stage::Operate),
        "the permission came while the other consumer holds the pod"
    );
    other.set_behaviour(TrafficBehaviour::PROMPT);
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

async fn not_available_before_it_is_added_to_traffic(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    traffic.set_behaviour(TrafficBehaviour::NOT_ADDED);
    let expected = pods::expecting("Traffic/test/loop", &TrafficLoop::finalizer_of(CONSUMER));
    let labels = json!({keys::CONTROL_LABEL: "true", keys::CREATING: "1"});
    fixture.create_with("web", &labels, &json!({keys::AVAILABLE_CONDITIONS: expected})).await?;
    let ready = fixture.feed().until("web", "it is Ready", pods::is_ready).await?;
    ensure!(
        !pods::is_available(&ready) && pods::has_label(&ready, keys::CREATING),
        "{}",
        pods::describe(&ready)
    );
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    let available = fixture.until_available("web").await?;
    ensure!(!pods::has_label(&available, keys::CREATING), "the label creating stays on an available pod");
    Ok(())
}

/// A Service is expected until it is gone or selects other pods. Then nothing waits for it any more.
async fn a_service_that_is_gone(fixture: Arc<Fixture>) -> Result<()> {
    let services: Api<Service> = Api::namespaced(fixture.client(), fixture.namespace());
    let service = |name: &str, selector: serde_json::Value| {
        let ports = json!([{"port": 80}]);
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"selector": selector, "ports": ports}}),
        )
    };
    let selects = json!({keys::CONTROL_LABEL: "true"});
    services.create(&PostParams::default(), &service("stays", selects.clone())?).await?;
    services.create(&PostParams::default(), &service("turns-away", selects)?).await?;
    let of = |name: &str| format!("Service/{}/{name}", fixture.namespace());
    let finalizer = TrafficLoop::finalizer_of(CONSUMER);
    let expected = json!({"expectedFinalizers": {
        of("stays"): finalizer, of("turns-away"): finalizer, of("never-was"): finalizer,
    }});
    let labels = json!({keys::CONTROL_LABEL: "true"});
    fixture.create_with("web", &labels, &json!({keys::AVAILABLE_CONDITIONS: expected.to_string()})).await?;
    let expects = |pod: &Pod| -> Vec<String> {
        let text = pod.annotations().get(keys::AVAILABLE_CONDITIONS).cloned().unwrap_or_default();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let names = document["expectedFinalizers"].as_object().into_iter().flat_map(|map| map.keys());
        names.filter_map(|employer| employer.rsplit('/').next()).map(ToOwned::to_owned).collect()
    };
    let forgotten = fixture.feed().until("web", "the Service that never was is forgotten", |pod| {
        !expects(pod).contains(&"never-was".to_owned())
    });
    let forgotten = forgotten.await?;
    ensure!(expects(&forgotten) == ["stays", "turns-away"], "still expected: {:?}", expects(&forgotten));
    ensure!(!pods::is_available(&forgotten), "available without the Services that are there");

    let elsewhere = Patch::Merge(json!({"spec": {"selector": {"app": "other"}}}));
    services.patch("turns-away", &PatchParams::default(), &elsewhere).await?;
    fixture.feed().until("web", "only one Service is expected", |pod| expects(pod) == ["stays"]).await?;
    services.delete("stays", &DeleteParams::default()).await?;
    let available = fixture.until_available("web").await?;
    ensure!(expects(&available).is_empty(), "still expected: {:?}", expects(&available));
    Ok(())
}

async fn until_out_and_held(fixture: &Fixture, operator: &Operator) -> Result<()> {
    let is_out =
        |pod: &_| operator.has(pod, Stage::Preparing) && pods::view(pod).gate == Some(ConditionStatus::False);
    fixture.feed().until("web", "it is out of service and held", is_out).await.map(drop)
}
