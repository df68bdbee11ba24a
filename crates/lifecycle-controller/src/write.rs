//! Writes to pods: patches with a precondition on UID and resource version.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use podward_core::keys::{LIFECYCLE_CONDITION, SERVICE_READY_GATE, SERVICE_READY_MESSAGE};
use podward_core::{ConditionStatus, Explanation, FinalizerChanges, LabelChanges, PodPlan, UnixNanos};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::report::{Metrics, WriteKind};
use podward_kube_util::{ApiError, CachedPod, PodKey, pod_call};

/// The number of concurrent writes. Each uses a connection to the API server; more would queue there.
pub(crate) const MAX_CONCURRENT_WRITES: u16 = 32;

/// Writes pods.
pub(crate) struct Writer {
    client: Client,
    metrics: Arc<Metrics>,
    slots: Semaphore,
}

/// The changes of one write to a pod.
#[derive(Debug, Default)]
pub(crate) struct PodWrite<'a> {
    pub(crate) labels: LabelChanges,
    pub(crate) finalizers: FinalizerChanges,
    /// The new values of annotations. `None` removes the annotation.
    pub(crate) annotations: Vec<(Cow<'static, str>, Option<String>)>,
    pub(crate) gate: Option<ConditionStatus>,
    /// The time of the decision. Conditions that change get this time, and deadlines count from it.
    pub(crate) now: Timestamp,
    pub(crate) condition: ConditionChange<'a>,
}

/// The change of the lifecycle condition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum ConditionChange<'a> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It reports this.
    Report(&'a Explanation),
    /// It reports nothing.
    Remove,
}

impl<'a> PodWrite<'a> {
    /// Returns the write of `plan`, with the `details` of rules as further annotations, and with the change of the
    /// lifecycle condition.
    pub(crate) fn new(
        plan: &PodPlan,
        details: impl IntoIterator<Item = (String, Option<String>)>,
        condition: ConditionChange<'a>,
    ) -> Self {
        let planned = plan.annotations.iter().map(|(key, text)| (Cow::from(*key), text.clone()));
        let details = details.into_iter().map(|(key, text)| (Cow::from(key), text));
        PodWrite {
            labels: plan.labels.clone(),
            finalizers: plan.finalizers.clone(),
            annotations: planned.chain(details).collect(),
            gate: plan.gate,
            now: timestamp(plan.now),
            condition,
        }
    }
}

impl Writer {
    /// Returns a writer without writes in progress.
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Writer { client, metrics, slots: Semaphore::new(usize::from(MAX_CONCURRENT_WRITES)) }
    }

    /// Writes to `pod` and returns the stored pod.
    ///
    /// Labels, finalizers, annotations and conditions are written by one request: a write to pods/status stores all
    /// metadata except owner references and the deletion time (`podStatusStrategy` in
    /// kubernetes/pkg/registry/core/pod). So a step costs one write and is atomic.
    ///
    /// # Errors
    /// If the pod was changed after it was read, if it is gone, or if the request fails.
    pub(crate) async fn write(
        &self,
        pod: &CachedPod,
        write: PodWrite<'_>,
    ) -> Result<Arc<CachedPod>, ApiError> {
        self.metrics.queue_depth.inc();
        let _slot = self.slots.acquire().await;
        self.metrics.queue_depth.dec();
        self.metrics.wrote(kind(&write));
        let patch = body(pod, write);
        let key = pod.key();
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), &key.namespace);
        // A strategic merge patch merges conditions by type and keeps the conditions of other writers.
        let what = "write labels and conditions of";
        let params = PatchParams::default();
        let patch = Patch::Strategic(&patch);
        pod_call(what, &key, api.patch_status(&key.name, &params, &patch)).await.map(Arc::new)
    }

    /// Returns true if at most half of the concurrent writes are in use, so that an informational write delays no
    /// other.
    pub(crate) fn has_spare_capacity(&self) -> bool {
        self.slots.available_permits() > usize::from(MAX_CONCURRENT_WRITES / 2)
    }

    /// Reads the stored pod. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// If the request fails.
    pub(crate) async fn get(&self, key: &PodKey) -> Result<Option<CachedPod>, ApiError> {
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), &key.namespace);
        pod_call("look up", key, api.get_opt(&key.name)).await
    }
}

/// Returns the metric label for `write`.
fn kind(write: &PodWrite<'_>) -> WriteKind {
    if write.gate.is_some() {
        WriteKind::Gate
    } else if write.labels.is_empty() && write.annotations.is_empty() && write.finalizers.is_empty() {
        WriteKind::Condition
    } else {
        WriteKind::Metadata
    }
}

