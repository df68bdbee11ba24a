//! Which deletes are held, which are not, and what is said.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{EvictParams, Patch, PatchParams},
};
use podward_core::{ConditionStatus, keys};
use podward_e2e::{Scene, Test};
use podward_support::{Behaviour, Pace, TrafficLoop, pods};
use serde_json::json;

use super::evictions::evict;
use super::made::{is_wished, too_many, until_gone, until_leaving, wish_of};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("delete_is_held_until_let_go", delete_is_held_until_let_go),
        Test::node("delete_of_a_bare_pod_that_nobody_holds", delete_of_a_bare_pod_that_nobody_holds),
        Test::node("delete_dry_run_changes_nothing", delete_dry_run_changes_nothing),
        Test::node("delete_with_broken_glass", delete_with_broken_glass),
        Test::node("delete_by_force_is_held", delete_by_force_is_held),
        Test::simulated("delete_that_is_not_held", delete_that_is_not_held),
        Test::simulated("delete_that_waits_ends_well", delete_that_waits_ends_well),
        Test::simulated("delete_that_waits_in_vain", delete_that_waits_in_vain),
    ]
}

/// kubectl is told who holds the pod and since when; the pod goes by itself when nobody does any more.
async fn delete_is_held_until_let_go(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let finalizer = TrafficLoop::finalizer_of(podward_e2e::CONSUMER);
    let first = scene.kubectl(&["delete", "pod", "web", "--wait=false"]).await?;
    first.was_held(&[&finalizer, "is deleted by itself when everybody has let go of it", "asked for by "])?;
    let leaving = until_leaving(&scene, "web").await?;
    let wish = wish_of(&leaving).context("no wish stands on the pod")?;

    let second = scene.kubectl(&["delete", "pod", "web"]).await?;
    second.was_held(&["waits since 2", &finalizer, "to cancel: kubectl label pod web"])?;
    let held = scene.feed().get("web").context("the pod is gone although it is held")?;
    ensure!(held.metadata.deletion_timestamp.is_none(), "it is being deleted although it is held");
    let is_running = pods::container(&held).is_some_and(|container| container.ready);
    ensure!(is_running, "its container doesn't run on: {}", pods::describe(&held));
    let again = wish_of(&held).context("the wish is gone")?;
    ensure!(again.requested_at == wish.requested_at, "the second delete has made another wish");

    traffic.behave(Behaviour::PROMPT);
    until_gone(&scene, "web").await?;
    let note = scene.until_event("web", "PodDeletion").await?;
    ensure!(note.contains(&wish.requested_by), "{note}");
    Ok(())
}

/// Nobody but the gate has to let go, and that may be over before the API server is done with the request: either answer is right. The
/// pod goes by the same operation in any case.
async fn delete_of_a_bare_pod_that_nobody_holds(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    let said = scene.kubectl(&["delete", "pod", "web", "--wait=false"]).await?;
    if said.code != Some(0) {
        said.was_held(&[])?;
    }
    until_gone(&scene, "web").await?;
    let report = scene.report("web").await?;
    let deletion = report.operations_of(keys::DELETE_OPERATION).next();
    ensure!(deletion.is_some_and(|deletion| deletion.operate_ms.is_some()), "{:?}", report.operations);
    let histories = scene.timeline().histories();
    let ending =
        histories[0].versions.iter().find(|version| version.terminating).context("it never ended")?;
    ensure!(ending.gate == Some("False"), "it was ended with the gate {:?}", ending.gate);
    Ok(())
}

async fn delete_dry_run_changes_nothing(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let before = scene.api().get("web").await?;
    scene.kubectl(&["delete", "pod", "web", "--dry-run=server"]).await?.succeeded()?;
    evict(&scene, "v1", "web", json!({"dryRun": ["All"]})).await.context("evict in a dry run of the body")?;
    let post_options = kube::api::PostParams { dry_run: true, ..Default::default() };
    let eviction = EvictParams { post_options, ..EvictParams::default() };
    scene.api().evict("web", &eviction).await.context("evict in a dry run of the query")?;
    let after = scene.api().get("web").await?;
    ensure!(!is_wished(&after) && after.metadata.deletion_timestamp.is_none(), "{}", pods::describe(&after));
    ensure!(
        (before.labels(), before.annotations()) == (after.labels(), after.annotations()),
        "labels or annotations have changed: {}",
        pods::describe(&after)
    );
    Ok(())
}

