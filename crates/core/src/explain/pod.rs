//! The explanation of what a pod waits for.

use std::cell::OnceCell;

use crate::busy::BusyClaim;
use crate::hooks::HookPhase;
use crate::hooks::OpenHookQuestion;
use crate::model::incomplete::incomplete_text;
use crate::model::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_READY_GATE, STAY_OFFLINE, Stage};
use crate::model::operations::{Operation, Operations, UNKNOWN_TYPE};
use crate::model::phase::OperationPhase;
use crate::model::view::{ConditionStatus, PodView};
use crate::protocol::checks::{CheckResult, Checks};
use crate::protocol::gate::{gate_is_off, may_operate};
use crate::protocol::refusals::ResultRefusals;

use super::hooks::{self, holders};

/// The reason of a pod in service.
const IN_SERVICE: &str = "InService";
/// The message of a pod in service of which there is nothing else to say.
const IN_SERVICE_TEXT: &str = "the pod is in service";

/// The reason of a pod that waits for its containers, not for Podward or a traffic source.
const NOT_READY: &str = "NotReady";

/// The reason of a pod without an operation that only its gate and its consumers keep out of service.
const ENTERING_SERVICE: &str = "EnteringService";

/// The number of other operations that a sentence names.
const MAX_NAMED: usize = 16;

/// The content of the condition `podward.io/lifecycle`. Equal states have equal texts, so that the condition is written
/// only when something has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `True` when the pod is in service without an operation; `Unknown` when it has not opted in.
    pub status: ConditionStatus,
    /// One word in CamelCase: the phase of the operation that decides what happens to the pod now, or `ResultRefused`.
    pub reason: &'static str,
    /// What the pod waits for and what comes next: one sentence for each operation, then other obstacles.
    pub message: String,
}

impl Explanation {
    /// Returns true if a pod without a condition says the same: it is in service, and there is nothing else to say.
    #[must_use]
    pub fn needs_no_condition(&self) -> bool {
        self.status == ConditionStatus::True && self.reason == IN_SERVICE && self.message == IN_SERVICE_TEXT
    }

    /// Returns true if the pod is on its way into service: new, or after its last operation.
    #[must_use]
    pub fn enters_service(&self) -> bool {
        [ENTERING_SERVICE, OperationPhase::Completing.as_str()].contains(&self.reason)
    }

    /// Returns true if the pod waits for its containers or readiness gates of others, without an operation.
    #[must_use]
    pub fn waits_for_kubelet(&self) -> bool {
        self.reason == NOT_READY
    }
}

/// Explains what `pod` waits for. `checks` supply the reasons of waiting operations. `open` are the open questions to
/// hooks; each is reported with its phase, its time, the answer of the hook, its deadline and the effect of the
/// deadline.
///
/// ```
/// use std::collections::BTreeMap;
/// use podward_core::{ConditionStatus, PodFacts, NoRules, PodView, explain};
/// use podward_core::keys::{self, Stage};
///
/// let labels = BTreeMap::from([
///     (keys::CONTROL_LABEL.to_owned(), "true".to_owned()),
///     (Stage::Operating.key("upgrade"), "1700000000000000000".to_owned()),
///     (Stage::OperationType.key("upgrade"), "update".to_owned()),
///     (Stage::PreChecked.key("upgrade"), "1700000000000000001".to_owned()),
///     (Stage::Preparing.key("upgrade"), "1700000000000000001".to_owned()),
///     (keys::permission_key("update"), "1700000000000000001".to_owned()),
/// ]);
/// let finalizers = ["prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb".to_owned()];
/// let pod = PodView {
///     labels: &labels,
///     available_conditions: None,
///     finalizers: &finalizers,
///     has_gate: true,
///     gate: Some(ConditionStatus::False),
///     ready: false,
///     terminating: false,
///     facts: PodFacts::default(),
/// };
/// let explanation = explain(&pod, &NoRules, &[]);
/// assert_eq!(explanation.reason, "Preparing");
/// assert_eq!(
///     explanation.message,
///     "operation upgrade (update) waits for the owners of prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb \
///      to release the pod; its permission follows",
/// );
/// ```
#[must_use]
pub fn explain(pod: &PodView<'_>, checks: &dyn Checks, open: &[OpenHookQuestion]) -> Explanation {
    if !pod.is_controlled() {
        let text = format!("the pod has not opted in: it has no label {CONTROL_LABEL}={CONTROL_VALUE}");
        return conclude(ConditionStatus::Unknown, "NotOptedIn", vec![text]);
    }
    let operations = Operations::parse(pod.labels);
    if pod.terminating {
        let mut sentences = vec![terminating(pod, &operations)];
        sentences.extend(open.iter().filter_map(hooks::sentence));
        return conclude(ConditionStatus::False, "Terminating", sentences);
    }
    let around = PodContext {
        pod,
        operations: &operations,
        checks,
        open,
        holders: OnceCell::new(),
        missing: OnceCell::new(),
        refusals: OnceCell::new(),
    };
    let mut sentences = Vec::new();
    let mut foremost: Option<OperationPhase> = None;
    for (id, operation) in operations.iter() {
        let Some(phase) = OperationPhase::of(operation) else {
            continue;
        };
        sentences.push(around.sentence(id, operation, phase));
        if phase != OperationPhase::Incomplete {
            foremost = foremost.into_iter().chain([phase]).max_by_key(|phase| weight(*phase));
        }
    }
    if let Err(error) = pod.expected_finalizers() {
        sentences.push(format!("{error}; until it is corrected the pod can't become available"));
    }
    sentences.extend(BusyClaim::of(pod).fault());
    sentences.extend(open.iter().filter_map(hooks::sentence));
    match foremost {
        Some(OperationPhase::PostChecking)
            if operations.iter().any(|(_, operation)| operation.has(Stage::Rollback)) =>
        {
            conclude(ConditionStatus::False, "ResultRefused", sentences)
        }
        Some(phase) => conclude(ConditionStatus::False, phase.as_str(), sentences),
        None => at_rest(pod, open, sentences),
    }
}

