//! A pod's life, for callers.

use std::collections::BTreeMap;

use podward_core::busy::{Busy, BusyChecks, Claim};
use podward_core::hooks::hook_of;
use podward_core::keys::TO_DELETE;
use podward_core::refusals::{Refusal, Refusals};
use podward_core::wish::{DeletionKind, Wish};
use podward_core::{NoRules, Operations, Phase, PodView, UNKNOWN_TYPE, available, explain};
use podward_proto::v1;
use serde::Deserialize;

use super::convert::timestamp;
use crate::cached_pod::CachedPod;
use crate::reconcile::now;

/// How `pod`'s life stands.
pub(super) fn describe(pod: &CachedPod) -> v1::PodLifecycle {
    let view = pod.view();
    let operations = Operations::parse(view.labels);
    let key = pod.key();
    v1::PodLifecycle {
        pod: Some(v1::PodReference { namespace: key.namespace, name: key.name, uid: pod.uid().to_owned() }),
        in_service: available(&view, &operations),
        operations: states(&operations, &Refusals::of(&view)),
        consumers: consumers(&view, pod.evidence()),
        message: message(pod),
        deletion_wish: pod.wish().filter(|_| view.labels.contains_key(TO_DELETE)).map(wish),
        terminating: view.terminating,
        busy: Claim::of(&view).at(now()).map(work),
    }
}

fn work(work: Busy<'_>) -> v1::Work {
    let until = jiff::Timestamp::from_nanosecond(work.until.0.into()).ok().map(timestamp);
    v1::Work { until, reason: work.reason.to_owned() }
}

