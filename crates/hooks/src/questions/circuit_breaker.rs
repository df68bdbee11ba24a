//! Decides if a hook may be called, from the results of its latest calls.

use std::time::Instant;

use podward_runtime::retry::{IDLE_PEER, PEER, delay_after};

use crate::questions::failure::{CallFailure, CallFailureKind};

/// The number of failed calls in a row after which a hook is unreachable. After as many, a pod continues without a hook
/// whose failure policy is Ignore.
pub(crate) const MAX_FAILURES: u32 = 3;
/// The same for failures of any kind. More than the questions must be at fault then.
const MAX_FAILURES_OF_ANY_KIND: u32 = 10;
/// The maximum number of concurrent probes: more than one, as one may take the whole timeout of a call.
const MAX_PROBES: usize = 3;

/// Closed while the hook is reachable. While it is open, only a few probes are sent, with increasing delays, so that
/// thousands of pods that wait for a dead hook cause almost no load.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    unreachable_in_a_row: u32,
    failed_in_a_row: u32,
    broken: Option<OpenCircuit>,
}

#[derive(Debug)]
struct OpenCircuit {
    error: String,
    kind: CallFailureKind,
    /// The number of failed probes.
    rounds: u32,
    /// The time of the next probe if a question waits.
    next: Instant,
    /// The time of the next probe if no question waits.
    idle_next: Instant,
}

/// The decision of the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitAdmission {
    /// Calls are allowed.
    All,
    /// One probe is allowed.
    Probe,
    /// No call before this time.
    NotBefore(Instant),
    /// No call before a call in flight has ended.
    WhenOneEnds,
}

impl CircuitBreaker {
    /// Returns the reason why the hook is unreachable; `None` if it is reachable.
    pub(crate) fn error(&self) -> Option<&str> {
        self.broken.as_ref().map(|broken| broken.error.as_str())
    }

    /// True if enough attempts in a row have failed for a pod to continue without a hook whose failure policy is
    /// Ignore.
    pub(crate) fn is_given_up(&self) -> bool {
        self.broken.is_some() && self.failed_in_a_row >= MAX_FAILURES
    }

    /// The hook has answered. Returns true if it was unreachable before.
    pub(crate) fn answered(&mut self) -> bool {
        (self.unreachable_in_a_row, self.failed_in_a_row) = (0, 0);
        self.broken.take().is_some()
    }

    /// A connection was made without a call. Closes the circuit breaker if a missing connection opened it, and returns
    /// true then.
    pub(crate) fn connected(&mut self) -> bool {
        match self.broken.as_ref().map(|broken| broken.kind) {
            Some(CallFailureKind::Attaching | CallFailureKind::Connection) => self.answered(),
            _ => false,
        }
    }

    /// The hook has answered a check that is no question. Closes the circuit breaker and returns true if it was open,
    /// unless the hook has refused calls: only a question shows whether it still does.
    pub(crate) fn checked(&mut self) -> bool {
        match self.broken.as_ref().map(|broken| broken.kind) {
            Some(CallFailureKind::Refused) | None => false,
            Some(_) => self.answered(),
        }
    }

    /// A call has failed. Returns true if the hook has become unreachable.
    pub(crate) fn failed(&mut self, was_probe: bool, failure: &CallFailure, now: Instant) -> bool {
        if failure.kind != CallFailureKind::Attaching {
            self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        }
        self.unreachable_in_a_row = match failure.kind {
            CallFailureKind::Question => 0,
            CallFailureKind::Attaching => self.unreachable_in_a_row,
            CallFailureKind::Connection | CallFailureKind::Answer | CallFailureKind::Refused => {
                self.unreachable_in_a_row.saturating_add(1)
            }
        };
        match &mut self.broken {
            Some(broken) => {
                broken.because(failure);
                if was_probe {
                    broken.rounds = broken.rounds.saturating_add(1);
                    broken.plan(now);
                }
                false
            }
            None => {
                let is_broken = self.unreachable_in_a_row >= MAX_FAILURES
                    || self.failed_in_a_row >= MAX_FAILURES_OF_ANY_KIND;
                is_broken && self.break_now(failure, now)
            }
        }
    }

    /// Opens the circuit breaker at once. Returns true if it was closed.
    pub(crate) fn break_now(&mut self, failure: &CallFailure, now: Instant) -> bool {
        if let Some(broken) = &mut self.broken {
            broken.because(failure);
            return false;
        }
        let (error, kind) = (failure.text.clone(), failure.kind);
        let mut broken = OpenCircuit { error, kind, rounds: 0, next: now, idle_next: now };
        broken.plan(now);
        self.broken = Some(broken);
        true
    }

    /// Decides if a call may be made now, with `in_flight` open calls. `idle` is true if no question waits: the call
    /// would then only probe the hook.
    pub(crate) fn admits(&self, now: Instant, in_flight: usize, idle: bool) -> CircuitAdmission {
        let Some(broken) = &self.broken else { return CircuitAdmission::All };
        let next = if idle { broken.idle_next } else { broken.next };
        if in_flight >= MAX_PROBES {
            CircuitAdmission::WhenOneEnds
        } else if next > now {
            CircuitAdmission::NotBefore(next)
        } else {
            CircuitAdmission::Probe
        }
    }

