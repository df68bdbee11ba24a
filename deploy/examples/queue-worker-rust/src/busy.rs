//! **The interface between the worker and Podward**: two annotations of the worker's pod, and the labels of
//! operations on it.

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
/// The prefix of the label that each operation sets on a pod, from its announcement until the operator has finished.
const OPERATING: &str = "operating.podopslifecycle.kusionstack.io/";

/// The timeout of a call to the API server.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The pod of the worker.
pub(crate) struct OwnPod {
    api: Api<Pod>,
    name: String,
}

impl OwnPod {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned() }
    }

    /// Returns true if an operation on the pod (such as an update, a delete or an eviction) waits or runs. The worker
    /// must not take a new task then.
    pub(crate) async fn has_operations(&self) -> Result<bool> {
        let pod = with_timeout(self.api.get(&self.name)).await.context("read this pod")?;
        Ok(has_operations(&pod))
    }

    /// Marks the pod as busy for `length`. Returns true if the worker may begin to work, and false if an operation
    /// has been announced. The API server returns the pod at the moment of the write, so no operation can be missed.
    pub(crate) async fn mark_busy(&self, length: Duration, reason: &str) -> Result<bool> {
        let until = Timestamp::now().checked_add(length).context("compute the end of the work")?;
        let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let pod =
            self.annotate(json!({ UNTIL: until, REASON: reason })).await.context("mark this pod as busy")?;
        Ok(!has_operations(&pod))
    }

    /// Removes the mark.
    pub(crate) async fn mark_idle(&self) -> Result<()> {
        let nothing = json!({ UNTIL: null, REASON: null });
        self.annotate(nothing).await.context("mark this pod as idle").map(drop)
    }

    async fn annotate(&self, annotations: Value) -> Result<Pod> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        with_timeout(self.api.patch(&self.name, &PatchParams::default(), &patch)).await
    }
}

fn has_operations(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || pod.labels().keys().any(|label| label.starts_with(OPERATING))
}

async fn with_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    Ok(tokio::time::timeout(TIMEOUT, call).await.context("the API server does not answer")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_operations_from_the_announcement_on() {
        let pod = |metadata: Value| serde_json::from_value::<Pod>(json!({ "metadata": metadata })).unwrap();
        assert!(!has_operations(&pod(json!({"labels": {"app": "worker"}}))));
        assert!(has_operations(&pod(
            json!({"labels": {"operating.podopslifecycle.kusionstack.io/pod-delete": "1"}})
        )));
        assert!(has_operations(&pod(json!({"deletionTimestamp": "2026-01-01T10:00:00Z"}))));
    }
}
