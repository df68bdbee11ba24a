//! **What the worker and Podward say to each other**: two annotations of the worker's own pod, and the labels of operations on it.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

const UNTIL: &str = "podward.io/busy-until";
const REASON: &str = "podward.io/busy-reason";
/// Each operation on a pod has a label that begins so, from when it is announced until its operator is done.
const OPERATING: &str = "operating.podopslifecycle.kusionstack.io/";

/// No call may take longer: a worker that hangs is worse than one that tries again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The worker's own pod.
pub(crate) struct OwnPod {
    api: Api<Pod>,
    name: String,
}

impl OwnPod {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned() }
    }

    /// Whether somebody waits to operate the pod (update it, delete it, evict it), or does already. Then it takes no new task.
    pub(crate) async fn is_wanted(&self) -> Result<bool> {
        let pod = timely(self.api.get(&self.name)).await.context("look at this pod")?;
        Ok(is_wanted(&pod))
    }

    /// Says that the pod is busy for this long. Gives whether it may begin to work: not if somebody was faster. The answer is of the very
    /// moment of the write, so nobody can be faster without being seen here.
    pub(crate) async fn say_busy(&self, length: Duration, reason: &str) -> Result<bool> {
        let until = Timestamp::now().checked_add(length).context("say until when")?;
        let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let pod = self
            .annotate(json!({ UNTIL: until, REASON: reason }))
            .await
            .context("say that this pod is busy")?;
        Ok(!is_wanted(&pod))
    }

    /// Says that the pod is idle.
    pub(crate) async fn say_idle(&self) -> Result<()> {
        let nothing = json!({ UNTIL: null, REASON: null });
        self.annotate(nothing).await.context("say that this pod is idle").map(drop)
    }

    async fn annotate(&self, annotations: Value) -> Result<Pod> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        timely(self.api.patch(&self.name, &PatchParams::default(), &patch)).await
    }
}

fn is_wanted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || pod.labels().keys().any(|label| label.starts_with(OPERATING))
}

async fn timely<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    Ok(tokio::time::timeout(TIMEOUT, call).await.context("the API server does not answer")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_wanted_from_the_announcement_on() {
        let pod = |metadata: Value| serde_json::from_value::<Pod>(json!({ "metadata": metadata })).unwrap();
        assert!(!is_wanted(&pod(json!({"labels": {"app": "worker"}}))));
        assert!(is_wanted(&pod(
            json!({"labels": {"operating.podopslifecycle.kusionstack.io/pod-delete": "1"}})
        )));
        assert!(is_wanted(&pod(json!({"deletionTimestamp": "2026-01-01T10:00:00Z"}))));
    }
}
