//! What a pod waits for, in words: the text of the condition `podward.io/lifecycle`.

use crate::admit::half_text;
use crate::keys::{SERVICE_READY_GATE, STAY_OFFLINE, Stage};
use crate::operations::{Operation, Operations, UNKNOWN_TYPE};
use crate::phase::Phase;
use crate::plan::{CheckResult, Checks};
use crate::view::{ConditionStatus, PodView};

/// A condition for people. Equal states give equal texts, so it is written only when something has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `True` when the pod is in service and nothing is going on.
    pub status: ConditionStatus,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// Who waits for whom, and what comes next.
    pub message: String,
}

/// Says what `pod` waits for.
#[must_use]
pub fn explain(pod: &PodView<'_>, checks: &dyn Checks) -> Explanation {
    let operations = Operations::parse(pod.labels);
    let mut sentences = Vec::new();
    let mut foremost: Option<Phase> = None;
    for (id, operation) in operations.iter() {
        let Some(phase) = Phase::of(operation) else { continue };
        sentences.push(sentence(pod, &operations, id, operation, phase, checks));
        foremost = foremost.max((phase != Phase::HalfAnnounced).then_some(phase));
    }
    if let Err(error) = pod.expected_finalizers() {
        sentences.push(format!("{error}; until it is corrected the pod can't become available"));
    }
    if pod.terminating {
        sentences.push("the pod is being deleted".to_owned());
        return conclude(ConditionStatus::False, "Terminating", sentences);
    }
    if let Some(phase) = foremost {
        return conclude(ConditionStatus::False, phase.as_str(), sentences);
    }
    explain_at_rest(pod, sentences)
}

fn explain_at_rest(pod: &PodView<'_>, mut sentences: Vec<String>) -> Explanation {
    let mut rest = |text: String| {
        sentences.insert(0, text);
        std::mem::take(&mut sentences)
    };
    if pod.stays_offline() {
        let text = format!("the pod stays out of service until somebody removes the label {STAY_OFFLINE}");
        return conclude(ConditionStatus::False, "StayOffline", rest(text));
    }
    if pod.has_gate && pod.gate != Some(ConditionStatus::True) {
        let text = format!("the pod is about to be put into service: {SERVICE_READY_GATE} turns True next");
        return conclude(ConditionStatus::False, "EnteringService", rest(text));
    }
    if !pod.ready {
        let text = "the pod is not Ready: waits for the kubelet to find its containers and other readiness gates ready";
        return conclude(ConditionStatus::False, "NotReady", rest(text.to_owned()));
    }
    let missing = missing_consumers(pod);
    if !missing.is_empty() {
        let text = format!("waits for {} to take the pod in", missing.join(", "));
        return conclude(ConditionStatus::False, "EnteringService", rest(text));
    }
    if !pod.has_expected_finalizers() {
        return conclude(ConditionStatus::False, "InvalidAnnotation", sentences);
    }
    conclude(ConditionStatus::True, "InService", rest("the pod is in service".to_owned()))
}

fn conclude(status: ConditionStatus, reason: &'static str, sentences: Vec<String>) -> Explanation {
    Explanation { status, reason, message: sentences.join(". ") }
}

fn sentence(
    pod: &PodView<'_>,
    operations: &Operations<'_>,
    id: &str,
    operation: &Operation<'_>,
    phase: Phase,
    checks: &dyn Checks,
) -> String {
    let operation_type = operations.type_of(id);
    let operation_type = operation_type.as_deref().unwrap_or(UNKNOWN_TYPE);
    let who = format!("operation {id} ({operation_type})");
    match phase {
        Phase::HalfAnnounced => half_text(id, operation.has(Stage::Operating)),
        Phase::PreChecking => match checks.pre_check(id, operation_type) {
            CheckResult::Pass => format!("{who} is announced: Podward takes the pod out of service for it next"),
            CheckResult::Wait(reason) => format!("{who} waits for its pre-checks: {reason}"),
        },
        Phase::Preparing => {
            let holders: Vec<&str> = pod.protection_finalizers().collect();
            if pod.has_gate && pod.gate != Some(ConditionStatus::False) {
                format!("{who} waits for {SERVICE_READY_GATE} to turn False, which Podward writes next")
            } else if holders.is_empty() {
                format!("{who} gets its permission next")
            } else {
                format!("{who} waits for the owners of {} to let go of the pod; its permission follows", holders.join(", "))
            }
        }
        Phase::Operating => {
            format!("{who} has its permission: Podward waits for its operator to work and remove {}", Stage::Operating.key(id))
        }
        Phase::WaitingForOthers => format!("{who} is done and waits for the other operations to be done"),
        Phase::PostChecking => match checks.post_check(id, operation_type) {
            CheckResult::Pass => format!("{who} is done: Podward puts the pod back into service next"),
            CheckResult::Wait(reason) => format!("{who} is done and waits for its post-checks: {reason}"),
        },
        Phase::Completing => {
            let missing = missing_consumers(pod);
            if missing.is_empty() {
                format!("{who} is done and waits for the other operations to be done")
            } else {
                format!("{who} is done and waits for {} to take the pod in", missing.join(", "))
            }
        }
    }
}

fn missing_consumers(pod: &PodView<'_>) -> Vec<String> {
    let Ok(expected) = pod.expected_finalizers() else { return Vec::new() };
    expected.missing(pod.finalizers).map(|(employer, finalizer)| format!("{employer} (finalizer {finalizer})")).collect()
}
