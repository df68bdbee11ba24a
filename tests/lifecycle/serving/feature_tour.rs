//! Uses many features of Podward, one after the other.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, EvictParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use podward_core::keys;
use podward_e2e::Fixture;
use podward_support::{Installation, TrafficLoop, await_condition, pods, within};
use serde_json::{Value, json};

use crate::clonesets::every_write::every_write;

use super::{
    bound_service::bindings_are_kept,
    registry::a_hook_comes_and_goes,
    service_fixture::{in_service, labels, operate, until_gone},
};

const LONG: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// A workload of two pods, or of one on each node, and the change that removes one pod.
struct LoadedWorkload {
    version: &'static str,
    kind: &'static str,
    spec: Value,
    fewer: Value,
}

/// Pods of every kind of owner are scaled in, one is evicted within a budget, one is operated on, and rare cases are
/// triggered.
pub(crate) async fn every_kind_of_work(fixture: &Arc<Fixture>) -> Result<()> {
    for LoadedWorkload { version, kind, spec, fewer } in workloads(fixture) {
        let app = kind.to_lowercase();
        let api = api_of(fixture, version, kind);
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": app}, "spec": spec});
        let object = serde_json::from_value(object).with_context(|| format!("describe a {kind}"))?;
        api.create(&PostParams::default(), &object).await.with_context(|| format!("make a {kind}"))?;
        let wanted = if kind == "DaemonSet" { 1 } else { 2 };
        until_available(fixture, &app, wanted).await?;
        let patched = api.patch(&app, &PatchParams::default(), &Patch::Merge(&fewer)).await;
        patched.with_context(|| format!("scale {kind} {app} in"))?;
        until_available(fixture, &app, wanted - 1).await?;
    }
    in_service(fixture, "bare", ["evicted", "operated"]).await?;
    budget(fixture).await?;
    let evict = async {
        // Rejected until the budget is computed, and then until the pod is drained.
        while is_refused(fixture, "evicted").await? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    };
    within(LONG, || "the eviction of a pod".to_owned(), evict).await?;
    until_gone(fixture, "evicted").await?;
    a_rule_of_kuperator(fixture).await?;
    rule(fixture).await?;
    operate(fixture, "operated").await?;
    break_the_glass(fixture, "operated").await?;
    a_node_that_is_not_there(fixture).await?;
    a_service_that_never_comes(fixture).await?;
    a_hook_comes_and_goes(fixture).await?;
    every_write(fixture).await?;
    bindings_are_kept(fixture).await?;
    a_lease_that_others_write(fixture).await
}

/// Creates a rule by which all pods may be unavailable at once.
pub(crate) async fn rule(fixture: &Fixture) -> Result<()> {
    let (version, kind) = ("apps.kusionstack.io/v1alpha1", "PodTransitionRule");
    let policy = json!({"name": "all", "availablePolicy": {"maxUnavailableValue": "100%"}});
    let rule = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": "all"}, "spec": {"selector": {}, "rules": [policy]},
    });
    let rule = serde_json::from_value(rule).context("describe a rule")?;
    let made = api_of(fixture, version, kind).create(&PostParams::default(), &rule).await;
    made.map(drop).context("make a rule")
}

/// A rule object with the finalizer of KusionStack's kuperator is deleted.
async fn a_rule_of_kuperator(fixture: &Fixture) -> Result<()> {
    let (version, kind) = ("apps.kusionstack.io/v1alpha1", "PodTransitionRule");
    let rule = json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": "kuperator", "finalizers": [keys::RULE_PROTECTION]},
        "spec": {"selector": {}, "rules": [{"name": "all", "availablePolicy": {"maxUnavailableValue": "100%"}}]},
    });
    let rule = serde_json::from_value(rule).context("describe a rule")?;
    let rules = api_of(fixture, version, kind);
    rules.create(&PostParams::default(), &rule).await.context("make a rule with a finalizer")?;
    rules.delete("kuperator", &DeleteParams::default()).await.context("delete it")?;
    let gone = await_condition(rules, "kuperator", |rule: Option<&DynamicObject>| rule.is_none());
    within(LONG, || "the end of a deleted rule".to_owned(), async { gone.await.map(drop) }).await
}

/// Creates a budget that always keeps one of the pods `bare`.
async fn budget(fixture: &Fixture) -> Result<()> {
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "bare"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "bare"}}},
    });
    let budget = serde_json::from_value(budget).context("describe a budget")?;
    let budgets = api_of(fixture, "policy/v1", "PodDisruptionBudget");
    budgets.create(&PostParams::default(), &budget).await.map(drop).context("make a budget")
}

