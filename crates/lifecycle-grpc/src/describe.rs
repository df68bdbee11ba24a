//! The state of a pod, as the responses of `Lifecycle` contain it.

use std::collections::BTreeMap;

use podward_core::busy::{BusyChecks, BusyClaim, BusyWork};
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::hooks::hook_of_consumer_key;
use podward_core::keys::TO_DELETE;
use podward_core::refusals::{ResultRefusal, ResultRefusals};
use podward_core::trace::run_label;
use podward_core::{NoRules, OperationPhase, Operations, PodView, UNKNOWN_TYPE, available, explain};
use podward_kube_util::{CachedPod, now};
use podward_proto::v1;
use serde::Deserialize;

use super::convert::timestamp;

/// Returns the state of `pod`.
#[must_use]
pub fn describe(pod: &CachedPod) -> v1::PodLifecycle {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let key = pod.key();
    v1::PodLifecycle {
        pod: Some(v1::PodReference { namespace: key.namespace, name: key.name, uid: pod.uid().to_owned() }),
        in_service: available(&view, &operations),
        operations: operation_states(&operations, &view),
        consumers: consumers(&view, pod.evidence()),
        message: message(pod),
        deletion_request: pod
            .deletion_request()
            .filter(|_| view.labels.contains_key(TO_DELETE))
            .map(deletion_request),
        terminating: view.terminating,
        busy: BusyClaim::of(&view).at(now()).map(busy_work),
    }
}

fn busy_work(work: BusyWork<'_>) -> v1::Work {
    let until = jiff::Timestamp::from_nanosecond(work.until.0.into()).ok().map(timestamp);
    v1::Work { until, reason: work.reason.to_owned() }
}

