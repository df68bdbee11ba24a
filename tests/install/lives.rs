//! The life of pods with and without Podward.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod, Service},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    runtime::wait::conditions,
};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_support::{await_condition, within};
use serde_json::json;

use super::site::Site;

const APP: &str = "web";
const LONG: Duration = Duration::from_secs(90);

/// Deletes one of the pods of a Deployment behind a Service.
pub(crate) async fn a_deleted_pod_is_drained_first(site: &Site) -> Result<()> {
    let namespace = make(site, None).await?;
    let pods: Api<Pod> = Api::namespaced(site.client(), &namespace);
    let list = pods.list(&ListParams::default()).await.context("list the pods")?;
    let pod = list.items.first().context("there is no pod")?;
    let (name, uid) = (pod.name_any(), pod.uid().context("a pod without UID")?);
    // The traffic-controller adds a pod when it is in service.
    let is_held = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| pod.finalizers().iter().any(|finalizer| finalizer.starts_with("prot.")))
    };
    within(LONG, || format!("a consumer of pod {name}"), async {
        await_condition(pods.clone(), &name, is_held).await.context("watch the pod")
    })
    .await?;
    match pods.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 429 => {}
        other => anyhow::bail!("the delete of a pod that serves was not held: {other:?}"),
    }
    within(LONG, || format!("pod {name} to be deleted by itself"), async {
        await_condition(pods.clone(), &name, conditions::is_deleted(&uid)).await.context("watch the pod")
    })
    .await?;
    remove(site, &namespace).await
}

/// Without Podward: deletes are not held, and nothing of Podward delays the end of a pod.
pub(crate) async fn a_pod_is_created_and_deleted_as_without_podward(site: &Site) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(site.client(), "default");
    let name = "as-ever";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {CONTROL_LABEL: CONTROL_VALUE}},
        "spec": {"containers": [{"name": "server", "image": site.image}], "terminationGracePeriodSeconds": 1},
    });
    let made =
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await.context("make a pod")?;
    let uid = made.uid().context("a pod without UID")?;
    within(LONG, || format!("pod {name} to be Ready"), async {
        await_condition(pods.clone(), name, conditions::is_pod_running()).await.context("watch the pod")
    })
    .await?;
    pods.delete(name, &DeleteParams::default()).await.context("delete the pod")?;
    within(LONG, || format!("pod {name} to be gone"), async {
        await_condition(pods.clone(), name, conditions::is_deleted(&uid)).await.context("watch the pod")
    })
    .await?;
    let namespace = make(site, None).await?;
    let pods: Api<Pod> = Api::namespaced(site.client(), &namespace);
    let deployments: Api<Deployment> = Api::namespaced(site.client(), &namespace);
    deployments.delete(APP, &DeleteParams::default()).await.context("delete the Deployment")?;
    within(LONG, || format!("the pods of namespace {namespace} to be gone"), async {
        while let Some(pod) = pods.list(&ListParams::default()).await.context("list pods")?.items.first() {
            let (name, uid) = (pod.name_any(), pod.uid().context("a pod without UID")?);
            await_condition(pods.clone(), &name, conditions::is_deleted(&uid))
                .await
                .context("watch the pod")?;
        }
        Ok(())
    })
    .await?;
    remove(site, &namespace).await
}

/// Creates a Deployment of two pods behind a Service, both called [`APP`], in the namespace `name` or a new one.
/// Returns the namespace.
pub(crate) async fn make(site: &Site, name: Option<&str>) -> Result<String> {
    let spaces: Api<Namespace> = Api::all(site.client());
    let space = json!({"metadata": {"name": name, "generateName": "life-"}});
    let space = spaces
        .create(&PostParams::default(), &serde_json::from_value(space)?)
        .await
        .context("make a namespace")?;
    let namespace = space.name_any();
    let services: Api<Service> = Api::namespaced(site.client(), &namespace);
    let service = json!({
        "metadata": {"name": APP}, "spec": {"selector": {"app": APP}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    services
        .create(&PostParams::default(), &serde_json::from_value(service)?)
        .await
        .context("make a Service")?;
    let deployments: Api<Deployment> = Api::namespaced(site.client(), &namespace);
    let probe = json!({"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1});
    let deployment = json!({
        "metadata": {"name": APP},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": APP}},
            "template": {
                "metadata": {"labels": {"app": APP, CONTROL_LABEL: CONTROL_VALUE}},
                "spec": {"containers": [{"name": "server", "image": site.image, "readinessProbe": probe}]},
            },
        },
    });
    deployments
        .create(&PostParams::default(), &serde_json::from_value(deployment)?)
        .await
        .context("make a Deployment")?;
    let is_available = |deployment: Option<&Deployment>| {
        deployment.and_then(|found| found.status.as_ref()?.available_replicas) == Some(2)
    };
    within(LONG, || format!("the pods in {namespace} to be available"), async {
        await_condition(deployments, APP, is_available).await.context("watch the Deployment")
    })
    .await?;
    Ok(namespace)
}

pub(crate) async fn remove(site: &Site, namespace: &str) -> Result<()> {
    let spaces: Api<Namespace> = Api::all(site.client());
    spaces.delete(namespace, &DeleteParams::default()).await.context("delete the namespace").map(drop)
}