/// Returns the weight of a phase. The phase with the highest weight decides what happens to the pod.
fn weight(phase: OperationPhase) -> u8 {
    match phase {
        OperationPhase::Incomplete => 0,
        OperationPhase::WaitingForOthers => 1,
        OperationPhase::Completing => 2,
        OperationPhase::PostChecking => 3,
        OperationPhase::PreChecking => 4,
        OperationPhase::Preparing => 5,
        OperationPhase::Operating => 6,
    }
}

fn terminating(pod: &PodView<'_>, operations: &Operations<'_>) -> String {
    let mut text = "the pod is being deleted".to_owned();
    let ids: Vec<&str> =
        operations.iter().filter(|(_, operation)| operation.is_live()).map(|(id, _)| id).collect();
    if !ids.is_empty() {
        text.push_str(&format!(", and with it end {}", named(&ids)));
    }
    let holders = holders(pod);
    if !holders.is_empty() {
        let is_one_hook = holders.starts_with("hook ") && !holders.contains(" and ");
        let have = if is_one_hook { "has" } else { "have" };
        text.push_str(&format!("; it is removed when {holders} {have} released it"));
    }
    text
}

fn at_rest(pod: &PodView<'_>, open: &[OpenHookQuestion], mut sentences: Vec<String>) -> Explanation {
    let mut rest = |text: String| {
        sentences.insert(0, text);
        std::mem::take(&mut sentences)
    };
    if pod.facts.finished {
        let holders = holders(pod);
        let text = match holders.is_empty() {
            true => "the pod has finished: it does not go back into service".to_owned(),
            false => format!("the pod has finished: waits for {holders} to release it"),
        };
        return conclude(ConditionStatus::False, "Finished", rest(text));
    }
    let gate_is_on = !pod.has_gate || pod.gate == Some(ConditionStatus::True);
    if pod.stays_offline() {
        if gate_is_on && pod.ready && Operations::parse(pod.labels).is_service_available() {
            let text =
                format!("the pod is in service; once it has left, the label {STAY_OFFLINE} keeps it out");
            return conclude(ConditionStatus::True, IN_SERVICE, rest(text));
        }
        let text = format!("the pod is not put into service until somebody removes the label {STAY_OFFLINE}");
        return conclude(ConditionStatus::False, "StayOffline", rest(text));
    }
    if !gate_is_on {
        if let Some(text) = before_gate(pod, open) {
            return conclude(ConditionStatus::False, ENTERING_SERVICE, rest(format!("the pod {text}")));
        }
        let text = format!("the pod is about to be put into service: {SERVICE_READY_GATE} turns True next");
        return conclude(ConditionStatus::False, ENTERING_SERVICE, rest(text));
    }
    if !pod.ready {
        let text = "the pod is not Ready: waits for the kubelet to find its containers and other readiness gates ready";
        return conclude(ConditionStatus::False, NOT_READY, rest(text.to_owned()));
    }
    let missing = missing_consumers(pod);
    if !missing.is_empty() {
        let text = format!("waits for {} to add the pod to traffic", missing.join(", "));
        return conclude(ConditionStatus::False, ENTERING_SERVICE, rest(text));
    }
    if !pod.has_expected_finalizers() {
        return conclude(ConditionStatus::False, "InvalidAnnotation", sentences);
    }
    let reason = if BusyClaim::of(pod).fault().is_some() { "InvalidAnnotation" } else { IN_SERVICE };
    conclude(ConditionStatus::True, reason, rest(IN_SERVICE_TEXT.to_owned()))
}

