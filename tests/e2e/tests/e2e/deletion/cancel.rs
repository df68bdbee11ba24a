//! Wishes that are taken back before the permission.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys;
use podward_e2e::{Scene, Test};
use podward_proto::v1::{CancelRequest, PodReference};
use podward_support::Behaviour;
use serde_json::json;

use super::made::{
    deployment, is_wished, make, names_of, scale, serves, until_gone, until_leaving, until_serving,
};
use crate::lifecycle;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("a_deletion_is_taken_back", a_deletion_is_taken_back),
        Test::node("a_deletion_is_cancelled_over_grpc", a_deletion_is_cancelled_over_grpc),
        Test::node("a_scale_in_is_taken_back", a_scale_in_is_taken_back),
        Test::node("the_mark_alone_deletes", the_mark_alone_deletes),
    ]
}

/// By label, and by annotation: the pod goes back into service, nothing is left, and an event says it.
async fn a_deletion_is_taken_back(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["label", "annotation"]).await?;
    traffic.behave(Behaviour::HOLDS);
    for name in ["label", "annotation"] {
        scene.kubectl(&["delete", "pod", name, "--wait=false"]).await?.was_held(&[])?;
        until_leaving(&scene, name).await?;
    }
    scene.kubectl(&["label", "pod", "label", "collaset.kusionstack.io/to-delete-"]).await?.succeeded()?;
    scene.kubectl(&["annotate", "pod", "annotation", "podward.io/deletion-wish-"]).await?.succeeded()?;
    for name in ["label", "annotation"] {
        until_back(&scene, name).await?;
        let note = scene.until_event(name, "DeletionCancelled").await?;
        ensure!(note.contains(&format!("the {name} ")), "{note}");
    }
    Ok(())
}

/// By whoever may update pods.
async fn a_deletion_is_cancelled_over_grpc(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour::HOLDS);
    scene.kubectl(&["delete", "pod", "web", "--wait=false"]).await?.was_held(&[])?;
    let uid = until_leaving(&scene, "web").await?.uid().unwrap_or_default();
    let pod = Some(PodReference { namespace: scene.namespace().to_owned(), name: "web".to_owned(), uid });
    let operation_id = keys::DELETE_OPERATION.to_owned();
    let mut lifecycle = lifecycle::client(&scene).await?;
    lifecycle.cancel(CancelRequest { pod, operation_id }).await.context("cancel")?;
    until_back(&scene, "web").await
}

/// Scaled in and out again: all pods that there were stay, and costs are what they were.
async fn a_scale_in_is_taken_back(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    make(&scene, deployment(&scene, "web", 3)).await?;
    let names: BTreeSet<String> = until_serving(&scene, "web", 3).await?.into_iter().collect();
    for name in &names {
        scene.patch(name, json!({"metadata": {"annotations": {COST: "7"}}})).await?;
    }
    traffic.behave(Behaviour::HOLDS);
    scale(&scene, "Deployment", "web", 1).await?;
    let two = |pods: &[&Pod]| pods.iter().filter(|pod| is_wished(pod)).count() == 2;
    scene.feed().until_pods("two pods are to go", two).await?;
    scale(&scene, "Deployment", "web", 3).await?;
    let all = |pods: &[&Pod]| pods.len() == 3 && pods.iter().all(|pod| serves(pod));
    scene.feed().until_pods("all pods are in service again", all).await?;
    traffic.behave(Behaviour::PROMPT);
    ensure!(names_of(&scene, "web").into_iter().collect::<BTreeSet<_>>() == names, "a pod was replaced");
    for pod in scene.feed().all() {
        let cost = pod.annotations().get(COST).map(String::as_str);
        ensure!(cost == Some("7"), "pod {} has the cost {cost:?}", pod.name_any());
    }
    Ok(())
}

/// `collaset.kusionstack.io/to-delete`, set by whoever: the pod leaves service and goes; removed before, it stays.
async fn the_mark_alone_deletes(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["goes", "stays"]).await?;
    traffic.behave(Behaviour::HOLDS);
    for name in ["goes", "stays"] {
        scene.label(name, &[(keys::TO_DELETE, Some("1"))]).await?;
        until_leaving(&scene, name).await?;
    }
    scene.label("stays", &[(keys::TO_DELETE, None)]).await?;
    until_back(&scene, "stays").await?;
    traffic.behave(Behaviour::PROMPT);
    until_gone(&scene, "goes").await?;
    ensure!(scene.feed().get("stays").is_some_and(|pod| serves(&pod)), "the other went too");
    Ok(())
}

async fn until_back(scene: &Scene, name: &str) -> Result<()> {
    let back = |pod: &Pod| serves(pod) && !pod.labels().keys().any(|key| key.ends_with("/pod-delete"));
    scene.feed().until(name, "it is back in service, and nothing of the wish is left", back).await.map(drop)
}
