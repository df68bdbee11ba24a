//! A pod as the API server of the simulation stores it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use podward_core::deletion::request::{DeletionMarks, DeletionRequest};
use podward_core::keys::{
    self, BREAK_GLASS, DELETE_OPERATION, DELETE_TIMESTAMP, DELETION_REQUEST, POD_DELETION_COST,
    SERVICE_READY_GATE, Stage,
};
use podward_core::{ConditionStatus, Operations, Pod, PodView, UnixNanos};
use serde_json::{Value, json};

use crate::model::Stored;

/// One version of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) name: &'static str,
    pub(crate) uid: String,
    pub(crate) pod: Stored,
    /// The annotations that [`Stored`] does not have.
    pub(crate) notes: BTreeMap<String, String>,
    /// The kubelet has deleted the pod after its containers ended: it goes with its last finalizer.
    pub(crate) is_stopped: bool,
}

impl Object {
    pub(crate) fn view(&self) -> PodView<'_> {
        self.pod.view()
    }

    /// Returns the deletion request in the annotation.
    pub(crate) fn request(&self) -> Option<DeletionRequest> {
        self.notes.get(DELETION_REQUEST).and_then(|text| DeletionRequest::parse(text))
    }

    pub(crate) fn marks<'a>(&'a self, request: Option<&'a DeletionRequest>) -> DeletionMarks<'a> {
        DeletionMarks {
            labels: &self.pod.labels,
            request,
            delete_timestamp: self.notes.get(DELETE_TIMESTAMP).map(String::as_str),
            deletion_cost: self.notes.get(POD_DELETION_COST).map(String::as_str),
        }
    }

    /// Returns whether an operation that ends with the deletion of the pod has its permission, as the reference
    /// describes it: that of Podward, or one of a workload controller with the label for it.
    pub(crate) fn has_permission_to_delete(&self) -> bool {
        let operations = Operations::parse(&self.pod.labels);
        match operations.get(DELETE_OPERATION).filter(|operation| operation.is_live()) {
            Some(ours) => ours.has(Stage::Operate) && ours.has(Stage::Operating),
            None => {
                self.pod.labels.contains_key(keys::PREPARING_TO_DELETE)
                    && operations.iter().any(|(_, operation)| operation.has(Stage::Operate))
            }
        }
    }

    pub(crate) fn annotate(&mut self, key: &str, text: Option<String>) {
        if !self.pod.annotate(key, text.clone()) {
            match text {
                Some(text) => self.notes.insert(key.to_owned(), text),
                None => self.notes.remove(key),
            };
        }
    }

    /// Returns the pod as a review contains it.
    pub(crate) fn to_pod(&self) -> Pod {
        thread_local! { static TEMPLATE: RefCell<Option<Pod>> = const { RefCell::new(None) } }
        let mut pod = TEMPLATE.with_borrow_mut(|template| template.get_or_insert_with(template_pod).clone());
        let metadata = &mut pod.metadata;
        metadata.name = self.name.to_owned();
        metadata.uid.clone_from(&self.uid);
        metadata.resource_version = self.pod.version.to_string();
        metadata.labels = Some(self.pod.labels.clone());
        metadata.finalizers = Some(self.pod.finalizers.clone());
        metadata.deletion_timestamp = self.pod.terminating.then(|| "2023-11-14T22:13:20Z".to_owned());
        let note = |key: &str| self.notes.get(key).cloned();
        let annotations = &mut metadata.annotations;
        annotations.present = true;
        annotations.available_conditions.clone_from(&self.pod.expected);
        annotations.evidence.clone_from(&self.pod.evidence);
        annotations.hook_requests.clone_from(&self.pod.asked);
        annotations.deletion_request = note(DELETION_REQUEST);
        annotations.to_delete_by = note(keys::TO_DELETE_BY);
        annotations.delete_timestamp = note(DELETE_TIMESTAMP);
        annotations.deletion_cost = note(POD_DELETION_COST);
        annotations.break_glass = note(BREAK_GLASS);
        if !self.pod.has_gate {
            pod.spec.readiness_gates = None;
        }
        let phase = if self.pod.finished { "Succeeded" } else { "Running" };
        pod.status.phase = Some(phase.to_owned());
        let ready = if self.pod.ready { ConditionStatus::True } else { ConditionStatus::False };
        let values = [(self.pod.gate, self.pod.times.gate), (Some(ready), self.pod.times.ready)];
        let conditions = pod.status.conditions.iter_mut().flatten().zip(values);
        conditions.for_each(|(condition, (status, since))| {
            condition.status = status.map_or("", ConditionStatus::as_str).to_owned();
            condition.last_transition_time = since.map(UnixNanos::to_rfc3339);
        });
        pod.status.conditions.as_mut().unwrap().retain(|condition| !condition.status.is_empty());
        pod
    }

    /// Applies the patch of a mutating webhook.
    pub(crate) fn apply(&mut self, patch: &Patch) {
        for operation in &patch.0 {
            let (path, value) = match operation {
                PatchOperation::Add(AddOperation { path, value }) => (path, Some(value)),
                PatchOperation::Remove(RemoveOperation { path }) => (path, None),
                other => panic!("a webhook does not make this: {other:?}"),
            };
            let tokens: Vec<String> = path.tokens().map(|token| token.decoded().into_owned()).collect();
            let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
            match (tokens.as_slice(), value) {
                (["metadata", "labels", key], Some(Value::String(text))) => {
                    self.pod.labels.insert((*key).to_owned(), text.clone());
                }
                (["metadata", "labels", key], None) => drop(self.pod.labels.remove(*key)),
                (["metadata", "annotations", key], value) => {
                    self.annotate(key, value.and_then(Value::as_str).map(ToOwned::to_owned));
                }
                (["metadata", "finalizers", place], None) => {
                    self.pod.finalizers.remove(place.parse::<usize>().unwrap());
                }
                (["spec", "readinessGates", ..], Some(_)) => self.pod.has_gate = true,
                other => panic!("a webhook does not make this: {other:?}"),
            }
        }
    }

    /// Returns the version in short, for the report of a failure.
    pub(crate) fn words(&self) -> String {
        let short = |key: &String, value: &String| {
            let key = key.replace(".podopslifecycle.kusionstack.io", "");
            match key.as_str() {
                keys::CONTROL_LABEL => None,
                _ if value.len() > 15 => Some(key),
                _ => Some(format!("{key}={value}")),
            }
        };
        let labels: Vec<String> =
            self.pod.labels.iter().filter_map(|(key, value)| short(key, value)).collect();
        let Stored { version, finalizers, gate, ready, containers_ready, terminating, finished, .. } =
            &self.pod;
        let flags = [
            (*ready, "ready"),
            (*containers_ready, "containers"),
            (*terminating, "terminating"),
            (self.is_stopped, "stopped"),
            (*finished, "finished"),
        ];
        let flags: Vec<&str> = flags.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        let gate = gate.map_or("-", ConditionStatus::as_str);
        let notes = [&self.pod.expected, &self.pod.evidence, &self.pod.asked, &self.pod.refused];
        let notes: Vec<&String> = notes.into_iter().flatten().chain(self.notes.values()).collect();
        format!(
            "v{version} {} gate={gate} {} {{{}}} finalizers={finalizers:?} {notes:?}",
            self.uid,
            flags.join(","),
            labels.join(" ")
        )
    }
}

fn template_pod() -> Pod {
    let condition = |name: &str| json!({"type": name, "status": "True"});
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop"},
        "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        "status": {"conditions": [condition(SERVICE_READY_GATE), condition("Ready")]},
    }))
    .unwrap()
}
