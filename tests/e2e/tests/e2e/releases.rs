//! What hooks left on pods goes, also from pods that are being deleted: none may be kept for ever by somebody who isn't there.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use podward_core::hooks::{employer_of, finalizer_of};
use podward_core::keys;
use podward_e2e::{Scene, Test};
use podward_support::{Kind, WAIT, within};
use serde_json::{Value, json};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("release_and_hold_with_the_status", release_and_hold_with_the_status),
        Test::node("release_from_hooks_that_are_gone", release_from_hooks_that_are_gone),
        Test::node("release_of_pods_that_leave", release_of_pods_that_leave),
        Test::alone("release_of_terminating_pods", release_of_terminating_pods),
    ]
}

/// What the controller's writes rest on: a strategic merge patch of pods/status changes single finalizers, and a terminating pod is
/// gone with the last.
async fn release_and_hold_with_the_status(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    let status = async |patch: Value| {
        let patched =
            scene.api().patch_status("web", &PatchParams::default(), &Patch::Strategic(&patch)).await;
        patched.with_context(|| format!("patch the status of pod web with {patch}"))
    };
    let added = status(json!({"metadata": {"finalizers": ["example.com/a", "example.com/b"]}})).await?;
    ensure!(added.finalizers() == ["example.com/a", "example.com/b"], "{:?}", added.finalizers());
    let gone = "$deleteFromPrimitiveList/finalizers";
    let changed = json!({"metadata": {"finalizers": ["example.com/c"], gone: ["example.com/a"]}});
    let changed = status(changed).await?;
    let mut left = changed.finalizers().to_vec();
    left.sort();
    ensure!(left == ["example.com/b", "example.com/c"], "{left:?}");
    let broken = json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test of what a delete leaves"}}});
    scene.patch("web", broken).await?;
    scene.api().delete("web", &DeleteParams::default().grace_period(0)).await.context("delete the pod")?;
    let terminating = scene.feed().until("web", "it terminates", is_terminating).await?;
    ensure!(terminating.finalizers().len() == 2, "{:?}", terminating.finalizers());
    status(json!({"metadata": {gone: ["example.com/b"]}})).await?;
    status(json!({"metadata": {gone: ["example.com/c"]}})).await?;
    is_gone(&scene, "web").await
}

async fn release_from_hooks_that_are_gone(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    held_by_a_hook_that_is_gone(&scene, "web", &[]).await?;
    let nothing_left = |pod: &Pod| {
        let expected = pod.annotations().get(keys::AVAILABLE_CONDITIONS);
        pod.finalizers().is_empty() && expected.is_none_or(|text| !text.contains("LifecycleHook"))
    };
    scene.feed().until("web", "nothing of the hook is left", nothing_left).await?;
    let events: Api<Event> = Api::namespaced(scene.client(), scene.namespace());
    let told = async {
        loop {
            let events = events.list(&ListParams::default()).await.context("list events")?;
            let tells = |event: &Event| {
                event.reason.as_deref() == Some("HookRemoved")
                    && event.message.as_ref().is_some_and(|text| text.contains("hook gone "))
            };
            if events.items.iter().any(tells) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(WAIT, || "an event that tells of the hook".to_owned(), told).await
}

/// A pod that is opted out is nobody's to look after, so it must not keep what only Podward takes away.
async fn release_of_pods_that_leave(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    scene.ends_in_the_middle();
    let leave = json!({"metadata": {
        "labels": {keys::CONTROL_LABEL: null}, "finalizers": ["example.com/keep", finalizer_of("gone")],
    }});
    let left = scene.patch("web", leave).await?;
    ensure!(left.finalizers() == ["example.com/keep"], "{:?}", left.finalizers());
    scene.patch("web", json!({"metadata": {"finalizers": null}})).await.map(drop)
}

/// A pod that is deleted while nobody looks after it is released by whoever leads next.
async fn release_of_terminating_pods(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.create("kept").await?;
    for pod in ["web", "kept"] {
        scene.until_available(pod).await?;
    }
    let controllers = scene.podward()?.services(Kind::LifecycleController);
    for controller in &controllers {
        controller.kill().await?;
    }
    let held = async {
        // Without a controller a delete is refused; somebody breaks the glass.
        let broken = json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test of what is left then"}}});
        for pod in ["web", "kept"] {
            scene.patch(pod, broken.clone()).await?;
        }
        held_by_a_hook_that_is_gone(&scene, "web", &[]).await?;
        held_by_a_hook_that_is_gone(&scene, "kept", &["example.com/keep"]).await?;
        for pod in ["web", "kept"] {
            scene
                .api()
                .delete(pod, &DeleteParams::default().grace_period(0))
                .await
                .context("delete the pod")?;
            scene.feed().until(pod, "it terminates", is_terminating).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let held = held.await;
    for controller in &controllers {
        controller.start().await?;
    }
    held?;
    is_gone(&scene, "web").await?;
    let only_theirs = |pod: &Pod| pod.finalizers() == ["example.com/keep"];
    scene.feed().until("kept", "only the finalizer of others is left", only_theirs).await?;
    scene.patch("kept", json!({"metadata": {"finalizers": null}})).await?;
    is_gone(&scene, "kept").await
}

async fn held_by_a_hook_that_is_gone(scene: &Scene, pod: &str, others: &[&str]) -> Result<()> {
    let expected = json!({"expectedFinalizers": {employer_of("gone"): finalizer_of("gone")}});
    let finalizers: Vec<String> =
        others.iter().map(|name| (*name).to_owned()).chain([finalizer_of("gone")]).collect();
    let metadata = json!({
        "finalizers": finalizers, "annotations": {keys::AVAILABLE_CONDITIONS: expected.to_string()},
    });
    scene.patch(pod, json!({"metadata": metadata})).await.map(drop)
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

async fn is_gone(scene: &Scene, pod: &str) -> Result<()> {
    let what = format!("pod {pod} is gone");
    let gone = scene.feed().until_pods(&what, |pods| !pods.iter().any(|other| other.name_any() == pod));
    gone.await.map(drop)
}
