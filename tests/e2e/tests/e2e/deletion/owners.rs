//! Pods that go with what owns them.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use podward_core::keys;
use podward_e2e::{CONSUMER, Scene, Test};
use podward_support::{Behaviour, PodFeed, TrafficLoop, WAIT, pods, within};
use serde_json::json;

use super::{
    made::{deployment, is_wished, make, serves, until_all_serve, until_serving},
    replay::{now, replay},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("owner_is_deleted", owner_is_deleted),
        Test::node("owner_is_deleted_and_leaves_orphans", owner_is_deleted_and_leaves_orphans),
        Test::node("namespace_is_deleted", namespace_is_deleted),
    ]
}

/// In the foreground and in the background: garbage collection deletes the pods, and each leaves service first.
async fn owner_is_deleted(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    let apps = ["foreground", "background"];
    for app in apps {
        make(&scene, deployment(&scene, app, 2)).await?;
    }
    until_all_serve(&scene, &apps, 2).await?;
    traffic.behave(Behaviour::HOLDS);
    let since = now(&scene).await?;
    for app in apps {
        let cascade = format!("--cascade={app}");
        scene.kubectl(&["delete", "deployment", app, &cascade, "--wait=false"]).await?.succeeded()?;
    }
    let all = |pods: &[&Pod]| pods.len() == 4 && pods.iter().all(|pod| is_wished(pod));
    scene.feed().until_pods("all pods are to go", all).await?;
    ensure!(
        scene.feed().all().iter().all(|pod| pod.metadata.deletion_timestamp.is_none()),
        "a pod is being deleted although it is held"
    );
    traffic.behave(Behaviour::PROMPT);
    scene.feed().until_pods("all pods are gone", |pods| pods.is_empty()).await?;
    let seen = replay(&scene, since, |_| true).await?;
    ensure!(seen.left.len() == 4, "{seen:?}");
    Ok(())
}

/// Orphans stay in service.
async fn owner_is_deleted_and_leaves_orphans(scene: Arc<Scene>) -> Result<()> {
    let _traffic = scene.traffic();
    make(&scene, deployment(&scene, "web", 2)).await?;
    until_serving(&scene, "web", 2).await?;
    scene.kubectl(&["delete", "deployment", "web", "--cascade=orphan"]).await?.succeeded()?;
    let set = scene.kubectl(&["get", "replicaset", "--output=name"]).await?.succeeded()?.said;
    scene.kubectl(&["delete", set.trim(), "--cascade=orphan"]).await?.succeeded()?;
    let orphans = |pods: &[&Pod]| pods.len() == 2 && pods.iter().all(|pod| pod.owner_references().is_empty());
    let pods = scene.feed().until_pods("the pods are nobody's", orphans).await?;
    ensure!(pods.iter().all(|pod| serves(pod)), "an orphan is out of service");
    Ok(())
}

/// Pods go at once; consumers are told, and the namespace goes when they have let go.
async fn namespace_is_deleted(scene: Arc<Scene>) -> Result<()> {
    let name = format!("{}-doomed", scene.namespace());
    let namespaces: Api<Namespace> = Api::all(scene.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &namespace).await.context("make a namespace")?;
    let feed = PodFeed::start(scene.client(), &name, "").await?;
    let traffic = TrafficLoop::start(feed.api(), &format!("{}=true", keys::CONTROL_LABEL), CONSUMER);
    let expected = pods::expecting("Traffic/test/loop", traffic.finalizer());
    let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE});
    let pod = scene.pod("web", &labels, &json!({keys::AVAILABLE_CONDITIONS: expected}))?;
    feed.api().create(&PostParams::default(), &pod).await.context("make a pod")?;
    feed.until("web", "it is available", pods::is_available).await?;
    traffic.behave(Behaviour::HOLDS);
    namespaces.delete(&name, &DeleteParams::default()).await.context("delete the namespace")?;
    let ended = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() && !pods::is_ready(pod);
    let ended = feed.until("web", "it has ended", ended).await?;
    ensure!(pods::holders(&ended).count() == 1 && !is_wished(&ended), "{}", pods::describe(&ended));
    traffic.behave(Behaviour::PROMPT);
    feed.until_pods("the pod is gone", |pods| pods.is_empty()).await?;
    let gone = async {
        while namespaces.get_opt(&name).await?.is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        Ok(())
    };
    within(WAIT, || format!("namespace {name} to be gone"), gone).await
}
