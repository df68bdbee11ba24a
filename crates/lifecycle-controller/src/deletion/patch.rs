//! The patch that carries the marks of a wish.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use podward_core::wish::Changes;
use serde_json::{Map, Value, json};

use crate::cached_pod::CachedPod;
use crate::error::Error;

pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// Writes `changes` to `pod` if it still is what it was when they were decided on; gives the pod as it is stored then.
///
/// To pods/status, which keeps the metadata that comes with it: so the controller needs no right to change pods.
pub(super) async fn write(
    client: &Client,
    pod: &CachedPod,
    changes: &Changes,
) -> Result<Arc<CachedPod>, Error> {
    let key = pod.key();
    let api: Api<CachedPod> = Api::namespaced(client.clone(), &key.namespace);
    let body = body(pod, changes);
    let (params, patch) = (PatchParams::default(), Patch::Strategic(&body));
    let written =
        timely("record the wish to delete", pod, api.patch_status(&key.name, &params, &patch)).await?;
    Ok(Arc::new(written))
}

fn body(pod: &CachedPod, changes: &Changes) -> Value {
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

/// `call` within the deadline. `what` is what it does, for the error.
pub(super) async fn timely<T>(
    what: &'static str,
    pod: &CachedPod,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::api(what, pod.key(), source)),
        Err(_) => Err(Error::TimedOut { what, pod: pod.key(), after: DEADLINE }),
    }
}
