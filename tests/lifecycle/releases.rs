//! What hooks left on pods is removed, even from pods that are being deleted: a missing hook must not keep a pod for
//! ever.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use podward_core::hooks::{consumer_key_of, hook_finalizer};
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_support::{ServiceKind, WAIT, within};
use serde_json::{Value, json};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("release_and_hold_with_the_status", release_and_hold_with_the_status),
        Test::node("release_from_hooks_that_are_gone", release_from_hooks_that_are_gone),
        Test::node("release_of_pods_that_leave", release_of_pods_that_leave),
        Test::alone("release_of_terminating_pods", release_of_terminating_pods),
    ]
}

/// The basis of the controller's writes: a strategic merge patch of pods/status changes single finalizers, and a
/// terminating pod is gone with the last one.
async fn release_and_hold_with_the_status(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let status = async |patch: Value| {
        let patched =
            fixture.api().patch_status("web", &PatchParams::default(), &Patch::Strategic(&patch)).await;
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
    fixture.patch("web", broken).await?;
    fixture.api().delete("web", &DeleteParams::default().grace_period(0)).await.context("delete the pod")?;
    let terminating = fixture.feed().until("web", "it terminates", is_terminating).await?;
    ensure!(terminating.finalizers().len() == 2, "{:?}", terminating.finalizers());
    status(json!({"metadata": {gone: ["example.com/b"]}})).await?;
    status(json!({"metadata": {gone: ["example.com/c"]}})).await?;
    is_gone(&fixture, "web").await
}

async fn release_from_hooks_that_are_gone(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    held_by_a_hook_that_is_gone(&fixture, "web", &[]).await?;
    let nothing_left = |pod: &Pod| {
        let expected = pod.annotations().get(keys::AVAILABLE_CONDITIONS);
        pod.finalizers().is_empty() && expected.is_none_or(|text| !text.contains("LifecycleHook"))
    };
    fixture.feed().until("web", "nothing of the hook is left", nothing_left).await?;
    let events: Api<Event> = Api::namespaced(fixture.client(), fixture.namespace());
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

/// Podward does not manage a pod that has opted out, so the pod must not keep what only Podward removes.
async fn release_of_pods_that_leave(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    fixture.ends_in_the_middle();
    let leave = json!({"metadata": {
        "labels": {keys::CONTROL_LABEL: null}, "finalizers": ["example.com/keep", hook_finalizer("gone")],
    }});
    let left = fixture.patch("web", leave).await?;
    ensure!(left.finalizers() == ["example.com/keep"], "{:?}", left.finalizers());
    fixture.patch("web", json!({"metadata": {"finalizers": null}})).await.map(drop)
}

/// The next leader releases a pod that was deleted while there was no leader.
async fn release_of_terminating_pods(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.create("kept").await?;
    for pod in ["web", "kept"] {
        fixture.until_available(pod).await?;
    }
    let controllers = fixture.podward()?.services(ServiceKind::LifecycleController);
    for controller in &controllers {
        controller.kill().await?;
    }
    let held = async {
        // Without a controller a delete is rejected, so the test uses the emergency override.
        let broken = json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test of what is left then"}}});
        for pod in ["web", "kept"] {
            fixture.patch(pod, broken.clone()).await?;
        }
        held_by_a_hook_that_is_gone(&fixture, "web", &[]).await?;
        held_by_a_hook_that_is_gone(&fixture, "kept", &["example.com/keep"]).await?;
        for pod in ["web", "kept"] {
            fixture
                .api()
                .delete(pod, &DeleteParams::default().grace_period(0))
                .await
                .context("delete the pod")?;
            fixture.feed().until(pod, "it terminates", is_terminating).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let held = held.await;
    for controller in &controllers {
        controller.start().await?;
    }
    held?;
    is_gone(&fixture, "web").await?;
    let only_theirs = |pod: &Pod| pod.finalizers() == ["example.com/keep"];
    fixture.feed().until("kept", "only the finalizer of others is left", only_theirs).await?;
    fixture.patch("kept", json!({"metadata": {"finalizers": null}})).await?;
    is_gone(&fixture, "kept").await
}

async fn held_by_a_hook_that_is_gone(fixture: &Fixture, pod: &str, others: &[&str]) -> Result<()> {
    let expected = json!({"expectedFinalizers": {consumer_key_of("gone"): hook_finalizer("gone")}});
    let finalizers: Vec<String> =
        others.iter().map(|name| (*name).to_owned()).chain([hook_finalizer("gone")]).collect();
    let metadata = json!({
        "finalizers": finalizers, "annotations": {keys::AVAILABLE_CONDITIONS: expected.to_string()},
    });
    fixture.patch(pod, json!({"metadata": metadata})).await.map(drop)
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

async fn is_gone(fixture: &Fixture, pod: &str) -> Result<()> {
    let what = format!("pod {pod} is gone");
    let gone = fixture.feed().until_pods(&what, |pods| !pods.iter().any(|other| other.name_any() == pod));
    gone.await.map(drop)
}
