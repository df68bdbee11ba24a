//! The phases that the operations of a pod went through since its last event. They are collected, so that a normal
//! operation causes one event instead of ten.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use podward_core::OperationPhase;
use podward_timeline::duration;

use podward_kube_util::EventDraft;

use super::operation_state::OperationState;

/// The history of a pod since its last event.
#[derive(Debug, Default)]
pub(super) struct PhaseHistory {
    /// By operation id.
    operations: BTreeMap<String, OperationHistory>,
    is_available: bool,
    /// The time of the first entry.
    since: Option<Instant>,
}

/// The event of a history.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HistoryEvent {
    /// The event to send now.
    Due(EventDraft),
    /// The history continues. If it still does after this time, it is reported.
    Later(Duration),
    /// There is nothing to report.
    None,
}

/// The history of one operation.
#[derive(Debug)]
struct OperationHistory {
    operation_type: String,
    steps: Vec<Step>,
}

/// A phase, or the outcome.
#[derive(Debug)]
struct Step {
    name: &'static str,
    /// How long the phase lasted, in milliseconds, if that is known.
    took: Option<u64>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.took.map_or(Ok(()), |took| write!(f, " {}", duration(took)))
    }
}

impl PhaseHistory {
    /// Adds that an operation entered the phase of `state`.
    pub(super) fn entered(&mut self, id: &str, state: &OperationState) {
        self.step(id, state, state.phase.as_str());
    }

    /// Adds that an operation left the phase of `last` at the time `at`, in nanoseconds since the Unix epoch.
    pub(super) fn left(&mut self, id: &str, last: &OperationState, at: Option<i64>) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let step = operation.steps.last_mut().filter(|step| step.name == last.phase.as_str());
        if let Some((step, (since, at))) = step.zip(last.since.zip(at)) {
            step.took = u64::try_from(at.saturating_sub(since) / 1_000_000).ok();
        }
    }

    /// Adds the end of an operation whose last state was `last`.
    pub(super) fn ended(&mut self, id: &str, last: &OperationState) {
        let outcome = match last.phase {
            OperationPhase::WaitingForOthers | OperationPhase::PostChecking | OperationPhase::Completing => {
                "Completed"
            }
            _ => "Cancelled",
        };
        self.step(id, last, outcome);
    }

    /// Adds that the pod became available.
    pub(super) fn became_available(&mut self) {
        self.is_available = true;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Returns the event and clears the history, if its first entry is older than `delay`.
    pub(super) fn take_event(&mut self, delay: Duration) -> HistoryEvent {
        let Some(since) = self.since else { return HistoryEvent::None };
        let wait = delay.saturating_sub(since.elapsed());
        if !wait.is_zero() {
            return HistoryEvent::Later(wait);
        }
        let history = std::mem::take(self);
        let mut sentences: Vec<String> = history
            .operations
            .iter()
            .map(|(id, operation)| {
                let steps: Vec<String> = operation.steps.iter().map(Step::to_string).collect();
                format!("operation {id} ({}): {}", operation.operation_type, steps.join(", "))
            })
            .collect();
        let last_step = history
            .operations
            .values()
            .filter_map(|operation| operation.steps.last().map(|step| step.name))
            .next_back();
        if history.is_available {
            sentences.push("the pod is in service".to_owned());
        }
        let reason = if history.is_available { Some("ServiceAvailable") } else { last_step };
        reason.map_or(HistoryEvent::None, |reason| {
            HistoryEvent::Due(EventDraft { reason, note: sentences.join("; ") })
        })
    }

    fn step(&mut self, id: &str, state: &OperationState, step: &'static str) {
        let operation = self.operations.entry(id.to_owned()).or_insert_with(|| OperationHistory {
            operation_type: state.operation_type.clone(),
            steps: Vec::new(),
        });
        operation.operation_type.clone_from(&state.operation_type);
        if operation.steps.last().map(|last| last.name) != Some(step) {
            operation.steps.push(Step { name: step, took: None });
        }
        self.since.get_or_insert_with(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(event: HistoryEvent) -> EventDraft {
        match event {
            HistoryEvent::Due(draft) => draft,
            other => panic!("no event: {other:?}"),
        }
    }

    fn at(phase: OperationPhase) -> OperationState {
        OperationState::at("update", phase)
    }

    #[test]
    fn a_normal_operation_causes_one_event() {
        let mut history = PhaseHistory::default();
        let delay = Duration::from_secs(60);
        for phase in [
            OperationPhase::PreChecking,
            OperationPhase::Preparing,
            OperationPhase::Operating,
            OperationPhase::PostChecking,
        ] {
            history.entered("a", &at(phase));
            history.left(
                "a",
                &OperationState { since: Some(1_000_000_000), ..at(phase) },
                Some(3_100_000_000),
            );
            assert!(matches!(history.take_event(delay), HistoryEvent::Later(_)));
        }
        history.ended("a", &at(OperationPhase::Completing));
        history.became_available();
        let event = due(history.take_event(Duration::ZERO));
        assert_eq!(event.reason, "ServiceAvailable");
        assert_eq!(
            event.note,
            "operation a (update): PreChecking 2.1 s, Preparing 2.1 s, Operating 2.1 s, PostChecking 2.1 s, Completed; the pod \
             is in service"
        );
        assert_eq!(history.take_event(Duration::ZERO), HistoryEvent::None, "reported once");
    }

    #[test]
    fn a_long_wait_is_reported_while_it_lasts() {
        let mut history = PhaseHistory::default();
        history.entered("a", &at(OperationPhase::Preparing));
        assert_eq!(due(history.take_event(Duration::ZERO)).reason, "Preparing");
    }

    #[test]
    fn a_cancelled_operation_is_reported_as_cancelled() {
        let mut history = PhaseHistory::default();
        history.ended("a", &at(OperationPhase::Preparing));
        assert_eq!(due(history.take_event(Duration::ZERO)).reason, "Cancelled");
    }
}
