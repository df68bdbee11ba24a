//! Whether a hook may be called, by how its latest calls went.

use std::time::{Duration, Instant};

use super::response::{Failure, FailureKind};

/// So many calls in a row may fail before the hook is taken for unreachable. The same number lets a pod go on without a hook
/// whose failure policy is Ignore.
pub(super) const TOLERATED: u32 = 3;
/// So many calls in a row may fail in any way, before it is thought that more than those questions are at fault.
const TOLERATED_OF_ANY_KIND: u32 = 10;
/// Calls at the same time while it is unreachable: more than one, as one may hang for as long as calls may take.
const PROBES: usize = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two probes while pods wait for the hook.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The same while nobody does.
const LONGEST_IDLE_PAUSE: Duration = Duration::from_secs(30);

/// Closed while the hook is reached. While it is broken only a few probes go out, ever more seldom, so that thousands of pods that
/// wait for a dead hook cost it, and us, next to nothing.
#[derive(Debug, Default)]
pub(super) struct Circuit {
    unreachable_in_a_row: u32,
    failed_in_a_row: u32,
    broken: Option<Broken>,
}

#[derive(Debug)]
struct Broken {
    error: String,
    kind: FailureKind,
    /// Probes that have failed.
    rounds: u32,
    /// When the next probe may go out, if a question waits.
    next: Instant,
    /// The same, if none does.
    idle_next: Instant,
}

/// Whether a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// As many as the hook takes.
    All,
    /// One, to see whether the hook is back.
    Probe,
    /// None before then.
    NotBefore(Instant),
    /// None before one of those in flight has ended.
    WhenOneEnds,
}

impl Circuit {
    /// Why the hook counts as unreachable, if it does.
    pub(super) fn error(&self) -> Option<&str> {
        self.broken.as_ref().map(|broken| broken.error.as_str())
    }

    /// Whether so many attempts in a row have failed that a pod may go on without the hook, if its failure policy says so.
    pub(super) fn is_given_up(&self) -> bool {
        self.broken.is_some() && self.failed_in_a_row >= TOLERATED
    }

    /// The hook has answered. Gives whether that is new.
    pub(super) fn answered(&mut self) -> bool {
        (self.unreachable_in_a_row, self.failed_in_a_row) = (0, 0);
        self.broken.take().is_some()
    }

    /// A connection was made, nothing asked. That mends what a missing connection broke. Gives whether it did.
    pub(super) fn connected(&mut self) -> bool {
        match &self.broken {
            Some(broken) if broken.kind == FailureKind::Connection => self.answered(),
            _ => false,
        }
    }

    /// A call has failed. Gives whether the hook counts as unreachable from now on, and did not before.
    pub(super) fn failed(&mut self, was_probe: bool, failure: &Failure, now: Instant) -> bool {
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        self.unreachable_in_a_row = match failure.kind {
            FailureKind::Question => 0,
            FailureKind::Connection | FailureKind::Answer => self.unreachable_in_a_row.saturating_add(1),
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
                let is_broken =
                    self.unreachable_in_a_row >= TOLERATED || self.failed_in_a_row >= TOLERATED_OF_ANY_KIND;
                is_broken && self.break_now(failure, now)
            }
        }
    }

    /// It is certain that the hook can't be reached. Gives whether that is new.
    pub(super) fn break_now(&mut self, failure: &Failure, now: Instant) -> bool {
        if let Some(broken) = &mut self.broken {
            broken.because(failure);
            return false;
        }
        let (error, kind) = (failure.text.clone(), failure.kind);
        let mut broken = Broken { error, kind, rounds: 0, next: now, idle_next: now };
        broken.plan(now);
        self.broken = Some(broken);
        true
    }

    /// Whether a call may be made now, with so many in flight; `idle` says that no question waits, so that it would only be made
    /// to see whether the hook is back.
    pub(super) fn admits(&self, now: Instant, in_flight: usize, idle: bool) -> Admission {
        let Some(broken) = &self.broken else { return Admission::All };
        let next = if idle { broken.idle_next } else { broken.next };
        if in_flight >= PROBES {
            Admission::WhenOneEnds
        } else if next > now {
            Admission::NotBefore(next)
        } else {
            Admission::Probe
        }
    }

    /// A probe goes out: the next one is a pause away, whatever becomes of this one.
    pub(super) fn probes(&mut self, now: Instant) {
        if let Some(broken) = &mut self.broken {
            broken.plan(now);
        }
    }
}

