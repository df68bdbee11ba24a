//! The patch that writes a deletion request.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use podward_core::deletion::request::DeletionRequestChanges;
use podward_core::{UnixNanos, with_next_steps};
use serde_json::{Map, Value, json};

use podward_kube_util::{ApiError, CachedPod, now, pod_call};

/// Writes `changes` to `pod` and returns the stored pod. Fails with a conflict if the pod has changed.
///
/// The patch goes to `pods/status`, which also stores metadata, so that the controller needs no permission to change
/// pods.
pub(crate) async fn write(
    client: &Client,
    pod: &CachedPod,
    changes: &DeletionRequestChanges,
) -> Result<Arc<CachedPod>, ApiError> {
    let key = pod.key();
    let api: Api<CachedPod> = Api::namespaced(client.clone(), &key.namespace);
    let body = body(pod, changes, now());
    let (params, patch) = (PatchParams::default(), Patch::Strategic(&body));
    let written =
        pod_call("record the deletion request of", &key, api.patch_status(&key.name, &params, &patch))
            .await?;
    Ok(Arc::new(written))
}

/// Returns the patch, with the steps of the protocol that follow from `changes`. The mutating webhook does not extend
/// this write, and it must not extend the next write of the kubelet: a kubelet may not change labels.
fn body(pod: &CachedPod, changes: &DeletionRequestChanges, now: UnixNanos) -> Value {
    let labels = with_next_steps(&pod.view(), &changes.labels, now);
    let mut metadata = Map::from_iter([
        ("uid".to_owned(), Value::from(pod.uid())),
        ("resourceVersion".to_owned(), Value::from(pod.resource_version())),
    ]);
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), Value::Object(labels.to_merge_patch()));
    }
    if !changes.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations(&changes.annotations));
    }
    json!({ "metadata": metadata })
}

fn annotations(changes: &BTreeMap<&'static str, Option<String>>) -> Value {
    Value::Object(changes.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect())
}

#[cfg(test)]
mod tests {
    use podward_core::deletion::request::{DeletionKind, DeletionRequest, record};
    use podward_core::keys::{CONTROL_LABEL, Stage};

    use super::*;

    #[test]
    fn a_recorded_request_leaves_nothing_for_the_mutating_webhook() {
        let pod: CachedPod = serde_json::from_value(json!({"metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": {CONTROL_LABEL: "true"},
        }}))
        .unwrap();
        let request = DeletionRequest::new(DeletionKind::Delete, "jane", UnixNanos(7));
        let changes = record(&pod.carried(None), request, false);
        let body = body(&pod, &changes, UnixNanos(7));
        assert_eq!(body["metadata"]["labels"][Stage::PreCheck.key("pod-delete")], "7", "{body:#}");
    }
}
