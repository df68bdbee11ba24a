//! Reads pods, and writes their labels and annotations.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use podward_core::keys::HISTORY;
use podward_kube_util::{CachedPod, PodKey, now};
use podward_runtime::retry::{CONFLICT, Retryable};
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use super::pod_change::PodChange;
use super::pod_target::PodTarget;
use super::status::api_request;

/// Reads and writes pods at the API server, without a cache.
#[derive(Clone)]
pub(super) struct Pods {
    client: Client,
}

impl Pods {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn api(&self, key: &PodKey) -> Api<CachedPod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// Returns the stored pod.
    pub(super) async fn read(&self, target: &PodTarget) -> Result<CachedPod, Status> {
        let api = self.api(&target.key);
        let pod = api_request(|| format!("read pod {}", target.key), api.get_opt(&target.key.name)).await?;
        let pod = pod.ok_or_else(|| target.not_found())?;
        target.check_uid(&pod)?;
        Ok(pod)
    }

    /// Writes the change that `decide` returns for the stored pod in the name of `caller`, and returns the pod after it.
    /// After a conflict, it reads the pod and decides again.
    pub(super) async fn change(
        &self,
        target: &PodTarget,
        caller: &str,
        decide: impl Fn(&CachedPod) -> Result<PodChange, Status>,
    ) -> Result<CachedPod, Status> {
        (|| self.try_change(target, caller, &decide))
            .retry(CONFLICT)
            .when(|status: &Status| status.code() == Code::Aborted)
            .await
    }

    async fn try_change(
        &self,
        target: &PodTarget,
        caller: &str,
        decide: impl Fn(&CachedPod) -> Result<PodChange, Status>,
    ) -> Result<CachedPod, Status> {
        let pod = self.read(target).await?;
        let (what, changes) = match decide(&pod)? {
            PodChange::None => return Ok(pod),
            PodChange::Labels(changes) => {
                // The mutating-webhook does not see this write.
                let history = pod.history_with(&changes, Some(caller), now());
                let history = history.map(|text| (HISTORY, Some(text)));
                let annotations = merge_patch(history.into_iter().collect());
                ("labels", json!({"labels": changes.to_merge_patch(), "annotations": annotations}))
            }
            PodChange::Annotations(changes) => ("annotations", json!({"annotations": merge_patch(changes)})),
        };
        self.write(&pod, what, changes).await
    }

    async fn write(&self, pod: &CachedPod, what: &str, mut metadata: Value) -> Result<CachedPod, Status> {
        let key = pod.key();
        metadata["uid"] = pod.uid().into();
        metadata["resourceVersion"] = pod.resource_version().into();
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let params = PatchParams::default();
        // A patch of pods/status also changes metadata, so Podward does not need the right to patch pods.
        let write = async { self.api(&key).patch_status(&key.name, &params, &patch).await };
        api_request(|| format!("write {what} of pod {key}"), write).await
    }
}

fn merge_patch(annotations: Vec<(&'static str, Option<String>)>) -> Map<String, Value> {
    annotations.into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect()
}
