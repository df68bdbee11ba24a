//! Turns for work that costs much: a few at a time, and each peer in turn.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::peer::Peer;
use crate::round_robin::RoundRobin;

/// Gives turns to peers, at most some at the same time. Where several peers wait, each gets a turn before one of them
/// gets its next. So a peer with many requests delays the others by one turn only. Clones share the turns.
#[derive(Clone, Debug)]
pub(crate) struct FairTurns {
    queue: Arc<Mutex<TurnQueue>>,
}

#[derive(Debug)]
struct TurnQueue {
    free: usize,
    waiting: RoundRobin<Peer, oneshot::Sender<Turn>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<Mutex<TurnQueue>>,
}

impl FairTurns {
    /// At most `limit` turns at the same time, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        let queue = TurnQueue { free: limit.max(1), waiting: RoundRobin::default() };
        Self { queue: Arc::new(Mutex::new(queue)) }
    }

    /// Waits for a turn of `peer`. A caller that is dropped while it waits leaves the queue.
    pub(crate) async fn turn(&self, peer: Peer) -> Turn {
        let waits = {
            let mut queue = self.queue.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return Turn { queue: Arc::clone(&self.queue) };
            }
            let (sender, receiver) = oneshot::channel();
            // Callers leave in the order in which they came, by timeout, so the queue does not grow with those that left.
            queue.waiting.push(&peer, sender, oneshot::Sender::is_closed);
            receiver
        };
        match waits.await {
            Ok(turn) => turn,
            // The sender is dropped only together with the queue, which `self` keeps.
            Err(_) => std::future::pending().await,
        }
    }
}

impl TurnQueue {
    /// Returns the caller that is next.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some((_, next)) = self.waiting.pop(|_| true) {
            if !next.is_closed() {
                return Some(next);
            }
        }
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        let Some(next) = queue.next() else {
            queue.free += 1;
            return;
        };
        drop(queue);
        // If the caller has just left, the turn comes back and is dropped here, so that the next one gets it.
        drop(next.send(Turn { queue: Arc::clone(&self.queue) }));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::from(IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test]
    async fn a_peer_with_many_requests_delays_another_one_by_one_turn() {
        let turns = FairTurns::new(1);
        let held = turns.turn(peer(9)).await;
        let mut flood: Vec<_> = (0..100).map(|_| Box::pin(turns.turn(peer(1)))).collect();
        for waits in &mut flood {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        let mut other = Box::pin(turns.turn(peer(2)));
        assert!(other.as_mut().now_or_never().is_none());
        drop(held);
        let first = flood[0].as_mut().now_or_never().unwrap();
        drop(first);
        assert!(other.now_or_never().is_some());
    }

    #[tokio::test]
    async fn callers_that_leave_do_not_take_turns() {
        let turns = FairTurns::new(2);
        let (one, two) = (turns.turn(peer(1)).await, turns.turn(peer(1)).await);
        let mut leaves = Box::pin(turns.turn(peer(1)));
        assert!(leaves.as_mut().now_or_never().is_none());
        let mut gets = Box::pin(turns.turn(peer(1)));
        assert!(gets.as_mut().now_or_never().is_none());
        drop(leaves);
        drop(one);
        assert!(gets.now_or_never().is_some());
        drop(two);
        assert_eq!(turns.queue.lock().free, 2);
        assert!(turns.queue.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn a_turn_that_nobody_takes_goes_to_the_next() {
        let turns = FairTurns::new(1);
        let held = turns.turn(peer(1)).await;
        let mut first = Box::pin(turns.turn(peer(1)));
        let mut second = Box::pin(turns.turn(peer(1)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(held);
        // The first has its turn in its channel, and leaves without taking it.
        drop(first);
        assert!(second.now_or_never().is_some());
    }
}
