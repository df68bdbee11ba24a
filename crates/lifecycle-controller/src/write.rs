//! The controller's writes to pods: patches with a precondition on UID and resource version, never an object read and written
//! back.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use podward_core::keys::{LIFECYCLE_CONDITION, SERVICE_READY_GATE, SERVICE_READY_MESSAGE};
use podward_core::{ConditionStatus, Explanation, FinalizerChanges, LabelChanges};
use serde_json::{Map, Value, json};

use crate::cached_pod::{CachedPod, PodKey};
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

/// Everything that one write changes on a pod.
#[derive(Debug, Default)]
pub(crate) struct PodWrite<'a> {
    pub(crate) labels: LabelChanges,
    pub(crate) finalizers: FinalizerChanges,
    /// New texts of the annotations with these keys; those without one go.
    pub(crate) annotations: Vec<(Cow<'static, str>, Option<String>)>,
    pub(crate) gate: Option<ConditionStatus>,
    /// When it was decided on: the time of conditions that change. Deadlines are counted from it.
    pub(crate) now: Timestamp,
    /// The condition for people, if it is to be written.
    pub(crate) explanation: Option<&'a Explanation>,
}

impl Writer {
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Writer { client, metrics }
    }

    /// Writes to `pod`, if it still is what it was when the write was decided on. Gives the pod as it is stored now.
    ///
    /// One request for labels, finalizers, annotations and conditions: the API server keeps the metadata that comes with a write to
    /// pods/status (all of it but owner references and the deletion time; `podStatusStrategy` in kubernetes/pkg/registry/core/pod).
    /// So a step costs one write, and nobody sees half of it. A terminating pod is gone when its last finalizer is.
    pub(crate) async fn write(&self, pod: &CachedPod, write: PodWrite<'_>) -> Result<Arc<CachedPod>, Error> {
        self.metrics.wrote(kind(&write));
        let patch = body(pod, write);
        let key = pod.key();
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), &key.namespace);
        // A strategic merge patch joins conditions by their type, so those of others stay as they are.
        let what = "write labels and conditions of";
        let params = PatchParams::default();
        let patch = Patch::Strategic(&patch);
        match tokio::time::timeout(DEADLINE, api.patch_status(&key.name, &params, &patch)).await {
            Ok(Ok(written)) => Ok(Arc::new(written)),
            Ok(Err(source)) => Err(Error::api(what, key, source)),
            Err(_) => Err(Error::TimedOut { what, pod: key, after: DEADLINE }),
        }
    }
}

impl Writer {
    /// The pod as it is stored now, if there is one.
    pub(crate) async fn get(&self, key: &PodKey) -> Result<Option<CachedPod>, Error> {
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), &key.namespace);
        let what = "look up";
        match tokio::time::timeout(DEADLINE, api.get_opt(&key.name)).await {
            Ok(Ok(pod)) => Ok(pod),
            Ok(Err(source)) => Err(Error::api(what, key.clone(), source)),
            Err(_) => Err(Error::TimedOut { what, pod: key.clone(), after: DEADLINE }),
        }
    }
}

/// What a write is for, by the weightiest thing in it.
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
    // Finalizers are a list that a strategic merge patch adds to (`patchStrategy:"merge"` of ObjectMeta) and takes from by directive,
    // so those that others set meanwhile stay.
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
    let told = write.explanation.map(|explanation| lifecycle_condition(pod, explanation, now));
    let conditions: Vec<Value> = gate.into_iter().chain(told).collect();
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
    // The time says since when the pod waits for this; a new wording of the same wait does not restart it.
    let same = pod
        .lifecycle_condition()
        .is_some_and(|present| present.status == explanation.status && present.reason == explanation.reason);
    if !same {
        condition["lastTransitionTime"] = Value::from(whole_seconds(now));
    }
    condition
}

/// `metav1.Time` has whole seconds.
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
            explanation: Some(&explanation),
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
    fn a_new_wording_does_not_restart_the_wait() {
        let told =
            json!([{"type": LIFECYCLE_CONDITION, "status": "False", "reason": "Preparing", "message": "x"}]);
        let explanation = explanation();
        let write = PodWrite { explanation: Some(&explanation), ..PodWrite::default() };
        assert_eq!(kind(&write), WriteKind::Condition);
        let patch = body(&pod(told), write);
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["message"], "waits");
        assert!(condition.get("lastTransitionTime").is_none(), "{condition}");
        assert!(patch["metadata"].get("labels").is_none());
    }
}
