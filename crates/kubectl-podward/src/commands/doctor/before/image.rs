//! Whether nodes can pull an image: a pod that runs it.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use podward_diagnosis::pod::diagnose;
use serde_json::json;

use super::super::finding::Finding;
use crate::gather::Gatherer;

/// The pause between two looks at the pod. A watch would not show its events.
const PAUSE: Duration = Duration::from_millis(500);
/// A pull that fails is looked at as soon as its error is known.
const WAITING: [&str; 4] = ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"];

pub(super) async fn check(client: &Client, image: &str, namespace: &str) -> Result<Vec<Finding>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = serde_json::from_value(json!({
        "metadata": {"generateName": "podward-image-", "labels": {"app.kubernetes.io/name": "podward-image-check"}},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false, "activeDeadlineSeconds": 300,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65_532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "image", "image": image, "args": ["--version"],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    }))
    .context("describe a pod")?;
    let made = pods.create(&PostParams::default(), &pod).await;
    let made =
        made.with_context(|| format!("create a pod with the image {image} in namespace {namespace}"))?;
    let found = watch(client, &pods, &made.name_any(), image).await;
    let deleted = pods.delete(&made.name_any(), &DeleteParams::default().grace_period(0)).await;
    let finding = found?;
    deleted.with_context(|| format!("delete pod {namespace}/{}", made.name_any()))?;
    Ok(vec![finding])
}

async fn watch(client: &Client, pods: &Api<Pod>, name: &str, image: &str) -> Result<Finding> {
    loop {
        let pod = pods.get(name).await.context("read the pod")?;
        let state =
            pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first()?.state.clone());
        let state = state.unwrap_or_default();
        if state.running.is_some() || state.terminated.is_some() {
            return Ok(Finding::ok(format!("the image {image} was pulled and started")));
        }
        let reason = state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default();
        if WAITING.contains(&reason.as_str()) {
            let snapshot = Gatherer::new(client).snapshot(pod).await;
            let cause = diagnose(&snapshot, None).into_iter().next().context("a pod without a cause")?;
            return Ok(Finding::failed(cause.what, cause.next));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
