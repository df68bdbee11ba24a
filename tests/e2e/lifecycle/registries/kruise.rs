//! The lifecycle protocol of OpenKruise. The test does what its controllers do: it writes the states, and reads the markers.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::{Value, json};

use super::bound::Bound;

const STATE: &str = "lifecycle.apps.kruise.io/state";
const FINALIZER: &str = "example.com/registry";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("registry_answers_openkruise", openkruise)]
}

async fn openkruise(fixture: Arc<Fixture>) -> Result<()> {
    let workload = make_workload(&fixture).await?;
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let phases = json!({"phases": {"beforeUpdate": "TakeOutOfService", "beforeDelete": "Deregister"}});
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], phases).await?;
    fixture.create_with("web-x", &json!({"app": "web"}), &json!({})).await?;
    // Without its markers the pod does not become normal.
    let owner = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": workload, "controller": true,
    });
    write(&fixture, json!({"ownerReferences": [owner], "labels": {STATE: "PreparingNormal"}})).await?;
    let with_all = |pod: &Pod| is_online(pod) && has_finalizer(pod);
    fixture.feed().until("web-x", "it has all markers", with_all).await?;
    let of_pod = async || Ok::<_, anyhow::Error>(bound.in_service("web-x").await?);
    ensure!(of_pod().await? == Some(true), "the pod is marked, and the registry shows {:?}", of_pod().await?);
    set_state(&fixture, "Normal").await?;

    set_state(&fixture, "PreparingUpdate").await?;
    fixture.feed().until("web-x", "it may be updated", |pod| !is_online(pod)).await?;
    ensure!(
        of_pod().await? == Some(false),
        "the pod may be updated, and the registry shows {:?}",
        of_pod().await?
    );
    let pod = fixture.feed().get("web-x").context("the pod is gone")?;
    ensure!(has_finalizer(&pod), "the marker of preDelete was removed for an update");
    set_state(&fixture, "Updating").await?;
    set_state(&fixture, "Updated").await?;
    fixture.feed().until("web-x", "it is back", is_online).await?;
    ensure!(of_pod().await? == Some(true), "the pod is back, and the registry shows {:?}", of_pod().await?);
    set_state(&fixture, "Normal").await?;

    set_state(&fixture, "PreparingDelete").await?;
    fixture.feed().until("web-x", "it may be deleted", |pod| !has_finalizer(pod)).await?;
    ensure!(
        of_pod().await?.is_none(),
        "the pod may be deleted, and the registry shows {:?}",
        of_pod().await?
    );
    // The deletion is cancelled.
    set_state(&fixture, "Normal").await?;
    fixture.feed().until("web-x", "it has all markers again", with_all).await?;
    ensure!(of_pod().await? == Some(true), "the pod is marked, and the registry shows {:?}", of_pod().await?);

    set_state(&fixture, "PreparingDelete").await?;
    fixture.feed().until("web-x", "it may be deleted", |pod| !has_finalizer(pod)).await?;
    fixture.api().delete("web-x", &DeleteParams::default().grace_period(0)).await?;
    bound.end().await
}

fn is_online(pod: &Pod) -> bool {
    pod.labels().get("online").is_some_and(|value| value == "true")
}

fn has_finalizer(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|name| name == FINALIZER)
}

/// Writes the state when the pod is Ready.
async fn set_state(fixture: &Fixture, state: &str) -> Result<()> {
    fixture.feed().until("web-x", "it is Ready", pods::is_ready).await?;
    write(fixture, json!({"labels": {STATE: state}})).await
}

async fn write(fixture: &Fixture, metadata: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let written = fixture.api().patch("web-x", &PatchParams::default(), &patch).await;
    written.map(drop).context("write to the pod as OpenKruise does")
}

/// Defines the resource and makes a CloneSet with hooks. Returns its UID.
async fn make_workload(fixture: &Fixture) -> Result<String> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "clonesets.apps.kruise.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "apps.kruise.io", "scope": "Namespaced",
            "names": {"kind": "CloneSet", "plural": "clonesets", "singular": "cloneset", "shortNames": ["clone"]},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
    let definitions: Api<CustomResourceDefinition> = Api::all(fixture.client());
    definitions.create(&PostParams::default(), &definition).await.context("define CloneSets")?;
    let kind = GroupVersionKind::gvk("apps.kruise.io", "v1alpha1", "CloneSet");
    let resource = ApiResource::from_gvk_with_plural(&kind, "clonesets");
    let workloads: Api<DynamicObject> =
        Api::namespaced_with(fixture.client(), fixture.namespace(), &resource);
    let lifecycle = json!({
        "preNormal": {"labelsHandler": {"online": "true"}},
        "inPlaceUpdate": {"labelsHandler": {"online": "true"}},
        "preDelete": {"finalizersHandler": [FINALIZER]},
    });
    let workload = DynamicObject::new("web", &resource).data(json!({"spec": {"lifecycle": lifecycle}}));
    // The resource is served a moment after it is defined.
    let created =
        podward_support::within(podward_support::WAIT, || "CloneSets to be served".to_owned(), async {
            loop {
                match workloads.create(&PostParams::default(), &workload).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                    other => return other.context("make a CloneSet"),
                }
            }
        });
    created.await?.uid().context("a CloneSet without UID")
}
