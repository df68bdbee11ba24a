//! The patch that writes a deletion request.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use podward_core::deletion::request::DeletionRequestChanges;
use serde_json::{Map, Value, json};

use podward_kube_util::{ApiError, CachedPod, pod_call};

/// Writes `changes` to `pod` and returns the stored pod. Fails with a conflict if the pod has changed.
///
/// The patch goes to `pods/status`, which also stores metadata, so that the controller needs no permission to change
/// pods.
pub(super) async fn write(
    client: &Client,
    pod: &CachedPod,
    changes: &DeletionRequestChanges,
) -> Result<Arc<CachedPod>, ApiError> {
    let key = pod.key();
    let api: Api<CachedPod> = Api::namespaced(client.clone(), &key.namespace);
    let body = body(pod, changes);
    let (params, patch) = (PatchParams::default(), Patch::Strategic(&body));
    let written =
        pod_call("record the deletion request of", &key, api.patch_status(&key.name, &params, &patch))
            .await?;
    Ok(Arc::new(written))
}

fn body(pod: &CachedPod, changes: &DeletionRequestChanges) -> Value {
    let mut metadata = Map::from_iter([
        ("uid".to_owned(), Value::from(pod.uid())),
        ("resourceVersion".to_owned(), Value::from(pod.resource_version())),
    ]);
    if !changes.labels.is_empty() {
        metadata.insert("labels".to_owned(), Value::Object(changes.labels.to_merge_patch()));
    }
    if !changes.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations(&changes.annotations));
    }
    json!({ "metadata": metadata })
}

fn annotations(changes: &BTreeMap<&'static str, Option<String>>) -> Value {
    Value::Object(changes.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect())
}