impl Broken {
    fn because(&mut self, failure: &Failure) {
        failure.text.clone_into(&mut self.error);
        self.kind = failure.kind;
    }

    fn plan(&mut self, now: Instant) {
        let jitter = 0.5 + fastrand::f64();
        let pause = FIRST_PAUSE.saturating_mul(1 << self.rounds.min(10));
        self.next = now + pause.min(LONGEST_PAUSE).mul_f64(jitter);
        self.idle_next = now + pause.min(LONGEST_IDLE_PAUSE).mul_f64(jitter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Failure {
        Failure::connection("refused")
    }

    #[test]
    fn three_failures_in_a_row_break_it_and_one_answer_mends_it() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        assert!(!circuit.failed(false, &refused(), now) && !circuit.failed(false, &refused(), now));
        assert!(!circuit.answered());
        assert!(!circuit.failed(false, &refused(), now) && !circuit.failed(false, &refused(), now));
        assert_eq!(circuit.admits(now, 60, false), Admission::All);
        assert!(circuit.failed(false, &refused(), now), "the third in a row");
        assert!(!circuit.failed(false, &Failure::answer("reset"), now), "known already");
        assert_eq!(circuit.error(), Some("reset"));
        assert!(matches!(circuit.admits(now, 0, false), Admission::NotBefore(at) if at > now));
        assert!(circuit.is_given_up() && !circuit.connected(), "a connection is not what was missing");
        assert!(circuit.answered());
        assert_eq!((circuit.admits(now, 0, false), circuit.is_given_up()), (Admission::All, false));
    }

    #[test]
    fn a_few_bad_questions_do_not_break_it_but_nothing_else_than_failures_does() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        let bad = Failure::question("INTERNAL");
        for _ in 0..5 {
            for _ in 1..TOLERATED_OF_ANY_KIND {
                assert!(!circuit.failed(false, &bad, now));
            }
            circuit.answered();
        }
        for _ in 1..TOLERATED_OF_ANY_KIND {
            assert!(!circuit.failed(false, &bad, now));
        }
        assert!(circuit.failed(false, &bad, now));
    }

    #[test]
    fn probes_become_ever_more_seldom() {
        let (mut circuit, mut now) = (Circuit::default(), Instant::now());
        circuit.break_now(&refused(), now);
        for round in 0..20 {
            let Admission::NotBefore(next) = circuit.admits(now, 0, false) else { panic!("round {round}") };
            let pause = next - now;
            let expected = FIRST_PAUSE.saturating_mul(1 << round.min(10)).min(LONGEST_PAUSE);
            assert!(pause >= expected / 2 && pause <= expected * 3 / 2, "round {round}: {pause:?}");
            now = next;
            assert_eq!(circuit.admits(now, 0, false), Admission::Probe);
            circuit.probes(now);
            assert!(matches!(circuit.admits(now, 1, false), Admission::NotBefore(_)), "one at a time");
            assert_eq!(circuit.admits(now, PROBES, false), Admission::WhenOneEnds);
            circuit.failed(true, &refused(), now);
        }
        let Admission::NotBefore(idle) = circuit.admits(now, 0, true) else { panic!("idle") };
        assert!(idle - now >= LONGEST_IDLE_PAUSE / 2, "still more seldom when nobody waits");
        assert!(circuit.connected());
    }

    #[test]
    fn calls_from_before_the_break_do_not_lengthen_the_pause() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for _ in 0..64 {
            circuit.failed(false, &refused(), now);
        }
        let Admission::NotBefore(next) = circuit.admits(now, 0, false) else { panic!("broken") };
        assert!(next - now <= FIRST_PAUSE * 3 / 2);
    }
}
