//! The lifecycle protocol of OpenKruise: its controllers write the state of a pod, and wait for the labels and finalizers
//! (the markers) that `spec.lifecycle` of the workload names. A pod with its markers is in service, one without is not.
//! Sources: `apis/apps/pub/lifecycle.go` and `pkg/util/lifecycle` of openkruise/kruise 1.9.

use std::collections::{BTreeMap, BTreeSet};

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use podward_core::cloneset::State;
use podward_core::cloneset::keys::STATE_LABEL;
use podward_core::hooks::HookPhase;
use serde::Deserialize;
use serde_json::{Value, json};

/// The API group of OpenKruise's workloads.
pub(crate) const GROUP: &str = "apps.kruise.io";
/// Whose labels and finalizers are no markers: a workload must not make Podward write what its author may not.
const RESERVED: [&str; 5] = ["kubernetes.io", "k8s.io", "kusionstack.io", "podward.io", "kruise.io"];

/// A workload of OpenKruise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KruiseWorkload {
    pub(crate) namespace: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// What the protocol says of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KruisePod {
    pub(crate) state: State,
    pub(crate) workload: KruiseWorkload,
    /// True if the pod is being deleted. Its state may be any, because others delete pods too.
    pub(crate) terminating: bool,
    /// All finalizers of the pod, in their order.
    finalizers: Vec<String>,
}

/// `spec.lifecycle` of a workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Lifecycle {
    pre_normal: Option<Markers>,
    in_place_update: Option<Markers>,
    pre_delete: Option<Markers>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Markers {
    labels_handler: Option<BTreeMap<String, String>>,
    finalizers_handler: Option<Vec<String>>,
}

impl KruisePod {
    /// Returns what the protocol says of a pod. `None` if no workload of OpenKruise manages it, or it has no state.
    pub(crate) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let state = metadata.labels.as_ref()?.get(STATE_LABEL)?.parse().ok()?;
        let owners = metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true))?;
        let (group, _) = owner.api_version.split_once('/')?;
        (group == GROUP).then(|| Self {
            state,
            workload: KruiseWorkload {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                kind: owner.kind.clone(),
                name: owner.name.clone(),
            },
            terminating: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
        })
    }

    /// Returns the question that is to be answered. `None` if nobody waits for the answer.
    pub(crate) fn question(&self) -> Option<HookPhase> {
        match self.state {
            _ if self.terminating => Some(HookPhase::Release),
            State::PreparingNormal | State::Normal | State::Updated => Some(HookPhase::Complete),
            State::PreparingUpdate | State::PreparingDelete => Some(HookPhase::Prepare),
            State::Updating => None,
        }
    }

    /// Returns the operations of the JSON Patch that answers the question, for the pod with this UID and these labels.
    /// It is empty if the markers are as they should be. A terminating pod loses the finalizers only: nobody waits for
    /// its labels.
    ///
    /// # Errors
    /// Fails with a text for people if a marker is reserved.
    pub(crate) fn answer(
        &self,
        lifecycle: &Lifecycle,
        uid: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<PatchOperation>, String> {
        let all = [&lifecycle.pre_normal, &lifecycle.in_place_update, &lifecycle.pre_delete];
        let all = all.into_iter().flatten();
        let (markers, present) = match self.state {
            _ if self.terminating => (all.collect(), false),
            State::PreparingNormal | State::Normal | State::Updated => (all.collect(), true),
            State::PreparingUpdate => (lifecycle.in_place_update.iter().collect(), false),
            State::PreparingDelete => (lifecycle.pre_delete.iter().collect(), false),
            State::Updating => (Vec::new(), false),
        };
        let markers: Vec<&Markers> = markers;
        let with_labels = markers.iter().filter(|_| !self.terminating);
        let named_labels: BTreeMap<&String, &String> =
            with_labels.flat_map(|markers| markers.labels_handler.iter().flatten()).collect();
        let named_finalizers: BTreeSet<&String> =
            markers.iter().flat_map(|markers| markers.finalizers_handler.iter().flatten()).collect();
        for name in named_labels.keys().chain(&named_finalizers) {
            refuse_reserved(name)?;
        }
        let mut operations = Vec::new();
        for (key, value) in named_labels {
            let stored = labels.get(key);
            // A label with another value is no marker.
            if present && stored != Some(value) {
                operations.push(add(&["labels", key], json!(value)));
            } else if !present && stored == Some(value) {
                operations.push(PatchOperation::Remove(RemoveOperation { path: path(&["labels", key]) }));
            }
        }
        let mut finalizers: Vec<&String> = self.finalizers.iter().collect();
        match present {
            true => {
                let missing = named_finalizers.into_iter().filter(|name| !self.finalizers.contains(name));
                finalizers.extend(missing);
            }
            false => finalizers.retain(|name| !named_finalizers.contains(name)),
        }
        if finalizers.len() != self.finalizers.len() {
            // A pod without finalizers has no list that could be tested.
            if !self.finalizers.is_empty() {
                operations.push(test(&["finalizers"], json!(self.finalizers)));
            }
            operations.push(add(&["finalizers"], json!(finalizers)));
        }
        if !operations.is_empty() {
            // Neither another pod with the name, nor one whose state has changed.
            let guards =
                [test(&["uid"], json!(uid)), test(&["labels", STATE_LABEL], json!(labels.get(STATE_LABEL)))];
            operations.splice(0..0, guards);
        }
        Ok(operations)
    }
}