async fn is_refused(fixture: &Fixture, pod: &str) -> Result<bool> {
    match fixture.api().evict(pod, &EvictParams::default()).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error).with_context(|| format!("evict pod {pod}")),
    }
}

/// Allowed by Podward, with an event, and rejected by the budget: twice, so that the event is aggregated.
async fn break_the_glass(fixture: &Fixture, pod: &str) -> Result<()> {
    fixture.patch(pod, json!({"metadata": {"annotations": {keys::BREAK_GLASS: "a test"}}})).await?;
    for _ in 0..2 {
        ensure!(is_refused(fixture, pod).await?, "the budget did not keep pod {pod}");
    }
    Ok(())
}

/// There is no wait. The node is read from the API server, because a watch cannot show that it does not exist.
async fn a_node_that_is_not_there(fixture: &Fixture) -> Result<()> {
    let mut pod = fixture.pod("nowhere", &labels("nowhere"), &json!({}))?;
    pod.spec.get_or_insert_default().node_name = Some("there-is-none".to_owned());
    fixture
        .api()
        .create(&PostParams::default(), &pod)
        .await
        .context("make a pod on a node that isn't there")?;
    fixture.api().delete("nowhere", &DeleteParams::default()).await.map(drop).context("delete it")
}

/// A pod that expects a Service that does not exist becomes available when the Service has been looked up.
async fn a_service_that_never_comes(fixture: &Fixture) -> Result<()> {
    let employer = format!("Service/{}/none", fixture.namespace());
    let expected = pods::expecting(&employer, &TrafficLoop::finalizer_of("none"));
    let annotations = json!({keys::AVAILABLE_CONDITIONS: expected});
    fixture.create_with("expecting", &labels("expecting"), &annotations).await?;
    fixture.feed().until_within(LONG, "expecting", "it is available", pods::is_available).await.map(drop)
}

/// The leader reads its Lease again after a foreign write, and continues.
async fn a_lease_that_others_write(fixture: &Fixture) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(fixture.client(), Installation::NAMESPACE);
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

fn workloads(fixture: &Fixture) -> Vec<LoadedWorkload> {
    let template = |app: &str| json!({"metadata": {"labels": labels(app)}, "spec": pods::server_spec(&fixture.images().v1)});
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let two = json!({"spec": {"replicas": 1}});
    let mut work = template("job");
    work["spec"]["restartPolicy"] = json!("Never");
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"example.com/there-is": "none"}}}}});
    vec![
        LoadedWorkload {
            version: "apps/v1",
            kind: "Deployment",
            spec: json!({"replicas": 2, "selector": selector("deployment"), "template": template("deployment")}),
            fewer: two.clone(),
        },
        LoadedWorkload {
            version: "apps/v1",
            kind: "StatefulSet",
            spec: json!({
                "replicas": 2, "serviceName": "none",
                "selector": selector("statefulset"), "template": template("statefulset"),
            }),
            fewer: two.clone(),
        },
        LoadedWorkload {
            version: "apps/v1",
            kind: "DaemonSet",
            spec: json!({"selector": selector("daemonset"), "template": template("daemonset")}),
            fewer: nowhere,
        },
        LoadedWorkload {
            version: "batch/v1",
            kind: "Job",
            spec: json!({"parallelism": 2, "completions": 10, "template": work}),
            fewer: json!({"spec": {"parallelism": 1}}),
        },
        LoadedWorkload {
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

fn api_of(fixture: &Fixture, version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, number) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, number, kind));
    Api::namespaced_with(fixture.client(), fixture.namespace(), &resource)
}

/// Waits until `app` has this number of pods, and all are available.
async fn until_available(fixture: &Fixture, app: &str, count: usize) -> Result<()> {
    let what = format!("{count} pods of {app} are available, and no other is there");
    let available = fixture.feed().until_pods_within(LONG, &what, |pods| {
        let ours: Vec<_> =
            pods.iter().filter(|pod| pod.labels().get("app").is_some_and(|found| found == app)).collect();
        let is_available = |pod: &&&&k8s_openapi::api::core::v1::Pod| {
            pods::is_available(pod) && !pods::has_label(pod, keys::TO_DELETE)
        };
        ours.len() == count && ours.iter().filter(is_available).count() == count
    });
    available.await.map(drop)
}
