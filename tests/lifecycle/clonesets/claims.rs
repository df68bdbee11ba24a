//! PersistentVolumeClaims of pods of CloneSets.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;
use podward_api::clone_set::CloneSetCondition;
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_support::markers::{ASKING, MarkerOperator};
use podward_support::pods;
use serde_json::{Value, json};

use super::made::{MadeSet, hooks};
use super::volumes::{Volumes, with_volume};

const FINALIZER: &str = "example.com/held";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("cloneset_claims_stay_when_others_delete_their_pods", stay),
        Test::simulated("cloneset_claims_of_held_deletions", held),
        Test::simulated("cloneset_claims_of_held_deletions_of_pods_that_are_not_opted_in", held_not_opted_in),
    ]
}

/// Returns the UIDs of the claims, by their names.
async fn claims(fixture: &Fixture) -> Result<BTreeMap<String, Option<String>>> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(fixture.client(), fixture.namespace());
    let claims = api.list(&ListParams::default()).await.context("list claims")?;
    let kept = claims.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    Ok(kept.map(|it| (it.name_any(), it.uid())).collect())
}

/// Waits until another pod has the name of this one.
async fn until_replaced(fixture: &Fixture, old: &Pod) -> Result<()> {
    let (name, uid) = (old.name_any(), old.uid());
    let is_new = |pods: &[&Pod]| {
        pods.iter().any(|pod| {
            pod.name_any() == name && pod.uid() != uid && pod.metadata.deletion_timestamp.is_none()
        })
    };
    fixture.feed().until_pods(&format!("pod {name} is replaced"), is_new).await.map(drop)
}

/// Somebody deletes a pod that then terminates for some time, and another one fails.
async fn stay(fixture: Arc<Fixture>) -> Result<()> {
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, "storageClassName": "none"},
    });
    // Nothing binds the claims, and the pods need not run.
    let spec = json!({"replicas": 2, "volumeClaimTemplates": [claim]});
    let set = MadeSet::create(&fixture, json!({}), spec).await?;
    let pods = fixture.feed().until_pods("there are two", |pods| pods.len() == 2).await?;
    let [first, second] = &pods[..] else { anyhow::bail!("{pods:?}") };
    set.until("both are counted", |status| status.replicas == 2).await?;
    let before = claims(&fixture).await?;
    ensure!(before.len() == 2, "{before:?}");

    let finalizers = |finalizers: &[&str]| json!({"metadata": {"finalizers": finalizers}});
    fixture.patch(&first.name_any(), finalizers(&[FINALIZER])).await?;
    fixture.api().delete(&first.name_any(), &DeleteParams::default()).await.context("delete a pod")?;
    let message = |set: &CloneSet| {
        let status = set.status.as_ref()?;
        let found = status.conditions.iter().find(|it| it.type_ == CloneSetCondition::FAILED_SCALE)?;
        Some(found.message.clone())
    };
    let waits = format!("pod {} is terminating", first.name_any());
    let says = |set: &CloneSet| message(set).is_some_and(|message| message.contains(&waits));
    set.until_set("its status says what the new pod waits for", says).await?;
    ensure!(fixture.feed().all().len() == 2, "a pod with another identity was created");
    ensure!(claims(&fixture).await? == before);
    fixture.patch(&first.name_any(), finalizers(&[])).await?;
    until_replaced(&fixture, first).await?;
    set.until_set("nothing waits", |set| message(set).is_none()).await?;
    ensure!(claims(&fixture).await? == before);

    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let name = second.name_any();
    fixture.api().patch_status(&name, &PatchParams::default(), &failed).await.context("fail a pod")?;
    until_replaced(&fixture, second).await?;
    set.until("both are counted", |status| status.replicas == 2).await?;
    ensure!(claims(&fixture).await? == before);
    Ok(())
}

/// Podward holds the deletion of pods that have opted in.
async fn held(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    of_requester(&fixture, json!({keys::CONTROL_LABEL: "true"}), json!({})).await
}

/// The hook of the set holds the deletion.
async fn held_not_opted_in(fixture: Arc<Fixture>) -> Result<()> {
    let _operator = MarkerOperator::start(fixture.feed(), ASKING);
    of_requester(&fixture, json!({}), json!({"lifecycle": hooks()})).await
}

/// Claims go with a pod that the set deletes, and stay if somebody else deletes it.
async fn of_requester(fixture: &Arc<Fixture>, labels: Value, mut spec: Value) -> Result<()> {
    let volumes = Volumes::create(fixture).await?;
    spec["replicas"] = json!(3);
    spec["template"] = json!({"spec": with_volume(pods::server_spec(&fixture.images().v1))});
    spec["volumeClaimTemplates"] = json!([volumes.claim()]);
    let set = MadeSet::create(fixture, labels, spec).await?;
    set.until_done(3).await?;
    volumes.until_of_pods(fixture).await?;

    set.patch(json!({"replicas": 2})).await?;
    let pods = fixture.feed().until_pods("two are left", |pods| pods.len() == 2).await?;
    set.until_done(2).await?;
    volumes.until_of_pods(fixture).await?;

    let before = claims(fixture).await?;
    let first = pods.first().context("there is no pod")?;
    // It is held, and kubectl repeats it until the pod is gone.
    fixture.kubectl(&["delete", "pod", &first.name_any(), "--wait=false"]).await?;
    until_replaced(fixture, first).await?;
    set.until_done(2).await?;
    ensure!(claims(fixture).await? == before);
    volumes.remove().await
}
