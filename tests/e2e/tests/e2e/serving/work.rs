//! All kinds of things that Podward does, one after the other.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, EvictParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use podward_core::keys;
use podward_e2e::Scene;
use podward_support::{Installation, TrafficLoop, pods, within};
use serde_json::{Value, json};

use super::{
    place::{in_service, labels, operate, until_gone},
    registry::a_hook_comes_and_goes,
};

const LONG: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// A workload of two pods, or of one on each node, and the change by which it wants one less.
struct Workload {
    version: &'static str,
    kind: &'static str,
    spec: Value,
    fewer: Value,
}

/// Pods of every kind of owner are scaled in, one is evicted within a budget, one is operated on, and what else happens now and then.
pub(crate) async fn every_kind_of_work(scene: &Scene) -> Result<()> {
    for Workload { version, kind, spec, fewer } in workloads(scene) {
        let app = kind.to_lowercase();
        let api = api_of(scene, version, kind);
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": app}, "spec": spec});
        let object = serde_json::from_value(object).with_context(|| format!("describe a {kind}"))?;
        api.create(&PostParams::default(), &object).await.with_context(|| format!("make a {kind}"))?;
        let wanted = if kind == "DaemonSet" { 1 } else { 2 };
        until_available(scene, &app, wanted).await?;
        let patched = api.patch(&app, &PatchParams::default(), &Patch::Merge(&fewer)).await;
        patched.with_context(|| format!("scale {kind} {app} in"))?;
        until_available(scene, &app, wanted - 1).await?;
    }
    in_service(scene, "bare", ["evicted", "operated"]).await?;
    budget(scene).await?;
    let evict = async {
        // Refused until the budget has been counted, and then until the pod has been let go of.
        while is_refused(scene, "evicted").await? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    };
    within(LONG, || "the eviction of a pod".to_owned(), evict).await?;
    until_gone(scene, "evicted").await?;
    rule(scene).await?;
    operate(scene, "operated").await?;
    break_the_glass(scene, "operated").await?;
    a_node_that_is_not_there(scene).await?;
    a_service_that_never_comes(scene).await?;
    a_hook_comes_and_goes(scene).await?;
    a_lease_that_others_write(scene).await
}

/// A rule by which all pods may be out of service at once.
pub(crate) async fn rule(scene: &Scene) -> Result<()> {
    let (version, kind) = ("apps.kusionstack.io/v1alpha1", "PodTransitionRule");
    let policy = json!({"name": "all", "availablePolicy": {"maxUnavailableValue": "100%"}});
    let rule = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": "all"}, "spec": {"selector": {}, "rules": [policy]},
    });
    let rule = serde_json::from_value(rule).context("describe a rule")?;
    let made = api_of(scene, version, kind).create(&PostParams::default(), &rule).await;
    made.map(drop).context("make a rule")
}

/// A budget that always keeps one of the pods `bare`.
async fn budget(scene: &Scene) -> Result<()> {
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "bare"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "bare"}}},
    });
    let budget = serde_json::from_value(budget).context("describe a budget")?;
    let budgets = api_of(scene, "policy/v1", "PodDisruptionBudget");
    budgets.create(&PostParams::default(), &budget).await.map(drop).context("make a budget")
}

async fn is_refused(scene: &Scene, pod: &str) -> Result<bool> {
    match scene.api().evict(pod, &EvictParams::default()).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error).with_context(|| format!("evict pod {pod}")),
    }
}