/// Who did it and why stands in an event; consumers are told to forget the pod, and the object stays until they have.
async fn delete_with_broken_glass(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let why = "INC-7: the balancer is down";
    scene.patch("web", json!({"metadata": {"annotations": {keys::BREAK_GLASS: why}}})).await?;
    let said = scene.kubectl(&["delete", "pod", "web", "--wait=false"]).await?.succeeded()?;
    ensure!(said.said.contains("Warning: ") && said.said.contains(why), "no warning: {}", said.said);
    let note = scene.until_event("web", "BreakGlass").await?;
    ensure!(note.contains(why) && note.contains("deletion of pod") && note.contains(" by "), "{note}");
    let ended = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() && !pods::is_ready(pod);
    let ended = scene.feed().until("web", "its containers have ended", ended).await?;
    ensure!(pods::holders(&ended).any(|holder| holder == traffic.finalizer()), "nobody held it");
    traffic.behave(Behaviour::PROMPT);
    until_gone(&scene, "web").await
}

/// A grace period of zero takes the traffic's target away as any other does. Once granted it is what was asked for.
async fn delete_by_force_is_held(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let force = ["delete", "pod", "web", "--grace-period=0", "--force", "--wait=false"];
    scene.kubectl(&force).await?.was_held(&[traffic.finalizer()])?;
    let leaving = until_leaving(&scene, "web").await?;
    ensure!(leaving.metadata.deletion_timestamp.is_none(), "it is being deleted although it is held");
    let wish = wish_of(&leaving).context("no wish stands on the pod")?;
    ensure!(wish.grace_period_seconds == Some(0), "{wish:?}");
    traffic.behave(Behaviour::PROMPT);
    until_gone(&scene, "web").await?;
    scene.timeline().catch_up().await?;
    let histories = scene.timeline().histories();
    let grace = histories[0].versions.last().and_then(|last| last.grace_period_seconds);
    ensure!(grace == Some(0), "it went with the grace period {grace:?}");
    Ok(())
}

async fn delete_that_is_not_held(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    // Not opted in.
    scene.create_with("stranger", &json!({}), &json!({})).await?;
    scene.feed().until("stranger", "it is Ready", pods::is_ready).await?;
    scene.kubectl(&["delete", "pod", "stranger"]).await?.succeeded()?;

    // Never scheduled.
    let mut pod = scene.pod("pending", &json!({keys::CONTROL_LABEL: "true"}), &json!({}))?;
    if let Some(spec) = pod.spec.as_mut() {
        spec.node_selector = Some([("nowhere".to_owned(), "at-all".to_owned())].into());
    }
    scene.api().create(&kube::api::PostParams::default(), &pod).await?;
    scene.kubectl(&["delete", "pod", "pending"]).await?.succeeded()?;

    // Run to its end, and being deleted already; both are held by a consumer, so that the objects stay.
    scene.in_service(["ended", "ending"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let phase = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    scene.api().patch_status("ended", &PatchParams::default(), &phase).await?;
    scene.kubectl(&["delete", "pod", "ended", "--wait=false"]).await?.succeeded()?;
    scene.patch("ending", json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test"}}})).await?;
    for _ in 0..2 {
        scene.kubectl(&["delete", "pod", "ending", "--wait=false"]).await?.succeeded()?;
    }
    for name in ["ended", "ending"] {
        let pod =
            scene.feed().until(name, "it is being deleted", |pod| pod.metadata.deletion_timestamp.is_some());
        ensure!(!is_wished(&*pod.await?), "a wish was recorded for pod {name}");
    }
    traffic.behave(Behaviour::PROMPT);
    for name in ["stranger", "pending", "ended", "ending"] {
        until_gone(&scene, name).await?;
    }
    Ok(())
}

/// Consumers that let go within the webhook's `--wait`: kubectl sees nothing of it all.
async fn delete_that_waits_ends_well(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour { let_go: Pace::After(Duration::from_millis(300)), ..Behaviour::PROMPT });
    let said = scene.kubectl(&["delete", "pod", "web"]).await?.succeeded()?;
    ensure!(said.said.contains("\"web\" deleted"), "{}", said.said);
    until_gone(&scene, "web").await?;
    let report = scene.report("web").await?;
    let deletion = report.operations_of(keys::DELETE_OPERATION).next();
    ensure!(deletion.is_some_and(|deletion| deletion.operate_ms.is_some()), "{:?}", report.operations);
    Ok(())
}

/// Consumers that don't: it is told so, and an eviction is told so at once.
async fn delete_that_waits_in_vain(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web", "other"]).await?;
    traffic.behave(Behaviour::HOLDS);
    scene.kubectl(&["delete", "pod", "web"]).await?.was_held(&[traffic.finalizer()])?;
    let pod = scene.feed().get("web").context("the pod is gone although it is held")?;
    ensure!(
        pods::condition(&pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::False),
        "it still serves"
    );
    too_many(scene.api().evict("other", &EvictParams::default()).await, &["Eviction triggered evacuation"])?;
    traffic.behave(Behaviour::PROMPT);
    until_gone(&scene, "web").await?;
    until_gone(&scene, "other").await
}
