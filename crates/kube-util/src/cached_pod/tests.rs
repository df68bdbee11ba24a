//! What is kept of a pod, and what is read from it.

use podward_core::ConditionStatus;
use podward_core::keys::{LIFECYCLE_CONDITION, SERVICE_READY_GATE};
use serde_json::json;

use super::*;

#[test]
fn keeps_what_the_engine_reads_and_nothing_else() {
    let pod: CachedPod = serde_json::from_value(json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u", "resourceVersion": "12",
            "labels": {"a": "b"}, "annotations": {"big": "x", AVAILABLE_CONDITIONS: "{}"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {"containers": [{"name": "c"}], "readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True"},
            {"type": SERVICE_READY_GATE, "status": "False"},
            {"type": LIFECYCLE_CONDITION, "status": "True", "reason": "InService", "message": "m"},
        ]},
    }))
    .unwrap();
    assert!(pod.view().has_gate && pod.view().ready);
    assert_eq!(pod.view().gate, Some(ConditionStatus::False));
    assert_eq!(pod.view().available_conditions, Some("{}"));
    assert!(pod.metadata.managed_fields.is_none());
    assert_eq!(pod.metadata.annotations.as_ref().unwrap().len(), 1);
    assert_eq!(pod.lifecycle_condition().unwrap().reason, "InService");
}

#[test]
fn a_taint_eviction_is_recognized_by_its_condition() {
    let is_taint_eviction = |status: &str, reason: &str| {
        let conditions = json!([{"type": "DisruptionTarget", "status": status, "reason": reason}]);
        let pod: CachedPod =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}}))
                .unwrap();
        pod.is_taint_eviction()
    };
    assert!(is_taint_eviction("True", "DeletionByTaintManager"));
    assert!(!is_taint_eviction("False", "DeletionByTaintManager"));
    assert!(!is_taint_eviction("True", "PreemptionByScheduler"));
}

#[test]
fn a_ready_from_before_the_gate_is_doubted_for_a_while() {
    let pod = |ready: &str, gate: &str| -> CachedPod {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": ready},
            {"type": SERVICE_READY_GATE, "status": "True", "lastTransitionTime": gate},
        ]}}))
        .unwrap()
    };
    let at = |time: &str| time.parse().unwrap();
    let early = pod("2026-01-01T10:00:00Z", "2026-01-01T10:00:10Z");
    let left = early.ready_is_in_doubt_for(at("2026-01-01T10:00:11Z"));
    assert_eq!(left, Some(SignedDuration::from_secs(1)));
    assert_eq!(early.ready_is_in_doubt_for(at("2026-01-01T10:00:12Z")), None, "not for ever");
    let left = early.ready_is_in_doubt_for(at("2026-01-01T10:00:08Z"));
    assert_eq!(left, Some(SignedDuration::from_secs(4)), "the clock of the last leader was a little ahead");
    let left = early.ready_is_in_doubt_for(at("2026-01-01T10:00:07Z"));
    assert_eq!(left, None, "the clock of the last leader was far ahead");
    assert_eq!(early.ready_is_in_doubt_for(at("2026-01-01T04:00:00Z")), None);
    let same = pod("2026-01-01T10:00:10Z", "2026-01-01T10:00:10Z");
    assert_eq!(same.ready_is_in_doubt_for(at("2026-01-01T10:00:10Z")), None);
}

#[test]
fn a_pod_without_status_is_read() {
    let pod: CachedPod =
        serde_json::from_value(json!({"metadata": {"name": "a", "annotations": null}, "spec": {}})).unwrap();
    assert!(!pod.view().has_gate && pod.view().gate.is_none());
}

#[test]
fn the_later_version_is_newer() {
    let at = |version: &str| CachedPod {
        metadata: ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() },
        ..CachedPod::default()
    };
    assert!(at("100").is_newer_than(&at("99")));
    assert!(!at("99").is_newer_than(&at("100")));
    assert!(at("1").is_newer_than(&at("")));
}

#[test]
fn a_pod_was_never_ready_if_its_first_condition_is_the_last() {
    let start = "2026-01-01T10:00:05Z";
    let pod = |gated: bool, status| {
        let gates = if gated { json!([{"conditionType": SERVICE_READY_GATE}]) } else { json!([]) };
        let pod = json!({"metadata": {}, "spec": {"readinessGates": gates}, "status": status});
        serde_json::from_value::<CachedPod>(pod).unwrap()
    };
    let ready =
        |status: &str, since: &str| json!({"type": "Ready", "status": status, "lastTransitionTime": since});
    let with = |status: &str, since: &str| {
        pod(true, json!({"startTime": start, "conditions": [ready(status, since)]}))
    };
    assert!(with("False", start).was_never_ready());
    assert!(!with("True", start).was_never_ready());
    assert!(!with("False", "2026-01-01T10:00:06Z").was_never_ready(), "it was Ready in between");
    assert!(pod(true, json!({})).was_never_ready(), "no kubelet runs it");
    assert!(!pod(true, json!({"startTime": start})).was_never_ready(), "unknown");

    let gate_at = |since: &str| {
        let gate = json!({"type": SERVICE_READY_GATE, "status": "False", "lastTransitionTime": since});
        pod(true, json!({"startTime": start, "conditions": [ready("False", start), gate]}))
    };
    assert!(!gate_at("2026-01-01T10:00:05Z").was_never_ready(), "perhaps Ready for a part of a second");
    assert!(!gate_at("2026-01-01T10:00:06Z").was_never_ready(), "perhaps a few milliseconds later");
    assert!(gate_at("2026-01-01T10:00:07Z").was_never_ready(), "the gate was not True in the first second");
    let ungated = pod(false, json!({"startTime": start, "conditions": [ready("False", start)]}));
    assert!(!ungated.was_never_ready(), "perhaps Ready until its first crash");
}