fn states(operations: &Operations<'_>, refusals: &Refusals) -> Vec<v1::OperationState> {
    let state = |id: &str, step: v1::Step| {
        let known = operations.type_of(id);
        let r#type = known.as_deref().unwrap_or(UNKNOWN_TYPE).to_owned();
        v1::OperationState {
            operation: Some(v1::Operation { id: id.to_owned(), r#type }),
            step: step.into(),
            refused: refusals.of_operation(id).map(refused).collect(),
        }
    };
    let steps = operations.iter().filter_map(|(id, operation)| Some((id, step(Phase::of(operation)?)?)));
    steps.map(|(id, step)| state(id, step)).collect()
}

fn refused(refusal: Refusal<'_>) -> v1::ResultRefused {
    v1::ResultRefused {
        by: refusal.by.to_owned(),
        reason: refusal.reason.to_owned(),
        since: jiff::Timestamp::from_nanosecond(refusal.since.0.into()).ok().map(timestamp),
    }
}

fn step(phase: Phase) -> Option<v1::Step> {
    Some(match phase {
        Phase::PreChecking => v1::Step::Checking,
        Phase::Preparing => v1::Step::Preparing,
        Phase::Operating => v1::Step::Operating,
        Phase::WaitingForOthers | Phase::PostChecking => v1::Step::Finished,
        Phase::Completing => v1::Step::Completing,
        // Not an operation yet.
        _ => return None,
    })
}

/// Everybody who holds the pod, or is expected to.
fn consumers(pod: &PodView<'_>, evidence: Option<&str>) -> Vec<v1::Consumer> {
    let expected = pod.expected_finalizers().unwrap_or_default();
    let mut names: BTreeMap<&str, &str> =
        pod.protection_finalizers().map(|finalizer| (finalizer, finalizer)).collect();
    names.extend(
        expected.missing(&[]).map(|(employer, finalizer)| (finalizer, hook_of(employer).unwrap_or(employer))),
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
struct Written {
    #[serde(default)]
    level: String,
    #[serde(default)]
    detail: String,
}

/// The annotation's text by hook; what can't be read counts as nothing.
fn parse_evidence(text: &str) -> BTreeMap<String, v1::Evidence> {
    let written: BTreeMap<String, Written> = serde_json::from_str(text).unwrap_or_default();
    let level = |name: &str| {
        v1::EvidenceLevel::from_str_name(&format!("EVIDENCE_LEVEL_{name}")).unwrap_or_default().into()
    };
    let evidence = |Written { level: name, detail }| v1::Evidence { level: level(&name), detail };
    written.into_iter().map(|(hook, written)| (hook, evidence(written))).collect()
}

/// The condition's own text, which knows the reasons of hooks, unless it is of another state than the pod is in by now.
fn message(pod: &CachedPod) -> String {
    let view = pod.view();
    let now = explain(&view, &BusyChecks::without_maximum(&view, now(), &NoRules), &[]);
    match pod.lifecycle_condition() {
        Some(told) if told.reason == now.reason && told.status == now.status => told.message.clone(),
        _ => now.message,
    }
}

fn wish(wish: Wish) -> v1::DeletionWish {
    let requested_at = jiff::Timestamp::from_nanosecond(wish.requested_at.into()).ok().map(timestamp);
    let kind = match wish.kind {
        DeletionKind::Delete => v1::DeletionKind::Delete,
        DeletionKind::Evict => v1::DeletionKind::Evict,
    };
    v1::DeletionWish {
        kind: kind.into(),
        requested_by: wish.requested_by,
        requested_at,
        grace_period_seconds: wish.grace_period_seconds,
    }
}

#[cfg(test)]
mod tests {
    use podward_core::hooks::{employer_of, finalizer_of};
    use podward_core::keys::{
        AVAILABLE_CONDITIONS, CONTROL_LABEL, EVIDENCE, REFUSED, SERVICE_READY_GATE, Stage, permission_key,
    };
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_operated_on() {
        let stranger = "prot.podopslifecycle.kusionstack.io/1234";
        let expected = json!({"expectedFinalizers": {
            (employer_of("balancer")): finalizer_of("balancer"), (employer_of("registry")): finalizer_of("registry"),
        }});
        let evidence =
            json!({"registry": {"level": "PROVEN", "detail": "read back"}, "other": {"level": "?"}});
        let pod: CachedPod = serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u",
                "labels": {
                    CONTROL_LABEL: "true", (Stage::Operating.key("a")): "1", (Stage::OperationType.key("a")): "update",
                    (Stage::PreChecked.key("a")): "1", (Stage::Preparing.key("a")): "1", (permission_key("update")): "1",
                    (Stage::Operating.key("half")): "1",
                },
                "annotations": {AVAILABLE_CONDITIONS: expected.to_string(), EVIDENCE: evidence.to_string()},
                "finalizers": [finalizer_of("balancer"), stranger, "other.io/x"],
            },
            "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        }))
        .unwrap();
        let told = describe(&pod);
        assert!(!told.in_service && !told.terminating && told.deletion_wish.is_none());
        let operation = v1::Operation { id: "a".to_owned(), r#type: "update".to_owned() };
        assert_eq!(
            told.operations,
            [v1::OperationState {
                operation: Some(operation),
                step: v1::Step::Preparing.into(),
                refused: vec![]
            }]
        );
        let consumers: BTreeMap<_, _> = told
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
                (stranger, (true, None)),
            ])
        );
        assert!(told.message.contains("operation a (update) waits for"), "{}", told.message);
    }

    #[test]
    fn a_refused_result_is_told_with_who_and_why() {
        let entry =
            json!({"hook judge": {"reason": "too many errors", "since": 1_700_000_000_000_000_007_i64}});
        let pod = |labels: &[Stage]| -> CachedPod {
            let mut all = json!({CONTROL_LABEL: "true", (Stage::DoneOperationType.key("a")): "update"});
            labels.iter().for_each(|stage| all[stage.key("a")] = "1".into());
            let annotations = json!({REFUSED: json!({"a": entry, "b": entry}).to_string()});
            let metadata =
                json!({"name": "web", "namespace": "shop", "labels": all, "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let told = describe(&pod(&[Stage::Operated, Stage::PostCheck, Stage::Rollback]));
        let since = Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 7 });
        let refused =
            v1::ResultRefused { by: "hook judge".to_owned(), reason: "too many errors".to_owned(), since };
        assert_eq!((told.operations.len(), &told.operations[0].refused), (1, &vec![refused]));
        assert_eq!(told.operations[0].step, i32::from(v1::Step::Finished));
        assert!(told.message.contains("its result is refused by hook judge"), "{}", told.message);
        // What is left of an earlier run says nothing.
        let told = describe(&pod(&[Stage::Operated, Stage::PostCheck]));
        assert_eq!(told.operations[0].refused, []);
    }
}