/// Returns a path in the metadata.
fn path(fields: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(["metadata"].iter().chain(fields).copied())
}

fn add(fields: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: path(fields), value })
}

fn test(fields: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: path(fields), value })
}

fn refuse_reserved(name: &str) -> Result<(), String> {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |reserved: &str| {
        domain == reserved || domain.strip_suffix(reserved).is_some_and(|rest| rest.ends_with('.'))
    };
    match RESERVED.into_iter().find(|reserved| is_of(reserved)) {
        Some(reserved) => {
            Err(format!("spec.lifecycle names {name}, and {reserved} is reserved; choose another domain"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(state: &str, labels: Value, finalizers: Value) -> (KruisePod, BTreeMap<String, String>) {
        let mut metadata = json!({
            "name": "web-x", "namespace": "shop", "uid": "u1", "labels": labels, "finalizers": finalizers,
            "ownerReferences": [{
                "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "w", "controller": true,
            }],
        });
        metadata["labels"][STATE_LABEL] = json!(state);
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        (KruisePod::of(&metadata).unwrap(), metadata.labels.unwrap())
    }

    fn lifecycle() -> Lifecycle {
        serde_json::from_value(json!({
            "preNormal": {"labelsHandler": {"online": "true"}},
            "inPlaceUpdate": {"labelsHandler": {"online": "true"}, "markPodNotReady": true},
            "preDelete": {"finalizersHandler": ["example.com/registry"], "labelsHandler": {"a~/b": "1"}},
        }))
        .unwrap()
    }

    /// Returns labels without the state, and finalizers, after the answer.
    fn after(state: &str, labels: Value, finalizers: Value) -> (Value, Value) {
        let (pod, known) = pod(state, labels, finalizers);
        let operations = pod.answer(&lifecycle(), "u1", &known).unwrap();
        let mut document = json!({"metadata": {"uid": "u1", "labels": known, "finalizers": pod.finalizers}});
        json_patch::patch(&mut document, &operations).unwrap();
        document["metadata"]["labels"].as_object_mut().unwrap().remove(STATE_LABEL);
        (document["metadata"]["labels"].clone(), document["metadata"]["finalizers"].clone())
    }

    #[test]
    fn a_pod_in_service_has_all_markers() {
        let all =
            (json!({"app": "web", "online": "true", "a~/b": "1"}), json!(["x", "example.com/registry"]));
        for state in ["PreparingNormal", "Normal", "Updated"] {
            assert_eq!(after(state, json!({"app": "web", "online": "no"}), json!(["x"])), all);
            let (pod, labels) = pod(state, all.0.clone(), all.1.clone());
            assert_eq!(pod.answer(&lifecycle(), "u1", &labels), Ok(Vec::new()), "it is stored already");
        }
    }

    #[test]
    fn a_pod_that_is_out_of_service_lacks_the_markers_of_the_hook() {
        let all = (json!({"online": "true", "a~/b": "1"}), json!(["x", "example.com/registry"]));
        let updating = (json!({"a~/b": "1"}), all.1.clone());
        assert_eq!(after("PreparingUpdate", all.0.clone(), all.1.clone()), updating);
        assert_eq!(
            after("PreparingDelete", all.0.clone(), all.1.clone()),
            (json!({"online": "true"}), json!(["x"]))
        );
        // The controller waits for nobody.
        assert_eq!(after("Updating", all.0.clone(), all.1.clone()), all);
    }

    #[test]
    fn a_pod_that_others_delete_loses_the_finalizers_and_keeps_its_labels() {
        let metadata: ObjectMeta = serde_json::from_value(json!({
            "namespace": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "labels": {STATE_LABEL: "Normal", "online": "true"}, "finalizers": ["x", "example.com/registry"],
            "ownerReferences": [{
                "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "w",
                "controller": true,
            }],
        }))
        .unwrap();
        let (pod, labels) = (KruisePod::of(&metadata).unwrap(), metadata.labels.clone().unwrap());
        let operations = pod.answer(&lifecycle(), "u1", &labels).unwrap();
        let mut document = json!({"metadata": {"uid": "u1", "labels": labels, "finalizers": pod.finalizers}});
        json_patch::patch(&mut document, &operations).unwrap();
        assert_eq!(document["metadata"]["finalizers"], json!(["x"]));
        assert_eq!(document["metadata"]["labels"], json!(labels));
    }

    #[test]
    fn reserved_markers_are_refused() {
        let (pod, labels) = pod("Normal", json!({}), json!([]));
        for name in [
            "kusionstack.io/control",
            "x.kubernetes.io/y",
            "prot.podopslifecycle.kusionstack.io/x",
            "podward.io/a",
        ] {
            let lifecycle = json!({"preDelete": {"finalizersHandler": [name]}});
            let lifecycle: Lifecycle = serde_json::from_value(lifecycle).unwrap();
            assert!(pod.answer(&lifecycle, "u1", &labels).unwrap_err().contains(name), "{name}");
        }
        assert_eq!(refuse_reserved("notkubernetes.io/a"), Ok(()));
    }

    #[test]
    fn pods_of_others_have_no_state() {
        for (state, api_version) in [("Normal", "apps/v1"), ("Created", "apps.kruise.io/v1alpha1")] {
            let other = json!({"labels": {STATE_LABEL: state}, "ownerReferences": [
                {"apiVersion": api_version, "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": true},
            ]});
            assert_eq!(KruisePod::of(&serde_json::from_value(other).unwrap()), None);
        }
    }
}