fn operation_states(operations: &Operations<'_>, pod: &PodView<'_>) -> Vec<v1::OperationState> {
    let refusals = ResultRefusals::of(pod);
    let state = |id: &str, step: v1::Step| {
        let known = operations.type_of(id);
        let r#type = known.as_deref().unwrap_or(UNKNOWN_TYPE).to_owned();
        v1::OperationState {
            operation: Some(v1::Operation { id: id.to_owned(), r#type }),
            step: step.into(),
            refused: refusals.of_operation(id).map(result_refused).collect(),
            run: pod.labels.get(&run_label(id)).cloned().unwrap_or_default(),
        }
    };
    let steps =
        operations.iter().filter_map(|(id, operation)| Some((id, step(OperationPhase::of(operation)?)?)));
    steps.map(|(id, step)| state(id, step)).collect()
}

fn result_refused(refusal: ResultRefusal<'_>) -> v1::ResultRefused {
    v1::ResultRefused {
        by: refusal.by.to_owned(),
        reason: refusal.reason.to_owned(),
        since: jiff::Timestamp::from_nanosecond(refusal.since.0.into()).ok().map(timestamp),
    }
}

fn step(phase: OperationPhase) -> Option<v1::Step> {
    Some(match phase {
        OperationPhase::PreChecking => v1::Step::Checking,
        OperationPhase::Preparing => v1::Step::Preparing,
        OperationPhase::Operating => v1::Step::Operating,
        OperationPhase::WaitingForOthers | OperationPhase::PostChecking => v1::Step::Finished,
        OperationPhase::Completing => v1::Step::Completing,
        // The operation is not announced.
        _ => return None,
    })
}

/// Returns the consumers that use the pod or are expected to.
fn consumers(pod: &PodView<'_>, evidence: Option<&str>) -> Vec<v1::Consumer> {
    let expected = pod.expected_finalizers().unwrap_or_default();
    let mut names: BTreeMap<&str, &str> =
        pod.protection_finalizers().map(|finalizer| (finalizer, finalizer)).collect();
    names.extend(
        expected
            .missing(&[])
            .map(|(consumer, finalizer)| (finalizer, hook_of_consumer_key(consumer).unwrap_or(consumer))),
    );
    let mut evidence = evidence.map(parse_evidence).unwrap_or_default();
    let consumer = |(finalizer, name): (&str, &str)| {
        let holds = pod.finalizers.iter().any(|present| present == finalizer);
        let evidence = evidence.remove(name).filter(|_| !holds);
        v1::Consumer { name: name.to_owned(), finalizer: finalizer.to_owned(), holds, evidence }
    };
    names.into_iter().map(consumer).collect()
}

#[derive(Deserialize)]
struct StoredEvidence {
    #[serde(default)]
    level: String,
    #[serde(default)]
    detail: String,
}

/// Returns the evidence of an annotation, by hook. An unreadable annotation counts as empty.
fn parse_evidence(text: &str) -> BTreeMap<String, v1::Evidence> {
    let stored: BTreeMap<String, StoredEvidence> = serde_json::from_str(text).unwrap_or_default();
    let level = |name: &str| {
        v1::EvidenceLevel::from_str_name(&format!("EVIDENCE_LEVEL_{name}")).unwrap_or_default().into()
    };
    let evidence = |StoredEvidence { level: name, detail }| v1::Evidence { level: level(&name), detail };
    stored.into_iter().map(|(hook, stored)| (hook, evidence(stored))).collect()
}

/// Returns the text of the pod's condition, which includes the reasons of hooks. If the condition describes an older
/// state, returns a text made from the pod alone.
fn message(pod: &CachedPod) -> String {
    let view = pod.view();
    let now = explain(&view, &BusyChecks::without_maximum(&view, now(), &NoRules), &[]);
    match pod.lifecycle_condition() {
        Some(condition) if condition.reason == now.reason && condition.status == now.status => {
            condition.message.clone()
        }
        _ => now.message,
    }
}

fn deletion_request(request: DeletionRequest) -> v1::DeletionRequest {
    let requested_at = jiff::Timestamp::from_nanosecond(request.requested_at.into()).ok().map(timestamp);
    let kind = match request.kind {
        DeletionKind::Delete => v1::DeletionKind::Delete,
        DeletionKind::Evict => v1::DeletionKind::Evict,
    };
    v1::DeletionRequest {
        kind: kind.into(),
        requested_by: request.requested_by,
        requested_at,
        grace_period_seconds: request.grace_period_seconds,
    }
}

#[cfg(test)]
mod tests {
    use podward_core::hooks::{consumer_key_of, hook_finalizer};
    use podward_core::keys::{
        AVAILABLE_CONDITIONS, CONTROL_LABEL, EVIDENCE, RESULT_REFUSED, SERVICE_READY_GATE, Stage,
        permission_key,
    };
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_of_a_pod_with_an_operation() {
        let unknown = "prot.podopslifecycle.kusionstack.io/1234";
        let expected = json!({"expectedFinalizers": {
            (consumer_key_of("balancer")): hook_finalizer("balancer"),
            (consumer_key_of("registry")): hook_finalizer("registry"),
        }});
        let evidence =
            json!({"registry": {"level": "PROVEN", "detail": "read back"}, "other": {"level": "?"}});
        let pod: CachedPod = serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u",
                "labels": {
                    CONTROL_LABEL: "true", (Stage::Operating.key("a")): "1",
                    (Stage::OperationType.key("a")): "update",
                    (Stage::PreChecked.key("a")): "1", (Stage::Preparing.key("a")): "1",
                    (permission_key("update")): "1",
                    (Stage::Operating.key("half")): "1",
                },
                "annotations": {AVAILABLE_CONDITIONS: expected.to_string(), EVIDENCE: evidence.to_string()},
                "finalizers": [hook_finalizer("balancer"), unknown, "other.io/x"],
            },
            "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        }))
        .unwrap();
        let state = describe(&pod);
        assert!(!state.in_service && !state.terminating && state.deletion_request.is_none());
        let operation = v1::Operation { id: "a".to_owned(), r#type: "update".to_owned() };
        assert_eq!(
            state.operations,
            [v1::OperationState {
                operation: Some(operation),
                step: v1::Step::Preparing.into(),
                refused: vec![],
                run: "1".to_owned(),
            }]
        );
        let consumers: BTreeMap<_, _> = state
            .consumers
            .iter()
            .map(|consumer| (consumer.name.as_str(), (consumer.holds, consumer.evidence.clone())))
            .collect();
        let proven = v1::Evidence { level: v1::EvidenceLevel::Proven.into(), detail: "read back".to_owned() };
        assert_eq!(
            consumers,
            BTreeMap::from([
                ("balancer", (true, None)),
                ("registry", (false, Some(proven))),
                (unknown, (true, None)),
            ])
        );
        assert!(state.message.contains("operation a (update) waits for"), "{}", state.message);
    }

    #[test]
    fn a_refused_result_names_the_check_and_the_reason() {
        let entry =
            json!({"hook judge": {"reason": "too many errors", "since": 1_700_000_000_000_000_007_i64}});
        let pod = |labels: &[Stage]| -> CachedPod {
            let mut all = json!({CONTROL_LABEL: "true", (Stage::DoneOperationType.key("a")): "update"});
            labels.iter().for_each(|stage| all[stage.key("a")] = "1".into());
            let annotations = json!({RESULT_REFUSED: json!({"a": entry, "b": entry}).to_string()});
            let metadata =
                json!({"name": "web", "namespace": "shop", "labels": all, "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let state = describe(&pod(&[Stage::Operated, Stage::PostCheck, Stage::Rollback]));
        let since = Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 7 });
        let refused =
            v1::ResultRefused { by: "hook judge".to_owned(), reason: "too many errors".to_owned(), since };
        assert_eq!((state.operations.len(), &state.operations[0].refused), (1, &vec![refused]));
        assert_eq!(state.operations[0].run, "", "the operator has finished");
        assert_eq!(state.operations[0].step, i32::from(v1::Step::Finished));
        assert!(state.message.contains("its result is refused by hook judge"), "{}", state.message);
        // Refusals of an earlier run do not count.
        let state = describe(&pod(&[Stage::Operated, Stage::PostCheck]));
        assert_eq!(state.operations[0].refused, []);
    }
}
