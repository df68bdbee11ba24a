//! Objects for these tests, and conditions on them.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use podward_core::{deletion::request::DeletionRequest, keys};
use podward_e2e::{CONSUMER, Fixture};
use podward_support::{TrafficLoop, pods, restart_patch};
use serde_json::{Value, json};

/// The label that names the workload of a pod.
pub(crate) const APP: &str = "app";

/// Creates any object, in the test's namespace if its kind is namespaced.
pub(crate) async fn make(fixture: &Fixture, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let kind = object.types.clone().context("an object without a kind")?;
    let api = api_of(fixture, &kind.api_version, &kind.kind);
    let what = || format!("make {} {}", kind.kind, object.name_any());
    api.create(&PostParams::default(), &object).await.map(drop).with_context(what)
}

/// Returns the API of a kind.
pub(super) fn api_of(fixture: &Fixture, version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, number) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, number, kind));
    match kind {
        "Node" | "PriorityClass" | "LifecycleHook" => Api::all_with(fixture.client(), &resource),
        _ => Api::namespaced_with(fixture.client(), fixture.namespace(), &resource),
    }
}

/// Sends a JSON merge patch of an object.
pub(super) async fn patch(
    fixture: &Fixture,
    version: &str,
    kind: &str,
    name: &str,
    change: &Value,
) -> Result<()> {
    let patched =
        api_of(fixture, version, kind).patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
    patched.map(drop).with_context(|| format!("patch {kind} {name} with {change}"))
}

/// Returns the template of pods that are opted in and expect the finalizer of the fixture's traffic loop.
pub(super) fn template(fixture: &Fixture, app: &str) -> Value {
    let expected = pods::expecting("Traffic/test/loop", &TrafficLoop::finalizer_of(CONSUMER));
    json!({
        "metadata": {
            "labels": {APP: app, keys::CONTROL_LABEL: keys::CONTROL_VALUE},
            "annotations": {keys::AVAILABLE_CONDITIONS: expected},
        },
        "spec": pods::server_spec(&fixture.images().v1),
    })
}

/// Returns the name of a schedulable real node.
pub(super) async fn real_node(fixture: &Fixture) -> Result<String> {
    let nodes =
        Api::<Node>::all(fixture.client()).list(&ListParams::default()).await.context("list nodes")?;
    let takes_pods = |node: &&Node| {
        let is_closed = node.spec.as_ref().is_some_and(|spec| {
            spec.unschedulable == Some(true) || spec.taints.as_ref().is_some_and(|taints| !taints.is_empty())
        });
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        !is_closed && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let node = nodes.items.iter().find(takes_pods).context("no node takes pods")?;
    Ok(node.name_any())
}

/// Binds the `spec` of pods to the node, for the scheduler.
pub(super) fn only_on(spec: &mut Value, node: &str) {
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
}

/// Waits until the scheduler's deletion request for `victim` is executed, and returns it. `preemptor` has to wait for
/// it.
pub(super) async fn until_preempted(fixture: &Fixture, victim: &str, preemptor: &str) -> Result<Arc<Pod>> {
    let leaving = until_leaving(fixture, victim).await?;
    let request = deletion_request_of(&leaving).context("the victim has no deletion request")?;
    ensure!(request.requested_by == "system:kube-scheduler" && !request.by_workload, "{request:?}");
    let waits = fixture.feed().get(preemptor).with_context(|| format!("there is no pod {preemptor}"))?;
    ensure!(
        waits.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()),
        "it was scheduled beside its victim"
    );
    Ok(leaving)
}

/// Returns a Deployment of such pods.
pub(crate) fn deployment(fixture: &Fixture, name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {APP: name}},
            "template": template(fixture, name),
        },
    })
}

/// Sets the number of replicas of a workload.
pub(crate) async fn scale(fixture: &Fixture, kind: &str, name: &str, replicas: usize) -> Result<()> {
    patch(fixture, "apps/v1", kind, name, &json!({"spec": {"replicas": replicas}})).await
}

/// Changes the template of a workload, as `kubectl rollout restart` does.
pub(super) async fn restart(fixture: &Fixture, kind: &str, name: &str) -> Result<()> {
    patch(fixture, "apps/v1", kind, name, &restart_patch()).await
}

