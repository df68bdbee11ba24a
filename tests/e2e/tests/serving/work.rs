//! All kinds of things that Podward does, one after the other.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, EvictParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use podward_core::keys;
use podward_e2e::Scene;
use podward_support::pods;
use serde_json::{Value, json};

use crate::place::{in_service, labels, operate, until_gone};

const LONG: Duration = Duration::from_secs(60);

/// A workload of two pods, or of one on each node, and the change by which it wants one less.
struct Workload {
    version: &'static str,
    kind: &'static str,
    spec: Value,
    fewer: Value,
}

/// Pods of every kind of owner are scaled in, one is evicted within a budget, and one is operated on.
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
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "bare"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "bare"}}},
    });
    let budget = serde_json::from_value(budget).context("describe a budget")?;
    let budgets = api_of(scene, "policy/v1", "PodDisruptionBudget");
    budgets.create(&PostParams::default(), &budget).await.context("make a budget")?;
    let evict = async {
        // Refused until the budget has been counted, and then until the pod has been let go of.
        while let Err(kube::Error::Api(status)) = scene.api().evict("evicted", &EvictParams::default()).await
            && status.code == 429
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LONG, evict).await.context("evict a pod")?;
    until_gone(scene, "evicted").await?;
    operate(scene, "operated").await.map(drop)
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