fn body(pod: &CachedPod, write: PodWrite<'_>) -> Value {
    let now = write.now;
    let mut metadata = Map::from_iter([
        ("uid".to_owned(), Value::from(pod.uid())),
        ("resourceVersion".to_owned(), Value::from(pod.resource_version())),
    ]);
    if !write.labels.is_empty() {
        metadata.insert("labels".to_owned(), Value::Object(write.labels.to_merge_patch()));
    }
    if !write.annotations.is_empty() {
        let texts = write.annotations.into_iter().map(|(key, text)| (key.into_owned(), Value::from(text)));
        metadata.insert("annotations".to_owned(), texts.collect());
    }
    // A strategic merge patch adds to the list of finalizers (`patchStrategy:"merge"` of ObjectMeta) and removes by
    // directive, so that the finalizers of other writers are kept.
    if !write.finalizers.add.is_empty() {
        metadata.insert("finalizers".to_owned(), write.finalizers.add.into());
    }
    if !write.finalizers.remove.is_empty() {
        metadata.insert("$deleteFromPrimitiveList/finalizers".to_owned(), write.finalizers.remove.into());
    }
    let gate = write.gate.map(|gate| {
        json!({
            "type": SERVICE_READY_GATE,
            "status": gate.as_str(),
            "message": SERVICE_READY_MESSAGE,
            "lastTransitionTime": whole_seconds(now),
        })
    });
    let condition = match write.condition {
        ConditionChange::Keep => None,
        ConditionChange::Report(explanation) => Some(lifecycle_condition(pod, explanation, now)),
        ConditionChange::Remove => Some(json!({"$patch": "delete", "type": LIFECYCLE_CONDITION})),
    };
    let conditions: Vec<Value> = gate.into_iter().chain(condition).collect();
    let mut patch = json!({ "metadata": metadata });
    if !conditions.is_empty() {
        patch["status"] = json!({ "conditions": conditions });
    }
    patch
}

fn lifecycle_condition(pod: &CachedPod, explanation: &Explanation, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": LIFECYCLE_CONDITION,
        "status": explanation.status.as_str(),
        "reason": explanation.reason,
        "message": explanation.message,
    });
    // The time is the start of the wait. A new message for the same wait does not change it.
    let same = pod
        .lifecycle_condition()
        .is_some_and(|present| present.status == explanation.status && present.reason == explanation.reason);
    if !same {
        condition["lastTransitionTime"] = Value::from(whole_seconds(now));
    }
    condition
}

/// Converts `time`. A time out of range becomes the Unix epoch.
fn timestamp(time: UnixNanos) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default()
}

/// Formats `now` as `metav1.Time`, which has a resolution of one second.
fn whole_seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn pod(conditions: Value) -> CachedPod {
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    }

    fn explanation() -> Explanation {
        Explanation { status: ConditionStatus::False, reason: "Preparing", message: "waits".to_owned() }
    }

    #[test]
    fn one_write_carries_everything_and_its_precondition() {
        let labels = LabelChanges {
            set: BTreeMap::from([("new".to_owned(), "1".to_owned())]),
            remove: BTreeSet::from(["old".to_owned()]),
        };
        let explanation = explanation();
        let write = PodWrite {
            labels,
            finalizers: FinalizerChanges { add: vec!["a/in".to_owned()], remove: vec!["a/out".to_owned()] },
            annotations: vec![("note".into(), Some("text".to_owned())), ("gone".into(), None)],
            gate: Some(ConditionStatus::False),
            condition: ConditionChange::Report(&explanation),
            now: "2026-01-01T10:00:00.5Z".parse().unwrap(),
        };
        assert_eq!(kind(&write), WriteKind::Gate);
        assert_eq!(
            body(&pod(json!([])), write),
            json!({
                "metadata": {
                    "uid": "u", "resourceVersion": "7",
                    "labels": {"new": "1", "old": null}, "annotations": {"note": "text", "gone": null},
                    "finalizers": ["a/in"], "$deleteFromPrimitiveList/finalizers": ["a/out"],
                },
                "status": {"conditions": [
                    {
                        "type": SERVICE_READY_GATE, "status": "False", "message": SERVICE_READY_MESSAGE,
                        "lastTransitionTime": "2026-01-01T10:00:00Z",
                    },
                    {
                        "type": LIFECYCLE_CONDITION, "status": "False", "reason": "Preparing", "message": "waits",
                        "lastTransitionTime": "2026-01-01T10:00:00Z",
                    },
                ]},
            })
        );
    }

    #[test]
    fn a_new_message_does_not_restart_the_wait() {
        let conditions =
            json!([{"type": LIFECYCLE_CONDITION, "status": "False", "reason": "Preparing", "message": "x"}]);
        let explanation = explanation();
        let write = PodWrite { condition: ConditionChange::Report(&explanation), ..PodWrite::default() };
        assert_eq!(kind(&write), WriteKind::Condition);
        let patch = body(&pod(conditions), write);
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["message"], "waits");
        assert!(condition.get("lastTransitionTime").is_none(), "{condition}");
        assert!(patch["metadata"].get("labels").is_none());
    }
}
