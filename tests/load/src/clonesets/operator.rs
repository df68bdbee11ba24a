//! An operator that answers the hooks of all pods of a namespace at once.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use podward_support::markers::answer_of;
use podward_support::{PodFeedEvent, WatchTask, observe};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// An operator. It ends when it is dropped.
pub(super) struct Operator {
    _watching: WatchTask,
    task: JoinHandle<()>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn start(client: Client, namespace: &str) -> Result<Operator> {
    let (sender, mut answers) = mpsc::unbounded_channel();
    let watching = observe(client.clone(), namespace, "", move |event| {
        if let PodFeedEvent::Version(pod) = event
            && let Some(labels) = answer_of(&pod)
        {
            let _ = sender.send((pod.name_any(), labels));
        }
    });
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let task = tokio::spawn(async move {
        while let Some((name, labels)) = answers.recv().await {
            let pods = pods.clone();
            tokio::spawn(async move {
                let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
                if let Err(error) = pods.patch(&name, &PatchParams::default(), &patch).await {
                    eprintln!("the operator could not label {name}: {error}");
                }
            });
        }
    });
    Ok(Operator { _watching: watching.await?, task })
}
