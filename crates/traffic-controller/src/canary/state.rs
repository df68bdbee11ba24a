//! What the answers of the canary prove about each node.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;

use crate::clock::after;

/// The minimum time between two writes. One write serves all pods that wait.
pub(super) const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// How long the canary is needed after the last question that needed it.
const KEEP_ASKING: Duration = Duration::from_secs(1);
/// The maximum number of writes, and of answers of a node, that are remembered.
const MAX_REMEMBERED: usize = 16;

/// The writes of this process, and the generations that the nodes have answered with.
///
/// The generations increase by each write of any process, in the order in which the API server stores the writes. A
/// kube-proxy receives all EndpointSlices in one watch, in this order. So a node whose rules lead to a generation has
/// received every change that was stored before the write of this generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct CanaryState {
    writes: VecDeque<Write>,
    nodes: HashMap<Arc<str>, VecDeque<Answer>>,
    /// The time of the last change that a question waits for.
    needed: Option<UnixNanos>,
    needed_until: Option<UnixNanos>,
    highest: u64,
}

/// A write of this process.
#[derive(Clone, Copy, Debug)]
struct Write {
    /// When it began: every change that was observed until then was stored before.
    began: UnixNanos,
    generation: u64,
}

/// An answer of a node.
#[derive(Clone, Copy, Debug)]
struct Answer {
    generation: u64,
    at: UnixNanos,
}

impl CanaryState {
    /// Records that a question waits for the nodes to receive a change that was observed at `seen`. Returns true if the
    /// canary was not needed before.
    pub(crate) fn need(&mut self, seen: UnixNanos, now: UnixNanos) -> bool {
        let is_new = !self.is_needed(now);
        self.needed = self.needed.max(Some(seen));
        self.needed_until = Some(after(now, KEEP_ASKING));
        is_new
    }

    /// Returns true while a question waits.
    pub(crate) fn is_needed(&self, now: UnixNanos) -> bool {
        self.needed_until.is_some_and(|until| now <= until)
    }

    /// Returns true if the canary must be written now.
    pub(crate) fn is_write_due(&self, now: UnixNanos) -> bool {
        let Some(needed) = self.needed.filter(|_| self.is_needed(now)) else { return false };
        self.writes.back().is_none_or(|last| last.began < needed && after(last.began, WRITE_INTERVAL) <= now)
    }

    /// Returns the generation of the next write, if the stored one is `stored`.
    pub(crate) fn next_generation(&self, stored: u64) -> u64 {
        stored.max(self.highest).saturating_add(1)
    }

    /// Records a write that began at `began` and succeeded.
    pub(crate) fn add_write(&mut self, began: UnixNanos, generation: u64) {
        self.highest = self.highest.max(generation);
        push(&mut self.writes, Write { began, generation });
    }

    /// Records that `node` led to `generation` at `at`. Returns true if that is news.
    pub(crate) fn add_answer(&mut self, node: &Arc<str>, generation: u64, at: UnixNanos) -> bool {
        self.highest = self.highest.max(generation);
        let answers = self.nodes.entry(Arc::clone(node)).or_default();
        if answers.back().is_some_and(|last| last.generation >= generation) {
            return false;
        }
        push(answers, Answer { generation, at });
        true
    }

    /// Returns true if `node` has not answered with the generation of the last write.
    pub(crate) fn is_asked(&self, node: &str) -> bool {
        let Some(last) = self.writes.back() else { return false };
        let answered = self.nodes.get(node).and_then(VecDeque::back);
        answered.is_none_or(|answer| answer.generation < last.generation)
    }

    /// Returns since when `node` is known to have received all changes that were observed until `seen`.
    pub(crate) fn received_at(&self, node: &str, seen: UnixNanos) -> Option<UnixNanos> {
        let needed = self.writes.iter().find(|write| write.began >= seen)?.generation;
        self.nodes.get(node)?.iter().find(|answer| answer.generation >= needed).map(|answer| answer.at)
    }

