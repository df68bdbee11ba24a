//! The deletes that are held, the deletes that are allowed, and the messages.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{EvictParams, Patch, PatchParams},
};
use podward_core::{ConditionStatus, keys};
use podward_e2e::{Fixture, Test};
use podward_support::{TrafficBehaviour, TrafficLoop, TrafficPace, WAIT, pods, within};
use serde_json::json;

use super::evictions::evict;
use super::objects::{deletion_request_of, is_delete_requested, too_many, until_gone, until_leaving};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("delete_is_held_until_drained", delete_is_held_until_drained),
        Test::node("delete_of_a_bare_pod_without_consumers", delete_of_a_bare_pod_without_consumers),
        Test::node("delete_dry_run_changes_nothing", delete_dry_run_changes_nothing),
        Test::node("delete_with_broken_glass", delete_with_broken_glass),
        Test::node("delete_by_force_is_held", delete_by_force_is_held),
        Test::simulated("delete_that_is_not_held", delete_that_is_not_held),
        Test::simulated("evictions_that_are_not_sent_to_podward", evictions_that_are_not_sent_to_podward),
        Test::simulated("delete_that_waits_ends_well", delete_that_waits_ends_well),
        Test::simulated("delete_that_waits_until_its_timeout", delete_that_waits_until_its_timeout),
    ]
}

/// kubectl shows which consumer holds the pod and since when. The pod is deleted by itself when no consumer holds it.
async fn delete_is_held_until_drained(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let finalizer = TrafficLoop::finalizer_of(podward_e2e::CONSUMER);
    let first = fixture.kubectl(&["delete", "pod", "web", "--wait=false"]).await?;
    first.was_held(&[
        &finalizer,
        "is deleted automatically when all consumers have released it",
        "requested by",
    ])?;
    let leaving = until_leaving(&fixture, "web").await?;
    let request = deletion_request_of(&leaving).context("the pod has no deletion request")?;

    let second = fixture.kubectl(&["delete", "pod", "web"]).await?;
    second.was_held(&["waits since 2", &finalizer, "to cancel: kubectl label pod web"])?;
    let held = fixture.feed().get("web").context("the pod is gone although it is held")?;
    ensure!(held.metadata.deletion_timestamp.is_none(), "it is being deleted although it is held");
    let is_running = pods::container(&held).is_some_and(|container| container.ready);
    ensure!(is_running, "its container doesn't run on: {}", pods::describe(&held));
    let again = deletion_request_of(&held).context("the deletion request is gone")?;
    ensure!(again.requested_at == request.requested_at, "the second delete has changed the deletion request");

    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_gone(&fixture, "web").await?;
    let note = fixture.until_event("web", "PodDeletion").await?;
    ensure!(note.contains(&request.requested_by), "{note}");
    Ok(())
}

/// Only the gate has to change, and that may be over before the API server has finished the request, so that either
/// response is right. The same operation deletes the pod in any case.
async fn delete_of_a_bare_pod_without_consumers(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let said = fixture.kubectl(&["delete", "pod", "web", "--wait=false"]).await?;
    if said.code != Some(0) {
        said.was_held(&[])?;
    }
    until_gone(&fixture, "web").await?;
    let report = fixture.report("web").await?;
    let deletion = report.operations_of(keys::DELETE_OPERATION).next();
    ensure!(deletion.is_some_and(|deletion| deletion.operate_ms.is_some()), "{:?}", report.operations);
    let histories = fixture.timeline().histories();
    let ending =
        histories[0].versions.iter().find(|version| version.terminating).context("it never ended")?;
    ensure!(ending.gate == Some("False"), "it was ended with the gate {:?}", ending.gate);
    Ok(())
}

async fn delete_dry_run_changes_nothing(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let before = fixture.api().get("web").await?;
    fixture.kubectl(&["delete", "pod", "web", "--dry-run=server"]).await?.succeeded()?;
    evict(&fixture, "v1", "web", json!({"dryRun": ["All"]}))
        .await
        .context("evict in a dry run of the body")?;
    let post_options = kube::api::PostParams { dry_run: true, ..Default::default() };
    let eviction = EvictParams { post_options, ..EvictParams::default() };
    fixture.api().evict("web", &eviction).await.context("evict in a dry run of the query")?;
    let after = fixture.api().get("web").await?;
    ensure!(
        !is_delete_requested(&after) && after.metadata.deletion_timestamp.is_none(),
        "{}",
        pods::describe(&after)
    );
    ensure!(
        (before.labels(), before.annotations()) == (after.labels(), after.annotations()),
        "labels or annotations have changed: {}",
        pods::describe(&after)
    );
    Ok(())
}

/// An event contains the user and the reason. Consumers get RELEASE, and the object stays until they have released
/// the pod.
async fn delete_with_broken_glass(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let why = "INC-7: the balancer is down";
    fixture.patch("web", json!({"metadata": {"annotations": {keys::BREAK_GLASS: why}}})).await?;
    let said = fixture.kubectl(&["delete", "pod", "web", "--wait=false"]).await?.succeeded()?;
    ensure!(said.said.contains("Warning: ") && said.said.contains(why), "no warning: {}", said.said);
    let note = fixture.until_event("web", "BreakGlass").await?;
    ensure!(note.contains(why) && note.contains("deletion of pod") && note.contains(" by "), "{note}");
    let ended = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() && !pods::is_ready(pod);
    let ended = fixture.feed().until("web", "its containers have ended", ended).await?;
    ensure!(pods::holders(&ended).any(|holder| holder == traffic.finalizer()), "no consumer held it");
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_gone(&fixture, "web").await
}

