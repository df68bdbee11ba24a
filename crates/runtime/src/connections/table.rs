//! Which connections a server keeps: a pure state machine.

use std::collections::{BTreeMap, HashMap};

use super::limits::ConnectionLimits;
use super::peer::Peer;

/// The connections of a server, each with a handle `T` by which it is closed.
///
/// A connection is *proven* when its client has shown that it may use the server: by a request with the right path or
/// with valid credentials, or by a client certificate. All others are *unproven* and have a part of the places only.
#[derive(Debug)]
pub(super) struct ConnectionTable<T> {
    limits: ConnectionLimits,
    entries: HashMap<u64, Entry<T>>,
    /// The number of the next connection, and of the next change of a connection from busy to idle.
    next: u64,
    unproven: Waiting,
    idle: Waiting,
    peers: HashMap<Peer, usize>,
}

#[derive(Debug)]
struct Entry<T> {
    peer: Peer,
    standing: Standing,
    handle: T,
}

/// The part of the table that a connection belongs to, with its place in the order of closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unproven(u64),
    Idle(u64),
    Busy,
}

/// What happens to a new connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission<T> {
    /// It is accepted under this number.
    Accepted(u64),
    /// It is accepted under this number, and the connection of the handle must be closed for it.
    Replaces(u64, T),
    /// All connections that it could replace have requests in flight.
    Refused,
}

/// The number of connections by standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionCounts {
    pub(super) unproven: usize,
    pub(super) proven: usize,
}

impl<T> ConnectionTable<T> {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        let (unproven, idle) = (Waiting::default(), Waiting::default());
        Self { limits, entries: HashMap::new(), next: 0, unproven, idle, peers: HashMap::new() }
    }

    /// Accepts a connection of `peer`, or refuses it. `handle` makes its handle from its number.
    pub(super) fn admit(&mut self, peer: Peer, handle: impl FnOnce(u64) -> T) -> Admission<T> {
        let of_peer = self.peers.get(&peer).copied().unwrap_or_default();
        let victim = if of_peer >= self.limits.per_peer {
            Some(self.unproven.oldest_of(peer).or_else(|| self.idle.oldest_of(peer)))
        } else if self.unproven.count_of(peer) >= self.limits.unproven_per_peer {
            Some(self.unproven.oldest_of(peer))
        } else if self.unproven.len() >= self.limits.unproven {
            Some(self.unproven.oldest())
        } else if self.entries.len() >= self.limits.connections {
            Some(self.unproven.oldest().or_else(|| self.oldest_idle_of_largest_peer()))
        } else {
            None
        };
        let closed = match victim {
            None => None,
            Some(None) => return Admission::Refused,
            Some(Some(victim)) => self.remove(victim),
        };
        let number = self.next();
        self.unproven.insert(peer, number, number);
        *self.peers.entry(peer).or_default() += 1;
        let entry = Entry { peer, standing: Standing::Unproven(number), handle: handle(number) };
        self.entries.insert(number, entry);
        closed.map_or(Admission::Accepted(number), |closed| Admission::Replaces(number, closed))
    }

    /// Notes that the connection is proven, with a request in flight or without. The last to become idle is the last to
    /// be replaced. Has no effect on a connection that was removed.
    pub(super) fn prove(&mut self, number: u64, busy: bool) {
        let next = self.next();
        let Some(entry) = self.entries.get_mut(&number) else { return };
        match entry.standing {
            Standing::Unproven(order) => self.unproven.remove(entry.peer, order),
            Standing::Idle(order) => self.idle.remove(entry.peer, order),
            Standing::Busy => {}
        }
        entry.standing = if busy { Standing::Busy } else { Standing::Idle(next) };
        if !busy {
            self.idle.insert(entry.peer, next, number);
        }
    }

    /// Removes a connection and returns its handle; `None` if it is not there any more.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let entry = self.entries.remove(&number)?;
        match entry.standing {
            Standing::Unproven(order) => self.unproven.remove(entry.peer, order),
            Standing::Idle(order) => self.idle.remove(entry.peer, order),
            Standing::Busy => {}
        }
        if let Some(count) = self.peers.get_mut(&entry.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&entry.peer);
            }
        }
        Some(entry.handle)
    }

    /// Removes the connection that matters least: the oldest unproven one, else an idle one. Returns its handle.
    pub(super) fn remove_least(&mut self) -> Option<T> {
        let least = self.unproven.oldest().or_else(|| self.oldest_idle_of_largest_peer())?;
        self.remove(least)
    }

    /// Returns the number of connections by standing.
    pub(super) fn counts(&self) -> ConnectionCounts {
        let unproven = self.unproven.len();
        ConnectionCounts { unproven, proven: self.entries.len() - unproven }
    }

    /// The peer with the most connections gives way, so that no peer can push out the others.
    fn oldest_idle_of_largest_peer(&self) -> Option<u64> {
        let largest = self.idle.peers().max_by_key(|peer| self.peers.get(peer))?;
        self.idle.oldest_of(largest)
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Connections in the order in which they are closed, together and for each peer.
#[derive(Debug, Default)]
struct Waiting {
    all: BTreeMap<u64, u64>,
    by_peer: HashMap<Peer, BTreeMap<u64, u64>>,
}

impl Waiting {
    fn insert(&mut self, peer: Peer, order: u64, number: u64) {
        self.all.insert(order, number);
        self.by_peer.entry(peer).or_default().insert(order, number);
    }

    fn remove(&mut self, peer: Peer, order: u64) {
        self.all.remove(&order);
        if let Some(of_peer) = self.by_peer.get_mut(&peer) {
            of_peer.remove(&order);
            if of_peer.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
    }

    fn oldest(&self) -> Option<u64> {
        self.all.first_key_value().map(|(_, &number)| number)
    }

    fn oldest_of(&self, peer: Peer) -> Option<u64> {
        self.by_peer.get(&peer)?.first_key_value().map(|(_, &number)| number)
    }

    fn count_of(&self, peer: Peer) -> usize {
        self.by_peer.get(&peer).map_or(0, BTreeMap::len)
    }

    fn peers(&self) -> impl Iterator<Item = Peer> {
        self.by_peer.keys().copied()
    }

    fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests;
