//! The controller's writes to pods: patches with a precondition on UID and resource version, never an object read and written
//! back.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use podward_core::keys::{LIFECYCLE_CONDITION, SERVICE_READY_GATE, SERVICE_READY_MESSAGE};
use podward_core::{ConditionStatus, Explanation, LabelChanges};
use serde_json::{Map, Value, json};

use crate::cached_pod::CachedPod;
use crate::error::Error;
use crate::metrics::{Metrics, WriteKind};

/// No single call may hold a pod up for longer; what was lost comes again with the next event or retry.
const DEADLINE: Duration = Duration::from_secs(10);

/// Writes to pods.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
    metrics: Arc<Metrics>,
}

/// A write to a pod's metadata.
#[derive(Debug, Default)]
pub(crate) struct MetadataWrite {
    pub(crate) labels: LabelChanges,
    /// New text of the annotation with this key.
    pub(crate) annotation: Option<(&'static str, String)>,
}

impl MetadataWrite {
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotation.is_none()
    }
}

impl Writer {
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Writer { client, metrics }
    }

    /// Writes labels and annotations of `pod`, if it still is what it was when they were decided on.
    pub(crate) async fn metadata(
        &self,
        pod: &CachedPod,
        write: MetadataWrite,
    ) -> Result<Arc<CachedPod>, Error> {
        let mut metadata = precondition(pod);
        if !write.labels.is_empty() {
            metadata.insert("labels".to_owned(), Value::Object(write.labels.to_merge_patch()));
        }
        if let Some((key, text)) = write.annotation {
            metadata.insert("annotations".to_owned(), json!({ key: text }));
        }
        self.metrics.wrote(WriteKind::Metadata);
        let patch = json!({ "metadata": metadata });
        let key = pod.key();
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), &key.namespace);
        let call = async { api.patch(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await };
        self.finish(pod, "write labels of", call).await
    }

    /// Writes the gate's condition, if `gate` is given, and the condition for people.
    pub(crate) async fn status(
        &self,
        pod: &CachedPod,
        gate: Option<ConditionStatus>,
        explanation: &Explanation,
    ) -> Result<Arc<CachedPod>, Error> {
        let now = Timestamp::now();
        // A strategic merge patch joins conditions by their type, so those of others stay as they are.
        let mut conditions = Vec::with_capacity(2);
        if let Some(gate) = gate {
            conditions.push(json!({
                "type": SERVICE_READY_GATE,
                "status": gate.as_str(),
                "message": SERVICE_READY_MESSAGE,
                "lastTransitionTime": whole_seconds(now),
            }));
        }
        conditions.push(self.lifecycle_condition(pod, explanation, now));
        self.metrics.wrote(WriteKind::Status);
        let patch = json!({ "metadata": precondition(pod), "status": { "conditions": conditions } });
        let key = pod.key();
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), &key.namespace);
        let call =
            async { api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(&patch)).await };
        self.finish(pod, "write the status conditions of", call).await
    }

    fn lifecycle_condition(&self, pod: &CachedPod, explanation: &Explanation, now: Timestamp) -> Value {
        let mut condition = json!({
            "type": LIFECYCLE_CONDITION,
            "status": explanation.status.as_str(),
            "reason": explanation.reason,
            "message": explanation.message,
        });
        // The time says since when the pod waits for this; a new wording of the same wait does not restart it.
        let same = pod.lifecycle_condition().is_some_and(|present| {
            present.status == explanation.status && present.reason == explanation.reason
        });
        if let (false, Some(fields)) = (same, condition.as_object_mut()) {
            fields.insert("lastTransitionTime".to_owned(), Value::from(whole_seconds(now)));
        }
        condition
    }

    async fn finish(
        &self,
        pod: &CachedPod,
        what: &'static str,
        call: impl Future<Output = kube::Result<CachedPod>>,
    ) -> Result<Arc<CachedPod>, Error> {
        match tokio::time::timeout(DEADLINE, call).await {
            Ok(Ok(written)) => Ok(Arc::new(written)),
            Ok(Err(source)) => Err(Error::api(what, pod.key(), source)),
            Err(_) => Err(Error::TimedOut { what, pod: pod.key(), after: DEADLINE }),
        }
    }
}

fn precondition(pod: &CachedPod) -> Map<String, Value> {
    Map::from_iter([
        ("uid".to_owned(), Value::from(pod.uid())),
        ("resourceVersion".to_owned(), Value::from(pod.resource_version())),
    ])
}

/// `metav1.Time` has whole seconds.
fn whole_seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