/// A grace period of zero ends traffic like any other. Once granted, it is the requested one.
async fn delete_by_force_is_held(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let force = ["delete", "pod", "web", "--grace-period=0", "--force", "--wait=false"];
    fixture.kubectl(&force).await?.was_held(&[traffic.finalizer()])?;
    let leaving = until_leaving(&fixture, "web").await?;
    ensure!(leaving.metadata.deletion_timestamp.is_none(), "it is being deleted although it is held");
    let request = deletion_request_of(&leaving).context("the pod has no deletion request")?;
    ensure!(request.grace_period_seconds == Some(0), "{request:?}");
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_gone(&fixture, "web").await?;
    fixture.timeline().catch_up().await?;
    let histories = fixture.timeline().histories();
    let grace = histories[0].versions.last().and_then(|last| last.grace_period_seconds);
    ensure!(grace == Some(0), "it went with the grace period {grace:?}");
    Ok(())
}

async fn delete_that_is_not_held(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    // Not opted in.
    fixture.create_with("unlabelled", &json!({}), &json!({})).await?;
    fixture.feed().until("unlabelled", "it is Ready", pods::is_ready).await?;
    fixture.kubectl(&["delete", "pod", "unlabelled"]).await?.succeeded()?;

    // Never scheduled.
    let mut pod = fixture.pod("pending", &json!({keys::CONTROL_LABEL: "true"}), &json!({}))?;
    if let Some(spec) = pod.spec.as_mut() {
        spec.node_selector = Some([("nowhere".to_owned(), "at-all".to_owned())].into());
    }
    fixture.api().create(&kube::api::PostParams::default(), &pod).await?;
    fixture.kubectl(&["delete", "pod", "pending"]).await?.succeeded()?;

    // One has finished, one is already being deleted. A consumer holds both, so that the objects stay.
    fixture.in_service(["ended", "ending"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let phase = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    fixture.api().patch_status("ended", &PatchParams::default(), &phase).await?;
    // The API server begins a delete with the pod in its cache, and the watch has the same one.
    let has_ended =
        |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Succeeded"));
    fixture.feed().until("ended", "it has ended", has_ended).await?;
    fixture.kubectl(&["delete", "pod", "ended", "--wait=false"]).await?.succeeded()?;
    fixture.patch("ending", json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test"}}})).await?;
    for _ in 0..2 {
        fixture.kubectl(&["delete", "pod", "ending", "--wait=false"]).await?.succeeded()?;
    }
    for name in ["ended", "ending"] {
        let pod = fixture
            .feed()
            .until(name, "it is being deleted", |pod| pod.metadata.deletion_timestamp.is_some());
        ensure!(!is_delete_requested(&*pod.await?), "a deletion request was recorded for pod {name}");
    }
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    for name in ["unlabelled", "pending", "ended", "ending"] {
        until_gone(&fixture, name).await?;
    }
    Ok(())
}

/// A namespace says that it has no opted-in pods. Whoever creates one is warned, and an eviction does not wait for its
/// consumers.
async fn evictions_that_are_not_sent_to_podward(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let label = Patch::Merge(json!({"metadata": {"labels": {keys::INJECT_LABEL: keys::INJECT_NONE}}}));
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    namespaces.patch(fixture.namespace(), &PatchParams::default(), &label).await?;
    let opts_in = format!("--labels={}={}", keys::CONTROL_LABEL, keys::CONTROL_VALUE);
    let warned = async {
        // The webhook sees the label with a delay.
        loop {
            let create = ["run", "web", "--image=web", &opts_in, "--dry-run=server"];
            let said = fixture.kubectl(&create).await?.succeeded()?.said;
            if said.contains("Warning: evictions of this pod will not wait for its consumers") {
                return Ok(());
            }
        }
    };
    within(WAIT, || "a warning about evictions".to_owned(), warned).await?;
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    fixture.api().evict("web", &EvictParams::default()).await.context("evict the pod")?;
    let ended = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    let ended = fixture.feed().until("web", "it is being deleted", ended).await?;
    ensure!(pods::holders(&ended).any(|holder| holder == traffic.finalizer()), "no consumer held it");
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_gone(&fixture, "web").await
}

/// Consumers that drain within the webhook's `--wait`: kubectl does not notice.
async fn delete_that_waits_ends_well(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour {
        drain: TrafficPace::After(Duration::from_millis(300)),
        ..TrafficBehaviour::PROMPT
    });
    let said = fixture.kubectl(&["delete", "pod", "web"]).await?.succeeded()?;
    ensure!(said.said.contains("\"web\" deleted"), "{}", said.said);
    until_gone(&fixture, "web").await?;
    let report = fixture.report("web").await?;
    let deletion = report.operations_of(keys::DELETE_OPERATION).next();
    ensure!(deletion.is_some_and(|deletion| deletion.operate_ms.is_some()), "{:?}", report.operations);
    Ok(())
}

/// Consumers that need longer: the delete is rejected after the wait, an eviction at once.
async fn delete_that_waits_until_its_timeout(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web", "other"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    fixture.kubectl(&["delete", "pod", "web"]).await?.was_held(&[traffic.finalizer()])?;
    let pod = fixture.feed().get("web").context("the pod is gone although it is held")?;
    ensure!(
        pods::condition(&pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::False),
        "it still serves"
    );
    too_many(
        fixture.api().evict("other", &EvictParams::default()).await,
        &["Eviction triggered evacuation"],
    )?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_gone(&fixture, "web").await?;
    until_gone(&fixture, "other").await
}
