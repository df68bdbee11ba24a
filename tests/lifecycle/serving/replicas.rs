//! The traffic-controller is down: one replica, both, or its hook is deleted.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use podward_api::LifecycleHook;
use podward_core::{ConditionStatus, keys::Stage};
use podward_e2e::{Fixture, Test};
use podward_support::{Operator, ServiceKind, WAIT, pods, within};
use serde_json::json;

use super::service_fixture::{
    HOOK, OwnSlice, allow_slices, ask_to_delete, crowd, forbid_slices, in_service, is_held, labels,
    lost_nothing, of_app, operate, proves, serve, services, until_gone, until_message_contains,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving_alone("each_replica_killed_in_each_phase", each_replica_killed_in_each_phase),
        Test::serving_alone("no_replica_for_a_while", no_replica_for_a_while),
        Test::serving_alone("the_hook_is_deleted", the_hook_is_deleted),
    ]
}

async fn each_replica_killed_in_each_phase(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["steady"]).await?;
    let crowd = crowd(&fixture, "web").await?;
    let installation = fixture.installation()?;
    for (round, replica) in installation.pods(ServiceKind::TrafficController).await?.iter().enumerate() {
        let phases = HeldPhases::set_up(&fixture, round).await?;
        installation.crash(replica).await?;
        phases.go_on().await?;
    }
    lost_nothing(crowd).await
}

/// Pods in each phase in which the traffic-controller is called, held there from outside.
struct HeldPhases<'s> {
    fixture: &'s Fixture,
    operator: Operator,
    own: OwnSlice<'s>,
    /// A Service that has no slice until the test allows it.
    late: String,
    /// Begins when the replica is gone.
    idle: String,
    preparing: String,
    operating: String,
    completing: String,
    deleting: String,
}

impl<'s> HeldPhases<'s> {
    async fn set_up(fixture: &'s Fixture, round: usize) -> Result<Self> {
        let name = |phase: &str| format!("{phase}-{round}");
        let phases = Self {
            fixture,
            operator: fixture.operator("a", "update"),
            own: OwnSlice::open(fixture, &name("own")).await?,
            late: name("late"),
            idle: name("idle"),
            preparing: name("preparing"),
            operating: name("operating"),
            completing: name("completing"),
            deleting: name("deleting"),
        };
        let Self { operator, own, late, idle, preparing, operating, completing, deleting, .. } = &phases;
        in_service(fixture, "web", [idle, preparing, operating, deleting].map(String::as_str)).await?;
        let mut selected = labels("web");
        selected[late] = json!("true");
        fixture.create_with(completing, &selected, &json!({})).await?;
        fixture.until_available(completing).await?;
        for pod in [preparing, deleting] {
            own.show(pod, true, true).await?;
        }
        for pod in [preparing, operating, completing] {
            operator.begin(pod).await?;
        }
        ask_to_delete(fixture, deleting).await?;
        operator.await_operate(operating).await?;
        operator.await_operate(completing).await?;
        forbid_slices(fixture).await?;
        serve(
            fixture,
            late,
            json!({"selector": {late: "true"}, "ports": [{"port": 80, "targetPort": 8080}]}),
        )
        .await?;
        operator.finish(completing).await?;
        let is_back = |pod: &Pod| operator.has(pod, Stage::Completing) && pods::is_ready(pod);
        fixture.feed().until(completing, "it is to be added to traffic", is_back).await?;
        let is_out = |pod: &Pod| pods::view(pod).gate == Some(ConditionStatus::False) && is_held(pod);
        for pod in [preparing, deleting] {
            fixture.feed().until(pod, "it is out of service and held", is_out).await?;
        }
        Ok(phases)
    }

    /// Lets everything continue. Every operation has to end.
    async fn go_on(&self) -> Result<()> {
        let Self { fixture, operator, own, late, idle, preparing, operating, completing, deleting } = self;
        operator.begin(idle).await?;
        operator.finish(operating).await?;
        operator.await_end(operating).await?;
        for pod in [preparing, deleting, completing] {
            let held = fixture.feed().get(pod).with_context(|| format!("pod {pod} is gone"))?;
            let is_free = operator.has(&held, Stage::Operate) || pods::is_available(&held);
            ensure!(!is_free, "pod {pod} went on by itself: {}", pods::describe(&held));
        }
        for pod in [preparing, deleting] {
            own.show(pod, true, false).await?;
        }
        allow_slices(fixture).await?;
        // The controller of slices pauses after failures. A change of the Service triggers it.
        let wake = json!({"metadata": {"annotations": {"example.com/wake": "up"}}});
        services(fixture)
            .patch(late, &PatchParams::default(), &Patch::Merge(&wake))
            .await
            .context("wake the Service")?;
        for pod in [preparing, idle] {
            let allowed = operator.await_operate(pod).await?;
            proves(&allowed, "BOUNDED", &["not ready in 1 slice of Service"])?;
            operator.finish(pod).await?;
        }
        for pod in [preparing, idle, completing] {
            operator.await_end(pod).await?;
        }
        until_gone(fixture, deleting).await
    }
}

/// Pods in service stay there, whatever is requested. The others wait, and show what they wait for.
async fn no_replica_for_a_while(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["updated", "deleted", "steady"]).await?;
    let crowd = crowd(&fixture, "web").await?;
    let operator = fixture.operator("a", "update");
    let installation = fixture.installation()?;
    installation.scale(ServiceKind::TrafficController, 0).await?;
    let waited = async {
        operator.begin("updated").await?;
        ask_to_delete(&fixture, "deleted").await?;
        fixture.create_with("new", &labels("web"), &json!({})).await?;
        for (pod, phase) in [("updated", "PRE_CHECK"), ("deleted", "PRE_CHECK"), ("new", "COMPLETE")] {
            let waits = until_message_contains(&fixture, pod, &[phase, "could not connect to"]).await?;
            let went_on = operator.has(&waits, Stage::Operate) || is_held(&waits) == (pod == "new");
            ensure!(pods::is_ready(&waits) && !went_on, "pod {pod}: {}", pods::describe(&waits));
        }
        ask_to_delete(&fixture, "deleted").await
    };
    let waited = waited.await;
    installation.scale(ServiceKind::TrafficController, 2).await?;
    waited?;
    operator.await_operate("updated").await?;
    operator.finish("updated").await?;
    operator.await_end("updated").await?;
    until_gone(&fixture, "deleted").await?;
    fixture.until_available("new").await?;
    lost_nothing(crowd).await
}

/// Deleting the hook releases all pods from the traffic-controller. It registers again by itself, and adds its pods
/// again.
async fn the_hook_is_deleted(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["web-0", "web-1"]).await?;
    let crowd = crowd(&fixture, "web").await?;
    let hooks: Api<LifecycleHook> = Api::all(fixture.client());
    let before = hooks.get(HOOK).await.context("read the hook")?.uid();
    hooks.delete(HOOK, &DeleteParams::default()).await.context("delete the hook")?;
    let back = async {
        while hooks.get_opt(HOOK).await?.is_none_or(|hook| hook.uid() == before) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    within(WAIT, || "the hook to come back".to_owned(), back).await?;
    for pod in ["web-0", "web-1"] {
        fixture.feed().until(pod, "it is held again", is_held).await?;
    }
    proves(&*operate(&fixture, "web-0").await?, "BOUNDED", &["kube-proxy of 1 node has applied the change"])?;
    lost_nothing(crowd).await
}