    /// A probe was sent. The next one is delayed, regardless of the result.
    pub(crate) fn probes(&mut self, now: Instant) {
        if let Some(broken) = &mut self.broken {
            broken.plan(now);
        }
    }
}

impl OpenCircuit {
    fn because(&mut self, failure: &CallFailure) {
        failure.text.clone_into(&mut self.error);
        self.kind = failure.kind;
    }

    fn plan(&mut self, now: Instant) {
        let failures = self.rounds.saturating_add(1);
        self.next = now + delay_after(PEER, failures);
        self.idle_next = now + delay_after(IDLE_PEER, failures);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FIRST_PAUSE: Duration = Duration::from_millis(250);
    const LONGEST_PAUSE: Duration = Duration::from_secs(5);
    const LONGEST_IDLE_PAUSE: Duration = Duration::from_secs(30);

    fn refused() -> CallFailure {
        CallFailure::connection("refused")
    }

    #[test]
    fn three_failures_in_a_row_break_it_and_one_answer_closes_it() {
        let (mut circuit, now) = (CircuitBreaker::default(), Instant::now());
        assert!(!circuit.failed(false, &refused(), now) && !circuit.failed(false, &refused(), now));
        assert!(!circuit.answered());
        assert!(!circuit.failed(false, &refused(), now) && !circuit.failed(false, &refused(), now));
        assert_eq!(circuit.admits(now, 60, false), CircuitAdmission::All);
        assert!(circuit.failed(false, &refused(), now), "the third in a row");
        assert!(!circuit.failed(false, &CallFailure::answer("reset"), now), "known already");
        assert_eq!(circuit.error(), Some("reset"));
        assert!(matches!(circuit.admits(now, 0, false), CircuitAdmission::NotBefore(at) if at > now));
        assert!(circuit.is_given_up() && !circuit.connected(), "a connection is not what was missing");
        assert!(circuit.answered());
        assert_eq!((circuit.admits(now, 0, false), circuit.is_given_up()), (CircuitAdmission::All, false));
    }

    #[test]
    fn only_an_answer_closes_it_after_a_refusal() {
        let (mut circuit, now) = (CircuitBreaker::default(), Instant::now());
        for failure in [CallFailure::answer("timeout"), CallFailure::refused("who are you?")] {
            let is_refused = failure.kind == CallFailureKind::Refused;
            for _ in 0..MAX_FAILURES {
                circuit.failed(false, &failure, now);
            }
            assert_eq!(circuit.error(), Some(failure.text.as_str()));
            assert!(!circuit.connected());
            assert_eq!(circuit.checked(), !is_refused, "{failure:?}");
            assert_eq!(circuit.answered(), is_refused);
        }
    }

    #[test]
    fn a_few_bad_questions_do_not_break_it_but_nothing_else_than_failures_does() {
        let (mut circuit, now) = (CircuitBreaker::default(), Instant::now());
        let bad = CallFailure::question("INTERNAL");
        for _ in 0..5 {
            for _ in 1..MAX_FAILURES_OF_ANY_KIND {
                assert!(!circuit.failed(false, &bad, now));
            }
            circuit.answered();
        }
        for _ in 1..MAX_FAILURES_OF_ANY_KIND {
            assert!(!circuit.failed(false, &bad, now));
        }
        assert!(circuit.failed(false, &bad, now));
    }

    #[test]
    fn probes_become_ever_more_seldom() {
        let (mut circuit, mut now) = (CircuitBreaker::default(), Instant::now());
        circuit.break_now(&refused(), now);
        for round in 0..20 {
            let CircuitAdmission::NotBefore(next) = circuit.admits(now, 0, false) else {
                panic!("round {round}")
            };
            let pause = next - now;
            let expected = FIRST_PAUSE.saturating_mul(1 << round.min(10)).min(LONGEST_PAUSE);
            assert!(pause >= expected / 2 && pause <= expected * 3 / 2, "round {round}: {pause:?}");
            now = next;
            assert_eq!(circuit.admits(now, 0, false), CircuitAdmission::Probe);
            circuit.probes(now);
            assert!(matches!(circuit.admits(now, 1, false), CircuitAdmission::NotBefore(_)), "one at a time");
            assert_eq!(circuit.admits(now, MAX_PROBES, false), CircuitAdmission::WhenOneEnds);
            circuit.failed(true, &refused(), now);
        }
        let CircuitAdmission::NotBefore(idle) = circuit.admits(now, 0, true) else { panic!("idle") };
        assert!(idle - now >= LONGEST_IDLE_PAUSE / 2, "still rarer when no question waits");
        assert!(circuit.connected());
    }

    #[test]
    fn calls_from_before_the_break_do_not_lengthen_the_pause() {
        let (mut circuit, now) = (CircuitBreaker::default(), Instant::now());
        for _ in 0..64 {
            circuit.failed(false, &refused(), now);
        }
        let CircuitAdmission::NotBefore(next) = circuit.admits(now, 0, false) else { panic!("broken") };
        assert!(next - now <= FIRST_PAUSE * 3 / 2);
    }
}