/// Let through by Podward, which says so in an event, and refused by the budget: twice, so that the event is counted up.
async fn break_the_glass(scene: &Scene, pod: &str) -> Result<()> {
    scene.patch(pod, json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test"}}})).await?;
    for _ in 0..2 {
        ensure!(is_refused(scene, pod).await?, "the budget did not keep pod {pod}");
    }
    Ok(())
}

/// Nobody is waited for: whether there is such a node is asked, as the watch can't tell that there is none.
async fn a_node_that_is_not_there(scene: &Scene) -> Result<()> {
    let mut pod = scene.pod("nowhere", &labels("nowhere"), &json!({}))?;
    pod.spec.get_or_insert_default().node_name = Some("there-is-none".to_owned());
    scene
        .api()
        .create(&PostParams::default(), &pod)
        .await
        .context("make a pod on a node that isn't there")?;
    scene.api().delete("nowhere", &DeleteParams::default()).await.map(drop).context("delete it")
}

/// A pod that expects to be held for a Service that isn't there becomes available all the same, when that has been looked up.
async fn a_service_that_never_comes(scene: &Scene) -> Result<()> {
    let employer = format!("Service/{}/none", scene.namespace());
    let expected = pods::expecting(&employer, &TrafficLoop::finalizer_of("none"));
    let annotations = json!({keys::AVAILABLE_CONDITIONS: expected});
    scene.create_with("expecting", &labels("expecting"), &annotations).await?;
    scene.feed().until_within(LONG, "expecting", "it is available", pods::is_available).await.map(drop)
}

/// The leader reads its Lease again when somebody else has written to it, and goes on.
async fn a_lease_that_others_write(scene: &Scene) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(scene.client(), Installation::NAMESPACE);
    let name = "lifecycle-controller";
    let note = json!({"metadata": {"annotations": {"example.com/note": "written by others"}}});
    let written = leases.patch(name, &PatchParams::default(), &Patch::Merge(&note)).await;
    let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    let before = renewed(&written.context("write to the Lease")?);
    let is_renewed = |lease: Option<&Lease>| lease.is_some_and(|lease| renewed(lease) > before);
    let again =
        async { await_condition(leases, name, is_renewed).await.map(drop).context("watch the Lease") };
    within(LONG, || "the Lease to be renewed".to_owned(), again).await
}

fn workloads(scene: &Scene) -> Vec<Workload> {
    let template = |app: &str| json!({"metadata": {"labels": labels(app)}, "spec": pods::server_spec(&scene.images().v1)});
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let two = json!({"spec": {"replicas": 1}});
    let mut work = template("job");
    work["spec"]["restartPolicy"] = json!("Never");
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"example.com/there-is": "none"}}}}});
    vec![
        Workload {
            version: "apps/v1",
            kind: "Deployment",
            spec: json!({"replicas": 2, "selector": selector("deployment"), "template": template("deployment")}),
            fewer: two.clone(),
        },
        Workload {
            version: "apps/v1",
            kind: "StatefulSet",
            spec: json!({
                "replicas": 2, "serviceName": "none",
                "selector": selector("statefulset"), "template": template("statefulset"),
            }),
            fewer: two.clone(),
        },
        Workload {
            version: "apps/v1",
            kind: "DaemonSet",
            spec: json!({"selector": selector("daemonset"), "template": template("daemonset")}),
            fewer: nowhere,
        },
        Workload {
            version: "batch/v1",
            kind: "Job",
            spec: json!({"parallelism": 2, "completions": 10, "template": work}),
            fewer: json!({"spec": {"parallelism": 1}}),
        },
        Workload {
            version: "v1",
            kind: "ReplicationController",
            spec: json!({
                "replicas": 2, "selector": {"app": "replicationcontroller"},
                "template": template("replicationcontroller"),
            }),
            fewer: two,
        },
    ]
}

fn api_of(scene: &Scene, version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, number) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, number, kind));
    Api::namespaced_with(scene.client(), scene.namespace(), &resource)
}

/// Waits until so many pods of `app` are there, and all are available.
async fn until_available(scene: &Scene, app: &str, count: usize) -> Result<()> {
    let what = format!("{count} pods of {app} are available, and no other is there");
    let available = scene.feed().until_pods_within(LONG, &what, |pods| {
        let ours: Vec<_> =
            pods.iter().filter(|pod| pod.labels().get("app").is_some_and(|found| found == app)).collect();
        let is_available = |pod: &&&&k8s_openapi::api::core::v1::Pod| {
            pods::is_available(pod) && !pods::has_label(pod, keys::TO_DELETE)
        };
        ours.len() == count && ours.iter().filter(is_available).count() == count
    });
    available.await.map(drop)
}
