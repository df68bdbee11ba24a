//! A service of Podward's goes away while clients ask: its processes crash, or it has no pod at all for a while.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use podward_core::keys;
use podward_e2e::{Scene, Test};
use podward_support::{Installation, Kind, demo::Act, pods};
use serde_json::json;

use super::{
    place::{ask_to_delete, crowd, in_service, is_held, labels, lost_nothing, of_app, serve, until_gone},
    promise::under_load,
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

async fn every_process_crashes(scene: Arc<Scene>) -> Result<()> {
    let (workload, load) = under_load(&scene, None).await?;
    let crashes = async {
        let installation = scene.installation()?;
        for kind in Kind::ALL {
            for pod in installation.pods(kind).await? {
                installation.crash(&pod).await?;
                installation.until_restarted(&pod).await?;
            }
        }
        anyhow::Ok(())
    };
    let (rolled, crashed) = tokio::join!(Act::RollingUpdate.perform(&workload, &scene.images().v2), crashes);
    lost_nothing(load).await?;
    crashed?;
    rolled
}

/// New pods are refused, as they would miss the gate; those that are there live as ever.
async fn no_mutating_webhook(scene: Arc<Scene>) -> Result<()> {
    away(&scene, Kind::MutatingWebhook, async |scene| {
        if let Ok(pod) = scene.create_with("late", &labels("web"), &json!({})).await {
            bail!("pod late was made without a gate: {}", pods::describe(&pod));
        }
        ask_to_delete(scene, "going").await?;
        until_gone(scene, "going").await
    })
    .await
}

/// A delete that nobody can judge is refused.
async fn no_validating_webhook(scene: Arc<Scene>) -> Result<()> {
    away(&scene, Kind::ValidatingWebhook, async |scene| {
        match scene.api().delete("going", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(()),
            other => bail!("deleted with nobody to judge: {other:?}"),
        }
    })
    .await
}

/// Nobody can take pods out of service: they stay, and deletes are put off.
async fn no_lifecycle_controller(scene: Arc<Scene>) -> Result<()> {
    away(&scene, Kind::LifecycleController, async |scene| ask_to_delete(scene, "going").await).await
}

/// Pods that are in service stay there, others come and go as ever, and Podward comes back by itself: nothing of it is asked about
/// its own pods.
async fn no_podward_at_all(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    in_service(&scene, "web", ["staying", "going"]).await?;
    let crowd = crowd(&scene, "web").await?;
    let installation = scene.installation()?;
    for kind in Kind::ALL {
        installation.scale(kind, 0).await?;
    }
    let meanwhile = async {
        // The label is there, and says no.
        let stranger = json!({keys::CONTROL_LABEL: "false"});
        scene.create_with("stranger", &stranger, &json!({})).await?;
        scene.feed().until("stranger", "it is Ready", pods::is_ready).await?;
        scene.api().delete("stranger", &DeleteParams::default()).await?;
        until_gone(&scene, "stranger").await?;
        match scene.api().delete("going", &DeleteParams::default()).await {
            Err(kube::Error::Api(_)) => Ok(()),
            other => bail!("deleted with nobody to judge: {other:?}"),
        }
    };
    let happened = meanwhile.await;
    let stayed = ["staying", "going"].map(|pod| scene.feed().get(pod));
    for kind in Kind::ALL {
        installation.scale(kind, 2).await?;
    }
    installation.until_it_works().await?;
    happened?;
    let serves = |pod: &Arc<Pod>| pods::is_ready(pod) && is_held(pod);
    ensure!(stayed.iter().all(|pod| pod.as_ref().is_some_and(serves)), "a pod left its service: {stayed:?}");
    ask_to_delete(&scene, "going").await?;
    until_gone(&scene, "going").await?;
    lost_nothing(crowd).await
}

/// As a drain of its node does it. Budgets let one pod of a service go at a time, and nothing else holds them.
async fn own_pods_are_evicted(scene: Arc<Scene>) -> Result<()> {
    serve(&scene, "web", of_app("web")).await?;
    in_service(&scene, "web", ["staying", "going"]).await?;
    let crowd = crowd(&scene, "web").await?;
    let installation = scene.installation()?;
    for kind in Kind::ALL {
        for pod in installation.pods(kind).await? {
            installation.evict(&pod).await?;
        }
    }
    installation.until_it_works().await?;
    ask_to_delete(&scene, "going").await?;
    until_gone(&scene, "going").await?;
    lost_nothing(crowd).await
}

/// While a service has no pod `meanwhile` happens. The pod `going` goes when it is back, if it hasn't gone yet; the others stay in
/// service all the time.
async fn away(scene: &Scene, kind: Kind, meanwhile: impl AsyncFnOnce(&Scene) -> Result<()>) -> Result<()> {
    serve(scene, "web", of_app("web")).await?;
    in_service(scene, "web", ["staying", "going"]).await?;
    let crowd = crowd(scene, "web").await?;
    let installation = scene.installation()?;
    installation.scale(kind, 0).await?;
    let happened = meanwhile(scene).await;
    let stayed = scene.feed().get("staying").is_some_and(|pod| pods::is_ready(&pod) && is_held(&pod));
    back(installation, kind).await?;
    happened?;
    ensure!(stayed, "the pod that nobody touched left its service");
    if scene.feed().get("going").is_some() {
        ask_to_delete(scene, "going").await?;
        until_gone(scene, "going").await?;
    }
    in_service(scene, "web", ["new"]).await?;
    lost_nothing(crowd).await
}

async fn back(installation: &Installation, kind: Kind) -> Result<()> {
    installation.scale(kind, 2).await?;
    installation.until_it_works().await
}
