//! Pods that are deleted with their owner.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use podward_core::keys;
use podward_e2e::{CONSUMER, Fixture, Test};
use podward_support::{PodFeed, TrafficBehaviour, TrafficLoop, WAIT, pods, within};
use serde_json::json;

use super::{
    objects::{deployment, is_delete_requested, make, serves, until_all_serve, until_serving},
    replay::{now, replay},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("owner_is_deleted", owner_is_deleted),
        Test::node("owner_is_deleted_and_leaves_orphans", owner_is_deleted_and_leaves_orphans),
        Test::node("namespace_is_deleted", namespace_is_deleted),
        Test::node("a_gone_service_holds_no_namespace", a_gone_service_holds_no_namespace),
    ]
}

/// With foreground and background deletion, garbage collection deletes the pods, and each leaves service first.
async fn owner_is_deleted(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let apps = ["foreground", "background"];
    for app in apps {
        make(&fixture, deployment(&fixture, app, 2)).await?;
    }
    until_all_serve(&fixture, &apps, 2).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let since = now(&fixture).await?;
    for app in apps {
        let cascade = format!("--cascade={app}");
        fixture.kubectl(&["delete", "deployment", app, &cascade, "--wait=false"]).await?.succeeded()?;
    }
    let all = |pods: &[&Pod]| pods.len() == 4 && pods.iter().all(|pod| is_delete_requested(pod));
    fixture.feed().until_pods("all pods are to go", all).await?;
    ensure!(
        fixture.feed().all().iter().all(|pod| pod.metadata.deletion_timestamp.is_none()),
        "a pod is being deleted although it is held"
    );
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    fixture.feed().until_pods("all pods are gone", |pods| pods.is_empty()).await?;
    let seen = replay(&fixture, since, |_| true).await?;
    ensure!(seen.left.len() == 4, "{seen:?}");
    Ok(())
}

/// Orphans stay in service.
async fn owner_is_deleted_and_leaves_orphans(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    make(&fixture, deployment(&fixture, "web", 2)).await?;
    until_serving(&fixture, "web", 2).await?;
    fixture.kubectl(&["delete", "deployment", "web", "--cascade=orphan"]).await?.succeeded()?;
    let set = fixture.kubectl(&["get", "replicaset", "--output=name"]).await?.succeeded()?.said;
    fixture.kubectl(&["delete", set.trim(), "--cascade=orphan"]).await?.succeeded()?;
    let orphans = |pods: &[&Pod]| pods.len() == 2 && pods.iter().all(|pod| pod.owner_references().is_empty());
    let pods = fixture.feed().until_pods("the pods have no owner", orphans).await?;
    ensure!(pods.iter().all(|pod| serves(pod)), "an orphan is out of service");
    Ok(())
}

/// The pods are deleted at once. Consumers get a call, and the namespace is gone when they have released the pods.
async fn namespace_is_deleted(fixture: Arc<Fixture>) -> Result<()> {
    let name = format!("{}-doomed", fixture.namespace());
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &namespace).await.context("make a namespace")?;
    let feed = PodFeed::start(fixture.client(), &name, "").await?;
    let traffic = TrafficLoop::start(feed.api(), &format!("{}=true", keys::CONTROL_LABEL), CONSUMER);
    let expected = pods::expecting("Traffic/test/loop", traffic.finalizer());
    let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE});
    let pod = fixture.pod("web", &labels, &json!({keys::AVAILABLE_CONDITIONS: expected}))?;
    feed.api().create(&PostParams::default(), &pod).await.context("make a pod")?;
    feed.until("web", "it is available", pods::is_available).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    namespaces.delete(&name, &DeleteParams::default()).await.context("delete the namespace")?;
    let ended = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() && !pods::is_ready(pod);
    let ended = feed.until("web", "it has ended", ended).await?;
    ensure!(pods::holders(&ended).count() == 1 && !is_delete_requested(&ended), "{}", pods::describe(&ended));
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    feed.until_pods("the pod is gone", |pods| pods.is_empty()).await?;
    until_namespace_is_gone(&namespaces, &name).await
}

/// A traffic controller that finds its Service no more does not remove its finalizer. The namespace is deleted all the
/// same, after the time that Podward gives to that controller.
async fn a_gone_service_holds_no_namespace(fixture: Arc<Fixture>) -> Result<()> {
    let name = format!("{}-doomed", fixture.namespace());
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &namespace).await.context("make a namespace")?;
    let feed = PodFeed::start(fixture.client(), &name, "").await?;
    let finalizer = TrafficLoop::finalizer_of(CONSUMER);
    let expected = pods::expecting(&format!("Service/{name}/gone"), &finalizer);
    let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE});
    let mut pod = fixture.pod("web", &labels, &json!({keys::AVAILABLE_CONDITIONS: expected}))?;
    pod.finalizers_mut().push(finalizer.clone());
    feed.api().create(&PostParams::default(), &pod).await.context("make a pod")?;
    feed.until("web", "it is available", pods::is_available).await?;
    namespaces.delete(&name, &DeleteParams::default()).await.context("delete the namespace")?;
    let is_explained = |pod: &Pod| {
        let text = pods::describe(pod);
        text.contains("does not exist") && text.contains(&finalizer)
    };
    feed.until("web", "the condition names the finalizer", is_explained).await?;
    feed.until_pods("the pod is gone", |pods| pods.is_empty()).await?;
    until_namespace_is_gone(&namespaces, &name).await
}

async fn until_namespace_is_gone(namespaces: &Api<Namespace>, name: &str) -> Result<()> {
    let gone = async {
        while namespaces.get_opt(name).await?.is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        Ok(())
    };
    within(WAIT, || format!("namespace {name} to be gone"), gone).await
}