    /// Forgets the nodes for which `exists` returns false.
    pub(crate) fn retain_nodes(&mut self, exists: impl Fn(&str) -> bool) {
        self.nodes.retain(|node, _| exists(node));
    }
}

fn push<T>(all: &mut VecDeque<T>, one: T) {
    if all.len() >= MAX_REMEMBERED {
        all.pop_front();
    }
    all.push_back(one);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(milliseconds: i64) -> UnixNanos {
        UnixNanos(milliseconds * 1_000_000)
    }

    #[test]
    fn it_is_written_once_for_all_that_wait_and_only_while_they_wait() {
        let mut state = CanaryState::default();
        assert!(!state.is_write_due(at(0)));
        assert!(state.need(at(900), at(1000)) && !state.need(at(950), at(1000)));
        assert!(state.is_write_due(at(1000)) && !state.is_write_due(at(2001)), "nobody waits any more");
        state.add_write(at(1000), state.next_generation(7));
        assert!(!state.is_write_due(at(1000)), "it covers both");
        state.need(at(1200), at(1210));
        assert!(!state.is_write_due(at(1499)) && state.is_write_due(at(1500)), "at most two in a second");
        assert_eq!((state.next_generation(7), state.next_generation(20)), (9, 21));
    }

    #[test]
    fn a_node_is_asked_until_it_leads_to_the_last_write() {
        let node: Arc<str> = "n1".into();
        let mut state = CanaryState::default();
        assert!(!state.is_asked("n1"));
        state.add_write(at(1000), 5);
        assert!(state.is_asked("n1"));
        assert!(state.add_answer(&node, 4, at(1010)) && state.is_asked("n1"));
        assert_eq!(state.received_at("n1", at(1000)), None, "the rules are those of an earlier write");
        assert!(
            state.add_answer(&node, 6, at(1020)) && !state.is_asked("n1"),
            "that of another replica is later"
        );
        assert!(!state.add_answer(&node, 6, at(1030)));
        assert_eq!(state.received_at("n1", at(1000)), Some(at(1020)));
        assert_eq!(state.received_at("n1", at(1001)), None, "the change may be later than the write");
        state.retain_nodes(|_| false);
        assert_eq!(state.received_at("n1", at(1000)), None);
    }

    proptest! {
        /// Two processes write, and a node whose watch lags by any time answers. What the state says is true.
        #[test]
        fn what_is_received_precedes_the_answer(
            steps in prop::collection::vec((1_i64..400, 0_u8..4, 0_usize..6), 1..80),
        ) {
            // What the API server has stored, in order: the time, and the generation if it is the canary.
            let mut stored: Vec<(i64, Option<u64>)> = Vec::new();
            let (mut ours, node) = (CanaryState::default(), Arc::<str>::from("n"));
            let (mut others, mut received, mut now) = (CanaryState::default(), 0, 0);
            // For each answer: the time, and how many of the stored changes the node had received.
            let mut answers: Vec<(i64, usize)> = Vec::new();
            for (step, what, amount) in steps {
                now += step;
                let last = stored.iter().filter_map(|(_, generation)| *generation).max().unwrap_or_default();
                match what {
                    0 => stored.push((now, None)),
                    1 => {
                        let writer = if amount % 2 == 0 { &mut ours } else { &mut others };
                        let generation = writer.next_generation(last);
                        writer.add_write(at(now), generation);
                        stored.push((now, Some(generation)));
                    }
                    2 => received = (received + amount).min(stored.len()),
                    _ => {
                        let rules = stored[..received].iter().filter_map(|(_, generation)| *generation).next_back();
                        if let Some(generation) = rules {
                            ours.add_answer(&node, generation, at(now));
                            answers.push((now, received));
                        }
                    }
                }
                for (index, (time, _)) in stored.iter().enumerate() {
                    let Some(since) = ours.received_at("n", at(*time)) else { continue };
                    let (_, count) = answers.iter().find(|(time, _)| at(*time) == since).unwrap();
                    prop_assert!(*count > index, "the node had received {count} changes, not the one at {time}");
                }
            }
        }
    }
}
