//! What is made for these tests, and what is asked of it.

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
use podward_core::{keys, wish::Wish};
use podward_e2e::{CONSUMER, Scene};
use podward_support::{TrafficLoop, pods};
use serde_json::{Value, json};

/// The label by which the pods of a workload are told.
pub(crate) const APP: &str = "app";

/// Makes any object, in the test's namespace if it is of a kind that has one.
pub(crate) async fn make(scene: &Scene, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let kind = object.types.clone().context("an object without a kind")?;
    let api = api_of(scene, &kind.api_version, &kind.kind);
    let what = || format!("make {} {}", kind.kind, object.name_any());
    api.create(&PostParams::default(), &object).await.map(drop).with_context(what)
}

/// The API of a kind.
pub(super) fn api_of(scene: &Scene, version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, number) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, number, kind));
    match kind {
        "Node" | "PriorityClass" | "LifecycleHook" => Api::all_with(scene.client(), &resource),
        _ => Api::namespaced_with(scene.client(), scene.namespace(), &resource),
    }
}

/// Sends a JSON merge patch of an object.
pub(super) async fn patch(
    scene: &Scene,
    version: &str,
    kind: &str,
    name: &str,
    change: &Value,
) -> Result<()> {
    let patched =
        api_of(scene, version, kind).patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
    patched.map(drop).with_context(|| format!("patch {kind} {name} with {change}"))
}

/// The template of pods that opted in and expect the finalizer of the scene's traffic loop.
pub(super) fn template(scene: &Scene, app: &str) -> Value {
    let expected = pods::expecting("Traffic/test/loop", &TrafficLoop::finalizer_of(CONSUMER));
    json!({
        "metadata": {
            "labels": {APP: app, keys::CONTROL_LABEL: keys::CONTROL_VALUE},
            "annotations": {keys::AVAILABLE_CONDITIONS: expected},
        },
        "spec": pods::server_spec(&scene.images().v1),
    })
}

/// The name of a real node that takes pods.
pub(super) async fn real_node(scene: &Scene) -> Result<String> {
    let nodes = Api::<Node>::all(scene.client()).list(&ListParams::default()).await.context("list nodes")?;
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

/// Binds the `spec` of pods to the node, as far as the scheduler is concerned.
pub(super) fn only_on(spec: &mut Value, node: &str) {
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
}

/// Waits until the scheduler's wish to have `victim` gone is carried out, and gives it. `preemptor` has to wait for it.
pub(super) async fn until_preempted(scene: &Scene, victim: &str, preemptor: &str) -> Result<Arc<Pod>> {
    let leaving = until_leaving(scene, victim).await?;
    let wish = wish_of(&leaving).context("no wish stands on the victim")?;
    ensure!(wish.requested_by == "system:kube-scheduler" && !wish.by_workload, "{wish:?}");
    let waits = scene.feed().get(preemptor).with_context(|| format!("there is no pod {preemptor}"))?;
    ensure!(
        waits.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()),
        "it was scheduled beside its victim"
    );
    Ok(leaving)
}

/// A Deployment of such pods.
pub(crate) fn deployment(scene: &Scene, name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {APP: name}},
            "template": template(scene, name),
        },
    })
}

/// Sets the number of replicas of a workload.
pub(crate) async fn scale(scene: &Scene, kind: &str, name: &str, replicas: usize) -> Result<()> {
    patch(scene, "apps/v1", kind, name, &json!({"spec": {"replicas": replicas}})).await
}

/// Changes the template of a workload, as `kubectl rollout restart` does.
pub(super) async fn restart(scene: &Scene, kind: &str, name: &str) -> Result<()> {
    let at = nanoseconds();
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": at});
    let change = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    patch(scene, "apps/v1", kind, name, &change).await
}

fn nanoseconds() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().to_string()
}

/// Whether the pod belongs to the workload `app`.
pub(super) fn is_of(pod: &Pod, app: &str) -> bool {
    pod.labels().get(APP).is_some_and(|found| found == app)
}

/// Whether the pod is available, and nobody wishes it gone.
pub(super) fn serves(pod: &Pod) -> bool {
    pods::is_available(pod)
        && pods::is_ready(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && !is_wished(pod)
}

/// Whether somebody wishes the pod gone.
pub(crate) fn is_wished(pod: &Pod) -> bool {
    pods::has_label(pod, keys::TO_DELETE) || pod.annotations().contains_key(keys::DELETION_WISH)
}

/// The wish that stands on the pod.
pub(super) fn wish_of(pod: &Pod) -> Option<Wish> {
    pod.annotations().get(keys::DELETION_WISH).and_then(|text| Wish::parse(text))
}

/// The names of the pods of `app`.
pub(super) fn names_of(scene: &Scene, app: &str) -> Vec<String> {
    scene.feed().all().iter().filter(|pod| is_of(pod, app)).map(|pod| pod.name_any()).collect()
}

/// Waits until `app` has exactly so many pods, all in service, and gives their names.
pub(crate) async fn until_serving(scene: &Scene, app: &str, count: usize) -> Result<Vec<String>> {
    until_all_serve(scene, &[app], count).await?;
    Ok(names_of(scene, app))
}

/// Waits until each of `apps` has exactly so many pods, all in service.
pub(super) async fn until_all_serve(scene: &Scene, apps: &[&str], count: usize) -> Result<()> {
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
    scene.feed().until_pods_within(LONG, &what, all).await.map(drop)
}

/// For what takes many steps.
pub(crate) const LONG: std::time::Duration = std::time::Duration::from_secs(100);

/// Waits until the pod is out of service for its deletion, and held.
pub(super) async fn until_leaving(scene: &Scene, name: &str) -> Result<Arc<Pod>> {
    let leaves = |pod: &Pod| {
        is_wished(pod)
            && pods::condition(pod, keys::SERVICE_READY_GATE) == Some(podward_core::ConditionStatus::False)
    };
    scene.feed().until(name, "it is out of service, to be deleted", leaves).await
}

/// Waits until the pod is gone.
pub(super) async fn until_gone(scene: &Scene, name: &str) -> Result<()> {
    let gone = |pods: &[&Pod]| pods.iter().all(|pod| pod.name_any() != name);
    scene.feed().until_pods(&format!("pod {name} is gone"), gone).await.map(drop)
}

/// Waits until the Deployment says that it has rolled out.
pub(super) async fn until_rolled_out(scene: &Scene, name: &str) -> Result<()> {
    let said = scene.kubectl(&["rollout", "status", "deployment", name, "--timeout=100s"]).await?;
    said.succeeded().map(drop)
}

/// The Deployment as it is.
pub(super) async fn deployment_now(scene: &Scene, name: &str) -> Result<Deployment> {
    let api: Api<Deployment> = Api::namespaced(scene.client(), scene.namespace());
    api.get(name).await.with_context(|| format!("read Deployment {name}"))
}

/// Wants an API server's answer to be 429, with each of `texts` in its message.
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