/// Returns whether the pod belongs to the workload `app`.
pub(super) fn is_of(pod: &Pod, app: &str) -> bool {
    pod.labels().get(APP).is_some_and(|found| found == app)
}

/// Returns whether the pod is available and has no deletion request.
pub(super) fn serves(pod: &Pod) -> bool {
    pods::is_available(pod)
        && pods::is_ready(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && !is_delete_requested(pod)
}

/// Returns whether the pod has a deletion request.
pub(crate) fn is_delete_requested(pod: &Pod) -> bool {
    pods::has_label(pod, keys::TO_DELETE) || pod.annotations().contains_key(keys::DELETION_REQUEST)
}

/// Returns the deletion request of the pod, if there is one.
pub(super) fn deletion_request_of(pod: &Pod) -> Option<DeletionRequest> {
    pod.annotations().get(keys::DELETION_REQUEST).and_then(|text| DeletionRequest::parse(text))
}

/// Returns the names of the pods of `app`.
pub(super) fn names_of(fixture: &Fixture, app: &str) -> Vec<String> {
    fixture.feed().all().iter().filter(|pod| is_of(pod, app)).map(|pod| pod.name_any()).collect()
}

/// Waits until `app` has exactly `count` pods, all available, and returns their names.
pub(crate) async fn until_serving(fixture: &Fixture, app: &str, count: usize) -> Result<Vec<String>> {
    until_all_serve(fixture, &[app], count).await?;
    Ok(names_of(fixture, app))
}

/// Waits until each of `apps` has exactly this number of pods, all available.
pub(super) async fn until_all_serve(fixture: &Fixture, apps: &[&str], count: usize) -> Result<()> {
    let all = |pods: &[&Pod]| {
        apps.iter().all(|app| {
            let mut found = 0;
            let serve = pods.iter().filter(|pod| is_of(pod, app)).all(|pod| {
                found += 1;
                serves(pod)
            });
            serve && found == count
        })
    };
    let what = format!("{} have {count} pods each, in service", apps.join(", "));
    fixture.feed().until_pods_within(LONG, &what, all).await.map(drop)
}

/// The deadline for conditions that take many steps.
pub(crate) const LONG: std::time::Duration = std::time::Duration::from_secs(100);

/// Waits until the pod is out of service for its deletion, and held.
pub(super) async fn until_leaving(fixture: &Fixture, name: &str) -> Result<Arc<Pod>> {
    let leaves = |pod: &Pod| {
        is_delete_requested(pod)
            && pods::condition(pod, keys::SERVICE_READY_GATE) == Some(podward_core::ConditionStatus::False)
    };
    fixture.feed().until(name, "it is out of service, to be deleted", leaves).await
}

/// Waits until the pod is gone.
pub(super) async fn until_gone(fixture: &Fixture, name: &str) -> Result<()> {
    let gone = |pods: &[&Pod]| pods.iter().all(|pod| pod.name_any() != name);
    fixture.feed().until_pods(&format!("pod {name} is gone"), gone).await.map(drop)
}

/// Waits until the Deployment is rolled out.
pub(super) async fn until_rolled_out(fixture: &Fixture, name: &str) -> Result<()> {
    let said = fixture.kubectl(&["rollout", "status", "deployment", name, "--timeout=100s"]).await?;
    said.succeeded().map(drop)
}

/// Returns the current Deployment.
pub(super) async fn deployment_now(fixture: &Fixture, name: &str) -> Result<Deployment> {
    let api: Api<Deployment> = Api::namespaced(fixture.client(), fixture.namespace());
    api.get(name).await.with_context(|| format!("read Deployment {name}"))
}

/// Requires that the response of the API server is 429, with each of `texts` in its message.
pub(super) fn too_many<T>(answer: Result<T, kube::Error>, texts: &[&str]) -> Result<()> {
    match answer {
        Ok(_) => anyhow::bail!("it was let through"),
        Err(kube::Error::Api(status)) => {
            let is_it = status.code == 429 && status.reason == "TooManyRequests";
            ensure!(is_it && texts.iter().all(|text| status.message.contains(text)), "{status:?}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
