//! The questions that wait for one hook: first in, first out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::circuit::{Admission, Circuit};

/// Names a question within this process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QuestionId(pub(super) u64);

/// Where a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In line.
    Ready(u64),
    /// Not to be asked before then.
    Later(Instant),
    /// Being asked.
    InFlight {
        /// Whether it also finds out if the hook is back.
        probe: bool,
    },
    /// Answered.
    Out,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Ask this one.
    Ask {
        /// The question.
        id: QuestionId,
        /// Whether it also finds out if the hook is back.
        probe: bool,
    },
    /// No question waits, but find out whether the hook is back.
    Probe,
    /// Nothing before then, or before something changes.
    Wait(Option<Instant>),
}

/// The queue of one hook.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: BTreeMap<u64, QuestionId>,
    later: BTreeSet<(Instant, QuestionId)>,
    tickets: u64,
    /// Calls that have begun and not ended, cancelled ones among them: the hook may still be at work on those.
    in_flight: usize,
    /// How many the hook takes at the same time.
    limit: usize,
    pub(super) circuit: Circuit,
}

impl Queue {
    /// Nothing is in flight (any more), and so many calls may be.
    pub(super) fn restart(&mut self, limit: usize) {
        (self.in_flight, self.limit) = (0, limit);
        self.circuit = Circuit::default();
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// To the end of the line.
    pub(super) fn line_up(&mut self, id: QuestionId) -> Place {
        self.tickets += 1;
        self.ready.insert(self.tickets, id);
        Place::Ready(self.tickets)
    }

    /// To be asked then.
    pub(super) fn defer(&mut self, id: QuestionId, at: Instant) -> Place {
        self.later.insert((at, id));
        Place::Later(at)
    }

    /// Out of the line, from `place`.
    pub(super) fn leave(&mut self, id: QuestionId, place: Place) {
        match place {
            Place::Ready(ticket) => drop(self.ready.remove(&ticket)),
            Place::Later(at) => drop(self.later.remove(&(at, id))),
            Place::InFlight { .. } | Place::Out => {}
        }
    }

    /// Takes out those whose time has come; all of them if there is no time given.
    pub(super) fn take_due(&mut self, now: Option<Instant>) -> Vec<QuestionId> {
        let mut due = Vec::new();
        while let Some((at, id)) = self.later.first().copied()
            && now.is_none_or(|now| at <= now)
        {
            self.later.remove(&(at, id));
            due.push(id);
        }
        due
    }

    /// Those that wait.
    pub(super) fn waiting(&self) -> Vec<QuestionId> {
        self.ready.values().copied().chain(self.later.iter().map(|(_, id)| *id)).collect()
    }

    /// Takes the next turn. Whoever is told to ask or probe does so, and says [`Queue::ended`] then.
    pub(super) fn turn(&mut self, now: Instant) -> Turn {
        let wake = self.later.first().map(|(at, _)| *at);
        if self.in_flight >= self.limit {
            return Turn::Wait(None);
        }
        let idle = self.ready.is_empty();
        let probe = match self.circuit.admits(now, self.in_flight, idle) {
            Admission::All if idle => return Turn::Wait(wake),
            Admission::All => false,
            Admission::Probe => true,
            Admission::NotBefore(at) => return Turn::Wait(Some(wake.map_or(at, |wake| wake.min(at)))),
            Admission::WhenOneEnds => return Turn::Wait(None),
        };
        if probe {
            self.circuit.probes(now);
        }
        self.in_flight += 1;
        match self.ready.pop_first() {
            Some((_, id)) => Turn::Ask { id, probe },
            None => Turn::Probe,
        }
    }

    /// A call or probe has ended, in whatever way.
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// A call or probe begins without a turn.
    pub(super) fn began(&mut self) {
        self.in_flight += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn first_in_first_out_within_the_limit() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.restart(2);
        let places: Vec<Place> = (0..4).map(|id| queue.line_up(QuestionId(id))).collect();
        queue.leave(QuestionId(1), places[1]);
        assert_eq!(queue.turn(now), Turn::Ask { id: QuestionId(0), probe: false });
        assert_eq!(queue.turn(now), Turn::Ask { id: QuestionId(2), probe: false });
        assert_eq!(queue.turn(now), Turn::Wait(None), "the limit");
        queue.ended();
        assert_eq!(queue.turn(now), Turn::Ask { id: QuestionId(3), probe: false });
    }

    #[test]
    fn the_deferred_wait_for_their_time() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.restart(1);
        let at = now + Duration::from_secs(1);
        queue.defer(QuestionId(1), at);
        assert_eq!(queue.turn(now), Turn::Wait(Some(at)));
        assert!(queue.take_due(Some(now)).is_empty());
        assert_eq!(queue.take_due(Some(at)), [QuestionId(1)]);
    }
}
