//! What the cloneset-controller needs its rights for.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use podward_core::cloneset::keys::INSTANCE_ID;
use podward_e2e::Fixture;
use podward_support::pods;
use serde_json::json;

use super::made::MadeSet;
use super::volumes::{Volumes, with_volume};
use super::watched_objects::until_objects;

/// Creates, updates, resizes, deletes and adopts pods with claims.
pub(crate) async fn every_write(fixture: &Arc<Fixture>) -> Result<()> {
    let volumes = Volumes::create(fixture).await?;
    let mut server = with_volume(pods::server_spec(&fixture.images().v1));
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    server["containers"][0]["resources"] = requests("10m");
    let spec = json!({
        "template": {"spec": server}, "volumeClaimTemplates": [volumes.claim()], "revisionHistoryLimit": 0,
    });
    let set = MadeSet::create(fixture, json!({}), spec.clone()).await?;
    set.until_done(2).await?;
    server["containers"][0]["resources"] = requests("20m");
    set.patch(json!({"template": {"spec": server}})).await?;
    set.until_done(2).await?;
    let revisions: Api<ControllerRevision> = Api::namespaced(fixture.client(), fixture.namespace());
    // Other workloads have revisions, too.
    let is_of_set =
        |it: &&Arc<ControllerRevision>| it.owner_references().iter().any(|it| it.kind == "CloneSet");
    let one = |found: &[Arc<ControllerRevision>]| found.iter().filter(is_of_set).count() == 1;
    until_objects(revisions, "the old revision is gone", one).await?;

    let chosen = names(fixture).first().cloned().context("there is no pod")?;
    set.patch(json!({"scaleStrategy": {"podsToDelete": [chosen]}})).await?;
    let gone = |pods: &[&Pod]| pods.iter().all(|pod| pod.name_any() != chosen);
    fixture.feed().until_pods("the chosen pod is gone", gone).await?;
    set.until_done(2).await?;
    let before = names(fixture);
    fixture.kubectl(&["delete", "clone/web", "--cascade=orphan"]).await?.succeeded()?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(fixture.client(), fixture.namespace());
    let mut unused = volumes.claim();
    unused["metadata"] = json!({"name": "data-web-other", "labels": {"app": "web", INSTANCE_ID: "other"}});
    let unused = serde_json::from_value(unused).context("describe a claim")?;
    claims.create(&PostParams::default(), &unused).await.context("create a claim")?;
    let mut again = spec;
    again["template"]["spec"] = server;
    // Otherwise the claim that no pod uses would stay.
    again["scaleStrategy"] = json!({"disablePVCReuse": true});
    let set = MadeSet::create(fixture, json!({}), again).await?;
    set.until_done(2).await?;
    ensure!(names(fixture) == before, "pods were not adopted: {before:?}, {:?}", names(fixture));
    volumes.until_of_pods(fixture).await?;
    set.patch(json!({"replicas": 0})).await?;
    fixture.feed().until_pods("all are gone", |pods| !pods.iter().any(|pod| is_server(pod))).await?;
    volumes.until_of_pods(fixture).await?;
    volumes.remove().await
}

fn names(fixture: &Fixture) -> Vec<String> {
    fixture.feed().all().iter().filter(|pod| is_server(pod)).map(|pod| pod.name_any()).collect()
}

fn is_server(pod: &Pod) -> bool {
    pod.labels().get("app").map(String::as_str) == Some("web")
}