/// Returns the hooks that a pod waits for before its gate turns on.
fn before_gate(pod: &PodView<'_>, open: &[OpenHookQuestion]) -> Option<String> {
    if let Some(hooks) = hooks::open_requests(open, HookPhase::Complete, None) {
        return Some(format!(
            "waits for {hooks} to add it to traffic; {SERVICE_READY_GATE} turns True after that"
        ));
    }
    let expected = pod.expected_finalizers().ok()?;
    let waits = !pod.facts.containers_ready && hooks::misses_hook(pod, &expected);
    let missing = hooks::missing_consumers(pod, &expected).join(", ");
    waits
        .then(|| format!("waits for its containers to be ready, and then for {missing} to add it to traffic"))
}

fn conclude(status: ConditionStatus, reason: &'static str, sentences: Vec<String>) -> Explanation {
    Explanation { status, reason, message: sentences.join(". ") }
}

/// The context of the sentences about operations.
struct PodContext<'a> {
    pod: &'a PodView<'a>,
    operations: &'a Operations<'a>,
    checks: &'a dyn Checks,
    open: &'a [OpenHookQuestion],
    // Computed once for all operations.
    holders: OnceCell<String>,
    missing: OnceCell<Vec<String>>,
    refusals: OnceCell<ResultRefusals>,
}

