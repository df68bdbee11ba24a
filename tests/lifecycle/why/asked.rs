//! Asks `why`, and creates what it is asked about.

use anyhow::{Context, Result};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use podward_e2e::Fixture;
use podward_support::pods;
use serde_json::{Value, json};

/// The kinds that are not namespaced.
const OF_CLUSTER: [&str; 7] = [
    "PersistentVolume",
    "PriorityClass",
    "RuntimeClass",
    "StorageClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// Waits until the first line of `why` contains `words`, and returns the whole text.
pub(super) async fn until_first_line(fixture: &Fixture, asked: &str, words: &str) -> Result<String> {
    fixture.until_why(asked, words, &[]).await
}

/// Waits until the first line of `why` contains `words`, and the whole text contains `also`. Returns the text.
pub(super) async fn until_said(fixture: &Fixture, asked: &str, words: &str, also: &[&str]) -> Result<String> {
    fixture.until_why(asked, words, also).await
}

/// Creates an object in the namespace of the test.
pub(super) async fn create(fixture: &Fixture, object: Value) -> Result<()> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, number) = version.split_once('/').unwrap_or(("", version.as_str()));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, number, &kind));
    let is_of_cluster = OF_CLUSTER.contains(&kind.as_str());
    let api: Api<DynamicObject> = match is_of_cluster {
        true => Api::all_with(fixture.client(), &resource),
        false => Api::namespaced_with(fixture.client(), fixture.namespace(), &resource),
    };
    let name = object["metadata"]["name"].clone();
    let object = serde_json::from_value(object).with_context(|| format!("describe {kind} {name}"))?;
    api.create(&PostParams::default(), &object)
        .await
        .map(drop)
        .with_context(|| format!("create {kind} {name}"))
}

/// Creates a pod of the server, with changes to its spec and to its container.
pub(super) async fn pod(fixture: &Fixture, name: &str, spec: Value, container: Value) -> Result<()> {
    create(
        fixture,
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": server(fixture, spec, container),
        }),
    )
    .await
}

/// Returns the spec of the server, with changes.
pub(super) fn server(fixture: &Fixture, spec: Value, container: Value) -> Value {
    let mut all = pods::server_spec(&fixture.images().v1);
    change(&mut all, spec);
    change(&mut all["containers"][0], container);
    all
}

/// Adds the fields of `from`, or replaces them.
pub(super) fn change(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// Creates a Deployment `web` of one pod.
pub(super) async fn deployment(fixture: &Fixture, spec: Value, changes: Value) -> Result<()> {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    });
    change(&mut object["spec"], changes);
    create(fixture, object).await
}

/// Writes a part of the status of a pod, as the kubelet does.
pub(super) async fn write_status(fixture: &Fixture, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Strategic(json!({"status": status}));
    let written = fixture.api().patch_status(name, &PatchParams::default(), &patch).await;
    written.map(drop).with_context(|| format!("write the status of pod {name}"))
}

/// Deletes an object that is not namespaced.
pub(super) async fn delete(fixture: &Fixture, kind: &str, name: &str) -> Result<()> {
    fixture.kubectl(&["delete", kind, name, "--wait=false"]).await?.succeeded().map(drop)
}
