//! The queue of one hook: first in, first out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::questions::circuit_breaker::{CircuitAdmission, CircuitBreaker};

/// Identifies a question within this process. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QuestionId(pub(crate) u64);

/// The state of a question in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuestionState {
    /// In line.
    Ready(u64),
    /// Not sent before this time.
    Later(Instant),
    /// The call is in flight.
    InFlight {
        /// True if the call also probes an unreachable hook.
        probe: bool,
    },
    /// Answered.
    Out,
}

/// The next step of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueTurn {
    /// Ask this one.
    Ask {
        /// The question.
        id: QuestionId,
        /// True if the call also probes an unreachable hook.
        probe: bool,
    },
    /// Probe the hook; no question waits.
    Probe,
    /// Wait until this time, or for a change.
    Wait(Option<Instant>),
}

/// The queue of one hook.
#[derive(Debug, Default)]
pub(crate) struct QuestionQueue {
    ready: BTreeMap<u64, QuestionId>,
    later: BTreeSet<(Instant, QuestionId)>,
    tickets: u64,
    /// Started calls that have not ended, including cancelled ones: the hook may still be working on them.
    in_flight: usize,
    /// The maximum number of concurrent calls.
    limit: usize,
    pub(crate) circuit: CircuitBreaker,
}

impl QuestionQueue {
    /// Resets the calls in flight and the circuit breaker. `limit` is the maximum number of concurrent calls.
    pub(crate) fn restart(&mut self, limit: usize) {
        (self.in_flight, self.limit) = (0, limit);
        self.circuit = CircuitBreaker::default();
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Appends a question.
    pub(crate) fn line_up(&mut self, id: QuestionId) -> QuestionState {
        self.tickets += 1;
        self.ready.insert(self.tickets, id);
        QuestionState::Ready(self.tickets)
    }

    /// Defers a question until `at`.
    pub(crate) fn defer(&mut self, id: QuestionId, at: Instant) -> QuestionState {
        self.later.insert((at, id));
        QuestionState::Later(at)
    }

    /// Out of the line, from `place`.
    pub(crate) fn leave(&mut self, id: QuestionId, place: QuestionState) {
        match place {
            QuestionState::Ready(ticket) => drop(self.ready.remove(&ticket)),
            QuestionState::Later(at) => drop(self.later.remove(&(at, id))),
            QuestionState::InFlight { .. } | QuestionState::Out => {}
        }
    }

    /// Removes and returns the deferred questions that are due at `now`; all of them if it is `None`.
    pub(crate) fn take_due(&mut self, now: Option<Instant>) -> Vec<QuestionId> {
        let mut due = Vec::new();
        while let Some((at, id)) = self.later.first().copied()
            && now.is_none_or(|now| at <= now)
        {
            self.later.remove(&(at, id));
            due.push(id);
        }
        due
    }

    /// Returns the queued and deferred questions.
    pub(crate) fn waiting(&self) -> Vec<QuestionId> {
        self.ready.values().copied().chain(self.later.iter().map(|(_, id)| *id)).collect()
    }

    /// Returns the next step. After a call or a probe, [`QuestionQueue::ended`] must be called.
    pub(crate) fn turn(&mut self, now: Instant) -> QueueTurn {
        let wake = self.later.first().map(|(at, _)| *at);
        if self.in_flight >= self.limit {
            return QueueTurn::Wait(None);
        }
        let idle = self.ready.is_empty();
        let probe = match self.circuit.admits(now, self.in_flight, idle) {
            CircuitAdmission::All if idle => return QueueTurn::Wait(wake),
            CircuitAdmission::All => false,
            CircuitAdmission::Probe => true,
            CircuitAdmission::NotBefore(at) => {
                return QueueTurn::Wait(Some(wake.map_or(at, |wake| wake.min(at))));
            }
            CircuitAdmission::WhenOneEnds => return QueueTurn::Wait(None),
        };
        if probe {
            self.circuit.probes(now);
        }
        self.in_flight += 1;
        match self.ready.pop_first() {
            Some((_, id)) => QueueTurn::Ask { id, probe },
            None => QueueTurn::Probe,
        }
    }

    /// A call or a probe has ended or was cancelled.
    pub(crate) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Counts a call or a probe that [`QuestionQueue::turn`] did not return.
    pub(crate) fn began(&mut self) {
        self.in_flight += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn first_in_first_out_within_the_limit() {
        let (mut queue, now) = (QuestionQueue::default(), Instant::now());
        queue.restart(2);
        let places: Vec<QuestionState> = (0..4).map(|id| queue.line_up(QuestionId(id))).collect();
        queue.leave(QuestionId(1), places[1]);
        assert_eq!(queue.turn(now), QueueTurn::Ask { id: QuestionId(0), probe: false });
        assert_eq!(queue.turn(now), QueueTurn::Ask { id: QuestionId(2), probe: false });
        assert_eq!(queue.turn(now), QueueTurn::Wait(None), "the limit");
        queue.ended();
        assert_eq!(queue.turn(now), QueueTurn::Ask { id: QuestionId(3), probe: false });
    }

    #[test]
    fn the_deferred_wait_for_their_time() {
        let (mut queue, now) = (QuestionQueue::default(), Instant::now());
        queue.restart(1);
        let at = now + Duration::from_secs(1);
        queue.defer(QuestionId(1), at);
        assert_eq!(queue.turn(now), QueueTurn::Wait(Some(at)));
        assert!(queue.take_due(Some(now)).is_empty());
        assert_eq!(queue.take_due(Some(at)), [QuestionId(1)]);
    }
}
