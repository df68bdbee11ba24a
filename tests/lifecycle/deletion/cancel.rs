//! Deletion requests that are cancelled before the permission.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_proto::v1::{CancelRequest, PodReference};
use podward_support::TrafficBehaviour;
use serde_json::json;

use super::objects::{
    deployment, is_delete_requested, make, names_of, scale, serves, until_gone, until_leaving, until_serving,
};
use crate::lifecycle_api;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("a_deletion_request_is_cancelled", a_deletion_request_is_cancelled),
        Test::node("a_deletion_is_cancelled_over_grpc", a_deletion_is_cancelled_over_grpc),
        Test::node("a_scale_in_is_taken_back", a_scale_in_is_taken_back),
        Test::node("the_mark_alone_deletes", the_mark_alone_deletes),
    ]
}

/// By label and by annotation: the pod becomes available again, nothing is left, and an event reports it.
async fn a_deletion_request_is_cancelled(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["label", "annotation"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    for name in ["label", "annotation"] {
        fixture.kubectl(&["delete", "pod", name, "--wait=false"]).await?.was_held(&[])?;
        until_leaving(&fixture, name).await?;
    }
    fixture.kubectl(&["label", "pod", "label", "collaset.kusionstack.io/to-delete-"]).await?.succeeded()?;
    fixture.kubectl(&["annotate", "pod", "annotation", "podward.io/deletion-request-"]).await?.succeeded()?;
    for name in ["label", "annotation"] {
        until_back(&fixture, name).await?;
        let note = fixture.until_event(name, "DeletionCancelled").await?;
        ensure!(note.contains(&format!("the {name} ")), "{note}");
    }
    Ok(())
}

/// By anyone who may update pods.
async fn a_deletion_is_cancelled_over_grpc(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    fixture.kubectl(&["delete", "pod", "web", "--wait=false"]).await?.was_held(&[])?;
    let uid = until_leaving(&fixture, "web").await?.uid().unwrap_or_default();
    let pod = Some(PodReference { namespace: fixture.namespace().to_owned(), name: "web".to_owned(), uid });
    let operation_id = keys::DELETE_OPERATION.to_owned();
    let mut lifecycle = lifecycle_api::client(&fixture).await?;
    lifecycle.cancel(CancelRequest { pod, operation_id }).await.context("cancel")?;
    until_back(&fixture, "web").await
}

/// Scaled in and out again: all existing pods stay, and their deletion costs are as before.
async fn a_scale_in_is_taken_back(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    make(&fixture, deployment(&fixture, "web", 3)).await?;
    let names: BTreeSet<String> = until_serving(&fixture, "web", 3).await?.into_iter().collect();
    for name in &names {
        fixture.patch(name, json!({"metadata": {"annotations": {COST: "7"}}})).await?;
    }
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    scale(&fixture, "Deployment", "web", 1).await?;
    let two = |pods: &[&Pod]| pods.iter().filter(|pod| is_delete_requested(pod)).count() == 2;
    fixture.feed().until_pods("two pods are to go", two).await?;
    scale(&fixture, "Deployment", "web", 3).await?;
    let all = |pods: &[&Pod]| pods.len() == 3 && pods.iter().all(|pod| serves(pod));
    fixture.feed().until_pods("all pods are in service again", all).await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    ensure!(names_of(&fixture, "web").into_iter().collect::<BTreeSet<_>>() == names, "a pod was replaced");
    for pod in fixture.feed().all() {
        let cost = pod.annotations().get(COST).map(String::as_str);
        ensure!(cost == Some("7"), "pod {} has the cost {cost:?}", pod.name_any());
    }
    Ok(())
}

/// `collaset.kusionstack.io/to-delete`, set by anyone: the pod leaves service and is deleted. If it is removed
/// before, the pod stays.
async fn the_mark_alone_deletes(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["goes", "stays"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    for name in ["goes", "stays"] {
        fixture.label(name, &[(keys::TO_DELETE, Some("1"))]).await?;
        until_leaving(&fixture, name).await?;
    }
    fixture.label("stays", &[(keys::TO_DELETE, None)]).await?;
    until_back(&fixture, "stays").await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    until_gone(&fixture, "goes").await?;
    // The kubelet may have written late that its gate was False for a moment.
    fixture.feed().until("stays", "it serves", serves).await.map(drop)
}

async fn until_back(fixture: &Fixture, name: &str) -> Result<()> {
    let back = |pod: &Pod| serves(pod) && !pod.labels().keys().any(|key| key.ends_with("/pod-delete"));
    fixture
        .feed()
        .until(name, "it is back in service, and the deletion request is gone", back)
        .await
        .map(drop)
}
