//! The lifecycle protocol of OpenKruise. The test does what its controllers do: it writes the states, and reads the markers.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::{Value, json};

use super::bound::Bound;
use crate::clonesets::made::MadeSet;
use podward_support::markers::States;

const STATE: &str = "lifecycle.apps.kruise.io/state";
const FINALIZER: &str = "example.com/registry";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_answers_openkruise", openkruise),
        Test::simulated("registry_answers_podwards_clonesets", podwards_clonesets),
    ]
}

/// Returns hooks whose markers are a label while the pod is online, and a finalizer until it may be deleted.
fn hooks() -> Value {
    json!({
        "preNormal": {"labelsHandler": {"online": "true"}},
        "inPlaceUpdate": {"labelsHandler": {"online": "true"}},
        "preDelete": {"finalizersHandler": [FINALIZER]},
    })
}

/// The bridge is the operator of a CloneSet that Podward's own controller manages.
async fn podwards_clonesets(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    let (states, _watch) = States::record(fixture.client(), fixture.namespace()).await?;
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks(), "replicas": 2})).await?;
    set.until_done(2).await?;
    let names: Vec<String> = fixture.feed().all().iter().map(|pod| pod.name_any()).collect();
    let all_in_service = async || -> Result<()> {
        for name in &names {
            ensure!(bound.in_service(name).await? == Some(true), "{name} is Normal, and not in service");
        }
        Ok(())
    };
    all_in_service().await?;

    set.update(&fixture.images().v2).await?;
    set.until_done(2).await?;
    all_in_service().await?;
    let expected = ["PreparingNormal", "Normal", "PreparingUpdate", "Updating", "Updated", "Normal"];
    for name in &names {
        ensure!(states.all().get(name).is_some_and(|it| it == &expected), "{:?}", states.all());
    }

    set.patch(json!({"replicas": 1})).await?;
    let left = fixture.feed().until_pods("one is left", |pods| pods.len() == 1).await?;
    let gone = names.iter().find(|name| !left.iter().any(|pod| pod.name_any() == **name));
    let gone = gone.context("no pod is gone")?;
    ensure!(bound.in_service(gone).await?.is_none(), "{gone} is deleted, and the registry shows it");
    bound.end().await
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

    // Somebody else deletes it: its state stays Normal.
    fixture.api().delete("web-x", &DeleteParams::default().grace_period(0)).await?;
    fixture.feed().until_pods("it is gone", |pods| pods.is_empty()).await?;
    ensure!(of_pod().await?.is_none(), "the pod is gone, and the registry shows {:?}", of_pod().await?);
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

/// Makes a CloneSet with hooks, of which the pod of the test is the only one. Returns its UID.
async fn make_workload(fixture: &Fixture) -> Result<String> {
    let set = json!({
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "CloneSet",
        "metadata": {"name": "web"},
        "spec": {
            // The controller of Podward finds nothing to do.
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pods::server_spec(&fixture.images().v1)},
            "lifecycle": hooks(),
        },
    });
    let set: CloneSet = serde_json::from_value(set).context("describe a CloneSet")?;
    let sets: Api<CloneSet> = Api::namespaced(fixture.client(), fixture.namespace());
    let created = sets.create(&PostParams::default(), &set).await.context("make a CloneSet")?;
    created.uid().context("a CloneSet without UID")
}
