//! A service of Podward is down while clients send requests: its processes crash, or it has no pod for a while.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_support::{Installation, ServiceKind, demo::Act, pods};
use serde_json::json;

use super::{
    service_fixture::{
        ask_to_delete, crowd, in_service, is_held, labels, lost_nothing, of_app, serve, until_gone,
    },
    zero_loss::under_load,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving_alone("every_process_crashes_in_a_rolling_update", every_process_crashes),
        Test::serving_alone("no_mutating_webhook_for_a_while", no_mutating_webhook),
        Test::serving_alone("no_validating_webhook_for_a_while", no_validating_webhook),
        Test::serving_alone("no_lifecycle_controller_for_a_while", no_lifecycle_controller),
        Test::serving_alone("no_podward_at_all_for_a_while", no_podward_at_all),
        Test::serving_alone("podwards_own_pods_are_evicted", own_pods_are_evicted),
    ]
}

async fn every_process_crashes(fixture: Arc<Fixture>) -> Result<()> {
    let (workload, load) = under_load(&fixture, None).await?;
    let crashes = async {
        let installation = fixture.installation()?;
        for kind in ServiceKind::ALL {
            for pod in installation.pods(kind).await? {
                installation.crash(&pod).await?;
                installation.until_restarted(&pod).await?;
            }
        }
        anyhow::Ok(())
    };
    let (rolled, crashed) =
        tokio::join!(Act::RollingUpdate.perform(&workload, &fixture.images().v2), crashes);
    lost_nothing(load).await?;
    crashed?;
    rolled
}

/// New pods are rejected, because they would lack the gate. Existing pods are not affected.
async fn no_mutating_webhook(fixture: Arc<Fixture>) -> Result<()> {
    away(&fixture, ServiceKind::MutatingWebhook, async |fixture| {
        match fixture.create_with("late", &labels("web"), &json!({})).await {
            Ok(pod) => bail!("pod late was made without a gate: {}", pods::describe(&pod)),
            Err(error) => {
                let why = format!("{error:#}");
                ensure!(
                    why.contains("failed calling webhook"),
                    "pod late was refused for another reason: {why}"
                );
            }
        }
        ask_to_delete(fixture, "going").await?;
        until_gone(fixture, "going").await
    })
    .await
}

/// A delete that cannot be checked is rejected.
async fn no_validating_webhook(fixture: Arc<Fixture>) -> Result<()> {
    away(&fixture, ServiceKind::ValidatingWebhook, async |fixture| {
        match fixture.api().delete("going", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(()),
            other => bail!("deleted without a check: {other:?}"),
        }
    })
    .await
}

/// Nothing can remove pods from service: they stay, and deletes are postponed.
async fn no_lifecycle_controller(fixture: Arc<Fixture>) -> Result<()> {
    away(&fixture, ServiceKind::LifecycleController, async |fixture| ask_to_delete(fixture, "going").await)
        .await
}

/// Pods in service stay there, pods that are not opted in come and go, and Podward recovers by itself: its webhooks
/// are not called for its own pods.
async fn no_podward_at_all(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["staying", "going"]).await?;
    let crowd = crowd(&fixture, "web").await?;
    let installation = fixture.installation()?;
    for kind in ServiceKind::ALL {
        installation.scale(kind, 0).await?;
    }
    let meanwhile = async {
        // The label exists with another value.
        let stranger = json!({keys::CONTROL_LABEL: "false"});
        fixture.create_with("unlabelled", &stranger, &json!({})).await?;
        fixture.feed().until("unlabelled", "it is Ready", pods::is_ready).await?;
        fixture.api().delete("unlabelled", &DeleteParams::default()).await?;
        until_gone(&fixture, "unlabelled").await?;
        match fixture.api().delete("going", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(()),
            other => bail!("deleted without a check: {other:?}"),
        }
    };
    let happened = meanwhile.await;
    let stayed = ["staying", "going"].map(|pod| fixture.feed().get(pod));
    for kind in ServiceKind::ALL {
        installation.scale(kind, 2).await?;
    }
    installation.until_ready().await?;
    happened?;
    let serves = |pod: &Arc<Pod>| pods::is_ready(pod) && is_held(pod);
    ensure!(stayed.iter().all(|pod| pod.as_ref().is_some_and(serves)), "a pod left its service: {stayed:?}");
    ask_to_delete(&fixture, "going").await?;
    until_gone(&fixture, "going").await?;
    lost_nothing(crowd).await
}

/// Evicts the pods as a drain of their node does. Budgets allow one pod of a service at a time, and nothing else
/// holds them.
async fn own_pods_are_evicted(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["staying", "going"]).await?;
    let crowd = crowd(&fixture, "web").await?;
    let installation = fixture.installation()?;
    for kind in ServiceKind::ALL {
        for pod in installation.pods(kind).await? {
            installation.evict(&pod).await?;
        }
    }
    installation.until_ready().await?;
    ask_to_delete(&fixture, "going").await?;
    until_gone(&fixture, "going").await?;
    lost_nothing(crowd).await
}

/// Runs `meanwhile` while a service has no pod. The pod `going` is deleted when the service is back, if not before.
/// The others stay in service all the time.
async fn away(
    fixture: &Fixture,
    kind: ServiceKind,
    meanwhile: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    serve(fixture, "web", of_app("web")).await?;
    in_service(fixture, "web", ["staying", "going"]).await?;
    let crowd = crowd(fixture, "web").await?;
    let installation = fixture.installation()?;
    installation.scale(kind, 0).await?;
    let happened = meanwhile(fixture).await;
    let stayed = fixture.feed().get("staying").is_some_and(|pod| pods::is_ready(&pod) && is_held(&pod));
    back(installation, kind).await?;
    happened?;
    ensure!(stayed, "the untouched pod left its service");
    if fixture.feed().get("going").is_some() {
        ask_to_delete(fixture, "going").await?;
        until_gone(fixture, "going").await?;
    }
    in_service(fixture, "web", ["new"]).await?;
    lost_nothing(crowd).await
}

async fn back(installation: &Installation, kind: ServiceKind) -> Result<()> {
    installation.scale(kind, 2).await?;
    installation.until_ready().await
}
