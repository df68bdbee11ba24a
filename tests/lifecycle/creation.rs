//! New pods, and pods that existed before they opted in.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use podward_core::{keys, keys::Stage};
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::json;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("a_new_pod_gets_the_gate", a_new_pod_gets_the_gate),
        Test::node("a_dry_run_leaves_nothing", a_dry_run_leaves_nothing),
        Test::node("a_namespace_opts_in", a_namespace_opts_in),
        Test::node("a_pod_without_the_gate", a_pod_without_the_gate),
        Test::node("labels_copied_from_another_pod", labels_copied_from_another_pod),
        Test::simulated("managed_fields_are_dropped", managed_fields_are_dropped),
    ]
}

async fn a_new_pod_gets_the_gate(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let made = fixture.create("in").await?;
    ensure!(pods::has_gate(&made), "no gate on a pod that opted in");
    for (name, labels) in [("out", json!({})), ("other", json!({keys::CONTROL_LABEL: "false"}))] {
        let made = fixture.create_with(name, &labels, &json!({})).await?;
        ensure!(!pods::has_gate(&made), "a gate on pod {name}, which did not opt in");
    }
    fixture.until_available("in").await.map(drop)
}

async fn a_dry_run_leaves_nothing(fixture: Arc<Fixture>) -> Result<()> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let pod = fixture.pod("dry", &json!({keys::CONTROL_LABEL: "true"}), &json!({}))?;
    let made = fixture.api().create(&dry, &pod).await.context("make a pod in a dry run")?;
    ensure!(pods::has_gate(&made), "a dry run doesn't show what would be made");
    ensure!(fixture.api().get_opt("dry").await?.is_none(), "the dry run made a pod");

    fixture.create("web").await?;
    let before = fixture.until_available("web").await?;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let begin = json!({"metadata": {"labels": {Stage::Operating.key("a"): "1", Stage::OperationType.key("a"): "update"}}});
    fixture.api().patch("web", &dry, &Patch::Merge(begin)).await.context("begin in a dry run")?;
    let after = fixture.api().get("web").await?;
    ensure!(
        after.metadata.labels == before.metadata.labels,
        "the dry run changed labels: {}",
        pods::describe(&after)
    );
    Ok(())
}

async fn a_namespace_opts_in(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let label = json!({"metadata": {"labels": {keys::INJECT_LABEL: keys::INJECT_VALUE}}});
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    namespaces.patch(fixture.namespace(), &PatchParams::default(), &Patch::Merge(label)).await?;
    // The API server sees the label with a delay.
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let canary = fixture.pod("canary", &json!({}), &json!({}))?;
    let seen = async {
        while !pods::has_gate(&fixture.api().create(&dry, &canary).await?) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    };
    podward_support::within(podward_support::WAIT, || "the namespace's label to be seen".to_owned(), seen)
        .await?;
    let made = fixture.create_with("web", &json!({}), &json!({})).await?;
    ensure!(pods::has_gate(&made), "no gate");
    ensure!(pods::has_label(&made, keys::CONTROL_LABEL), "no opt-in label");
    let kept_out = fixture.create_with("out", &json!({keys::CONTROL_LABEL: "false"}), &json!({})).await?;
    ensure!(!pods::has_gate(&kept_out), "a pod that stays out was added to traffic");
    fixture.until_available("web").await.map(drop)
}

/// A pod that was created before it opted in has no gate. It only waits for its consumers.
async fn a_pod_without_the_gate(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create_with("web", &json!({}), &json!({})).await?;
    fixture.feed().until("web", "it is Ready", pods::is_ready).await?;
    fixture.label("web", &[(keys::CONTROL_LABEL, Some("true"))]).await?;
    fixture.until_available("web").await?;
    let holder = format!("{}/by-hand", keys::PROT_FINALIZER_PREFIX);
    fixture.patch("web", json!({"metadata": {"finalizers": [holder]}})).await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let held = operator.await_stage("web", Stage::Preparing).await?;
    ensure!(!operator.has(&held, Stage::Operate), "the permission came with a consumer's finalizer there");
    fixture.patch("web", json!({"metadata": {"finalizers": null}})).await?;
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// A manifest that was copied from a pod under operation must not carry its permissions.
async fn labels_copied_from_another_pod(fixture: Arc<Fixture>) -> Result<()> {
    let labels = json!({
        keys::CONTROL_LABEL: "true",
        keys::SERVICE_AVAILABLE: "1",
        Stage::PreChecked.key("a"): "1",
        Stage::Operate.key("a"): "1",
        keys::permission_key("update"): "1",
    });
    let made = fixture.create_with("web", &labels, &json!({})).await?;
    let operator = fixture.operator("a", "update");
    ensure!(!operator.has(&made, Stage::Operate) && !pods::is_available(&made), "{}", pods::describe(&made));
    operator.await_end("web").await
}

/// Without managed fields, a pod is made, operated on and applied as with them, and the API server does not begin to
/// track them.
async fn managed_fields_are_dropped(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let _traffic = fixture.traffic();
    fixture.in_service(["in"]).await?;
    let made = fixture.api().get("in").await?;
    ensure!(made.metadata.managed_fields.is_none(), "a new pod has them: {:?}", made.metadata.managed_fields);
    let other = fixture.create_with("out", &json!({}), &json!({})).await?;
    ensure!(other.metadata.managed_fields.is_some(), "a pod that did not opt in has none");

    let operator = fixture.operator("a", "update");
    operator.update("in", &fixture.images().v2).await?;
    let updated = fixture.api().get("in").await?;
    ensure!(
        updated.metadata.managed_fields.is_none(),
        "after an update: {:?}",
        updated.metadata.managed_fields
    );

    let apply = |value: &str| {
        let labels = json!({"team": value});
        Patch::Apply(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "in", "labels": labels}}))
    };
    for (manager, value, is_accepted) in [("one", "a", true), ("two", "b", false)] {
        let applied = fixture.api().patch("in", &PatchParams::apply(manager), &apply(value)).await;
        ensure!(applied.is_ok() == is_accepted, "{manager} applies: {applied:?}");
    }
    Ok(())
}
