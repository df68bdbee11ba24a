//! A pod of the API as the engine sees it, and the engine's decision as a patch.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::{
    AVAILABLE_CONDITIONS, LIFECYCLE_CONDITION, SERVICE_READY_GATE, SERVICE_READY_MESSAGE,
};
use podward_core::release::{Release, Subject, ThirdParties, release};
use podward_core::{ConditionStatus, Facts, PodView};
use serde_json::{Map, Value, json};

/// What is to be taken off `pod`.
pub(super) fn decide(pod: &Pod, third_parties: ThirdParties) -> Release {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&NONE);
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let status_of = |name: &str| {
        let found = conditions.into_iter().flatten().find(|condition| condition.type_ == name);
        found.map(|condition| ConditionStatus::parse(&condition.status))
    };
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let subject = Subject {
        pod: PodView {
            labels: pod.metadata.labels.as_ref().unwrap_or(&NONE),
            available_conditions: annotations.get(AVAILABLE_CONDITIONS).map(String::as_str),
            finalizers: pod.metadata.finalizers.as_deref().unwrap_or_default(),
            has_gate: gates.into_iter().flatten().any(|gate| gate.condition_type == SERVICE_READY_GATE),
            gate: status_of(SERVICE_READY_GATE),
            ready: status_of("Ready") == Some(ConditionStatus::True),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            facts: Facts::default(),
        },
        annotations,
        is_told: status_of(LIFECYCLE_CONDITION).is_some(),
        is_finished: matches!(phase, Some("Succeeded" | "Failed")),
    };
    release(&subject, third_parties)
}

/// A strategic merge patch for pods/status, where the API server keeps the metadata that comes with a write (all of it but owner
/// references): so one write does it all, and nobody sees half of it. It holds only for the pod as it was decided on.
pub(super) fn body(pod: &Pod, release: &Release, now: Timestamp) -> Value {
    let mut metadata = Map::from_iter([
        ("uid".to_owned(), json!(pod.metadata.uid)),
        ("resourceVersion".to_owned(), json!(pod.metadata.resource_version)),
    ]);
    if !release.labels.is_empty() {
        let gone = release.labels.iter().map(|key| (key.clone(), Value::Null));
        metadata.insert("labels".to_owned(), Value::Object(gone.collect()));
    }
    if !release.annotations.is_empty() {
        let texts = release.annotations.iter().map(|(key, text)| ((*key).to_owned(), json!(text)));
        metadata.insert("annotations".to_owned(), Value::Object(texts.collect()));
    }
    if !release.finalizers.is_empty() {
        metadata.insert("$deleteFromPrimitiveList/finalizers".to_owned(), json!(release.finalizers));
    }
    let mut conditions = Vec::new();
    if release.opens_gate {
        conditions.push(json!({
            "type": SERVICE_READY_GATE,
            "status": ConditionStatus::True.as_str(),
            "message": SERVICE_READY_MESSAGE,
            // `metav1.Time` has whole seconds.
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }));
    }
    if release.untells {
        conditions.push(json!({"type": LIFECYCLE_CONDITION, "$patch": "delete"}));
    }
    let mut patch = json!({ "metadata": metadata });
    if !conditions.is_empty() {
        patch["status"] = json!({ "conditions": conditions });
    }
    patch
}

#[cfg(test)]
mod tests {
    use podward_core::hooks::finalizer_of;
    use podward_core::keys::{ASKED, SERVICE_AVAILABLE};

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "labels": {SERVICE_AVAILABLE: "1", "app": "web"}, "annotations": {ASKED: "{}", "note": "x"},
                "finalizers": [finalizer_of("mesh"), "example.com/f"],
            },
            "spec": {"containers": [], "readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
            "status": {"phase": "Running", "conditions": [
                {"type": SERVICE_READY_GATE, "status": "False"}, {"type": LIFECYCLE_CONDITION, "status": "False"},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn one_patch_carries_everything_and_its_precondition() {
        let pod = pod();
        let found = body(&pod, &decide(&pod, ThirdParties::Keep), "2026-01-01T10:00:00.5Z".parse().unwrap());
        let expected = json!({
            "metadata": {
                "uid": "u", "resourceVersion": "7", "labels": {SERVICE_AVAILABLE: null}, "annotations": {ASKED: null},
                "$deleteFromPrimitiveList/finalizers": [finalizer_of("mesh")],
            },
            "status": {"conditions": [
                {
                    "type": SERVICE_READY_GATE, "status": "True", "message": SERVICE_READY_MESSAGE,
                    "lastTransitionTime": "2026-01-01T10:00:00Z",
                },
                {"type": LIFECYCLE_CONDITION, "$patch": "delete"},
            ]},
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn a_pod_of_nobody_is_left_alone() {
        assert!(decide(&Pod::default(), ThirdParties::Remove).is_empty());
        let mut finished = pod();
        finished.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        assert!(!decide(&finished, ThirdParties::Keep).opens_gate, "it never gets Ready again");
    }
}