impl PodContext<'_> {
    fn holders(&self) -> &str {
        self.holders.get_or_init(|| holders(self.pod))
    }

    fn sentence(&self, id: &str, operation: &Operation<'_>, phase: OperationPhase) -> String {
        let known_type = self.operations.type_of(id);
        let operation_type = known_type.as_deref().unwrap_or(UNKNOWN_TYPE);
        let who = format!("operation {id} ({operation_type})");
        match phase {
            OperationPhase::Incomplete => incomplete_text(id, operation.has(Stage::Operating)),
            OperationPhase::PreChecking if operation.known_type().is_none() => incomplete_text(id, true),
            OperationPhase::PreChecking => match self.checks.pre_check(id, operation_type) {
                CheckResult::Wait(reason) => format!("{who} waits for its pre-checks: {reason}"),
                CheckResult::Pass
                    if let Some(hooks) = hooks::open_requests(self.open, HookPhase::PreCheck, Some(id)) =>
                {
                    format!("{who} waits for {hooks} to allow the start")
                }
                CheckResult::Pass if operation.has(Stage::Preparing) => {
                    format!(
                        "{who} is announced again: Podward checks it again next and keeps the pod out of service"
                    )
                }
                CheckResult::Pass => {
                    format!("{who} is announced: Podward takes the pod out of service for it next")
                }
            },
            OperationPhase::Preparing => format!("{who} {}", self.preparing()),
            OperationPhase::Operating => {
                let key = Stage::Operating.key(id);
                let doubt = self.doubt();
                format!(
                    "{who} has its permission: Podward waits until the operator has finished and removes {key}{doubt}"
                )
            }
            OperationPhase::WaitingForOthers => {
                format!("{who} is done and {}", self.waits_for(&self.others(id, |other| other.is_at_work())))
            }
            OperationPhase::PostChecking if operation.has(Stage::Rollback) => {
                format!("{who} is done and {}", self.refused(id, operation_type))
            }
            OperationPhase::PostChecking => match self.checks.post_check(id, operation_type) {
                CheckResult::Wait(reason) => format!("{who} is done and waits for its post-checks: {reason}"),
                CheckResult::Pass
                    if let Some(hooks) = hooks::open_requests(self.open, HookPhase::PostCheck, Some(id)) =>
                {
                    format!("{who} is done and waits for {hooks} to accept its result")
                }
                CheckResult::Pass => format!("{who} is done: Podward accepts its result and ends it next"),
            },
            OperationPhase::Completing => format!("{who} is done and {}", self.completing(id)),
        }
    }

    /// Returns the text about a refused result. The reasons follow with the checks and hooks.
    fn refused(&self, id: &str, operation_type: &str) -> String {
        let refusals = self.refusals.get_or_init(|| ResultRefusals::of(self.pod));
        let by: Vec<&str> = refusals.of_operation(id).map(|refusal| refusal.by).collect();
        let by = if by.is_empty() { String::new() } else { format!(" by {}", by.join(" and ")) };
        let why = match self.checks.post_check(id, operation_type) {
            CheckResult::Pass => String::new(),
            CheckResult::Wait(reason) => format!("; its post-checks say: {reason}"),
        };
        format!(
            "its result is refused{by}: the pod stays out of service until the operator begins {id} again to roll it back, \
             or cancels it, or until no check refuses the result{why}"
        )
    }

    fn preparing(&self) -> String {
        let holders = self.holders();
        match (gate_is_off(self.pod), holders.is_empty()) {
            (false, _) if let Some(hooks) = hooks::open_requests(self.open, HookPhase::Prepare, None) => {
                format!("waits for {hooks} to release the pod; {SERVICE_READY_GATE} turns False after that")
            }
            (false, true) => {
                format!("waits for {SERVICE_READY_GATE} to turn False, which Podward writes next")
            }
            (false, false) => format!(
                "waits for {SERVICE_READY_GATE} to turn False, which Podward writes next, \
                 and then for {holders} to release the pod"
            ),
            (true, false) => {
                format!("waits for {holders} to release the pod; its permission follows")
            }
            (true, true) => "gets its permission next".to_owned(),
        }
    }

    /// Returns a warning when a pod with a permission may get traffic: a consumer came back, or another writer turned
    /// the gate on.
    fn doubt(&self) -> String {
        if may_operate(self.pod) {
            return String::new();
        }
        let holders = self.holders();
        if holders.is_empty() {
            format!("; but {SERVICE_READY_GATE} is not False: the pod may get traffic")
        } else {
            format!("; but {holders} hold the pod: it may get traffic")
        }
    }

    fn completing(&self, id: &str) -> String {
        let unfinished = self.others(id, |other| other.has_started() && !other.has(Stage::Completing));
        if !unfinished.is_empty() {
            return self.waits_for(&unfinished);
        }
        let missing = self.missing.get_or_init(|| missing_consumers(self.pod));
        if missing.is_empty() {
            return match self.pod.has_expected_finalizers() {
                true => "its labels go next".to_owned(),
                false => "cannot end because the expected consumers cannot be read".to_owned(),
            };
        }
        let missing = missing.join(", ");
        let gate_is_on = !self.pod.has_gate || self.pod.gate == Some(ConditionStatus::True);
        if !gate_is_on && let Some(text) = before_gate(self.pod, self.open) {
            return text;
        }
        if self.pod.has_gate && self.pod.gate != Some(ConditionStatus::True) {
            format!(
                "waits for {SERVICE_READY_GATE} to turn True, which Podward writes next, and then for {missing} to add the pod to traffic"
            )
        } else if self.pod.ready {
            format!("waits for {missing} to add the pod to traffic")
        } else {
            format!("waits for the pod to be Ready, and then for {missing} to add it to traffic")
        }
    }

    fn others(&self, id: &str, test: fn(&Operation<'_>) -> bool) -> Vec<&str> {
        self.operations
            .iter()
            .filter(|(other, operation)| *other != id && test(operation))
            .map(|(id, _)| id)
            .collect()
    }

    fn waits_for(&self, ids: &[&str]) -> String {
        if ids.is_empty() {
            "its result is checked next".to_owned()
        } else {
            format!("waits for {} to be done", named(ids))
        }
    }
}

/// Names operations: the first ones, and the number of the others.
fn named(ids: &[&str]) -> String {
    let noun = if ids.len() == 1 { "operation" } else { "operations" };
    match ids.split_at_checked(MAX_NAMED) {
        Some((first, others)) if !others.is_empty() => {
            format!("{noun} {} and {} others", first.join(", "), others.len())
        }
        _ => format!("{noun} {}", ids.join(", ")),
    }
}

fn missing_consumers(pod: &PodView<'_>) -> Vec<String> {
    pod.expected_finalizers().map(|expected| hooks::missing_consumers(pod, &expected)).unwrap_or_default()
}
