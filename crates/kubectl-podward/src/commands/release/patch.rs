//! Translates a pod for the engine, and the engine's decision into a patch.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::{
    AVAILABLE_CONDITIONS, LIFECYCLE_CONDITION, SERVICE_READY_GATE, SERVICE_READY_MESSAGE,
};
use podward_core::release::{OtherFinalizers, Release, ReleasePod, release};
use podward_core::{ConditionStatus, PodFacts, PodView};
use serde_json::{Map, Value, json};

/// Returns what to remove from `pod`.
pub(super) fn decide(pod: &Pod, other_finalizers: OtherFinalizers) -> Release {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&NONE);
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let status_of = |name: &str| {
        let found = conditions.into_iter().flatten().find(|condition| condition.type_ == name);
        found.map(|condition| ConditionStatus::parse(&condition.status))
    };
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let subject = ReleasePod {
        pod: PodView {
            labels: pod.metadata.labels.as_ref().unwrap_or(&NONE),
            available_conditions: annotations.get(AVAILABLE_CONDITIONS).map(String::as_str),
            finalizers: pod.metadata.finalizers.as_deref().unwrap_or_default(),
            has_gate: gates.into_iter().flatten().any(|gate| gate.condition_type == SERVICE_READY_GATE),
            gate: status_of(SERVICE_READY_GATE),
            ready: status_of("Ready") == Some(ConditionStatus::True),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            facts: PodFacts::default(),
        },
        annotations,
        has_condition: status_of(LIFECYCLE_CONDITION).is_some(),
        is_finished: matches!(phase, Some("Succeeded" | "Failed")),
    };
    release(&subject, other_finalizers)
}

/// Returns a strategic merge patch for pods/status. For this subresource, the API server also stores metadata (except
/// owner references), so one write is enough and no client sees a part of it. The patch has a precondition: it applies
/// only to the version of the pod that was decided on.
pub(super) fn body(pod: &Pod, release: &Release, now: Timestamp) -> Value {
    let mut metadata = Map::from_iter([
        ("uid".to_owned(), json!(pod.metadata.uid)),
        ("resourceVersion".to_owned(), json!(pod.metadata.resource_version)),
    ]);
    if !release.labels.is_empty() {
        let removed = release.labels.iter().map(|key| (key.clone(), Value::Null));
        metadata.insert("labels".to_owned(), Value::Object(removed.collect()));
    }
    if !release.annotations.is_empty() {
        let values = release.annotations.iter().map(|(key, text)| ((*key).to_owned(), json!(text)));
        metadata.insert("annotations".to_owned(), Value::Object(values.collect()));
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
            // `metav1.Time` has a resolution of a second.
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }));
    }
    if release.removes_condition {
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
    use podward_core::hooks::hook_finalizer;
    use podward_core::keys::{HOOK_REQUESTS, SERVICE_AVAILABLE};

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "labels": {SERVICE_AVAILABLE: "1", "app": "web"}, "annotations": {HOOK_REQUESTS: "{}", "note": "x"},
                "finalizers": [hook_finalizer("mesh"), "example.com/f"],
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
        let found =
            body(&pod, &decide(&pod, OtherFinalizers::Keep), "2026-01-01T10:00:00.5Z".parse().unwrap());
        let expected = json!({
            "metadata": {
                "uid": "u", "resourceVersion": "7", "labels": {SERVICE_AVAILABLE: null},
                "annotations": {HOOK_REQUESTS: null},
                "$deleteFromPrimitiveList/finalizers": [hook_finalizer("mesh")],
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
    fn other_pods_are_not_changed() {
        assert!(decide(&Pod::default(), OtherFinalizers::Remove).is_empty());
        let mut finished = pod();
        finished.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        assert!(
            !decide(&finished, OtherFinalizers::Keep).opens_gate,
            "a finished pod never becomes Ready again"
        );
    }
}
