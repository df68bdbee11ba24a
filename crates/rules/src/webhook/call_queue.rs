//! Which of the waiting calls may start next. It has no clock and no I/O.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::ops::Bound;

/// A limit of calls in flight. Namespaces share the first calls freely. The rest is for namespaces without a call, so
/// that the slow calls of some do not keep the others waiting.
#[derive(Clone, Copy, Debug)]
struct SharedLimit {
    shared: usize,
    max: usize,
}

impl SharedLimit {
    /// Returns true if a namespace with `own` of the `all` calls in flight may start another one.
    fn has_room(self, all: usize, own: usize) -> bool {
        all < self.shared || (own == 0 && all < self.max)
    }
}

/// Calls in flight to all servers. The answer of each may take a megabyte.
const ALL: SharedLimit = SharedLimit { shared: 48, max: 64 };
/// Calls in flight to one server. Any namespace may name the server of another one in its rules.
const SERVER: SharedLimit = SharedLimit { shared: 8, max: 16 };
/// Calls in flight of one namespace.
const MAX_PER_NAMESPACE: usize = 8;
/// Calls in flight of one namespace to one server. A slow server leaves the namespace's other rules some room.
const MAX_PER_NAMESPACE_AND_SERVER: usize = 4;

/// The host and the port of a server.
pub(super) type Server = (String, u16);

/// Where a call comes from and goes to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CallPlace {
    /// The namespace of the rule.
    pub(super) namespace: String,
    /// The server of the webhook.
    pub(super) server: Server,
}

/// The calls that wait, and the number of those in flight. Its size is limited by that of its users: a rule makes one
/// call and some polls at a time.
#[derive(Debug)]
pub(super) struct CallQueue<W> {
    waiting: BTreeMap<String, NamespaceQueue<W>>,
    waiting_calls: usize,
    /// The namespace that started the last call. The others are next.
    last: String,
    in_flight: usize,
    of_namespace: HashMap<String, usize>,
    of_server: HashMap<Server, usize>,
    of_place: HashMap<CallPlace, usize>,
}

/// The calls of one namespace that wait, by server.
#[derive(Debug)]
struct NamespaceQueue<W> {
    servers: BTreeMap<Server, VecDeque<(u64, W)>>,
    /// The server of the last call that was started.
    last: Server,
}

impl<W> Default for CallQueue<W> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            waiting_calls: 0,
            last: String::new(),
            in_flight: 0,
            of_namespace: HashMap::new(),
            of_server: HashMap::new(),
            of_place: HashMap::new(),
        }
    }
}

impl<W> CallQueue<W> {
    /// Adds a call. `id` is unique.
    pub(super) fn push(&mut self, place: &CallPlace, id: u64, waiter: W) {
        let queue = self
            .waiting
            .entry(place.namespace.clone())
            .or_insert_with(|| NamespaceQueue { servers: BTreeMap::new(), last: Server::default() });
        queue.servers.entry(place.server.clone()).or_default().push_back((id, waiter));
        self.waiting_calls += 1;
    }

    /// Removes a call that is not wanted any more. Does nothing if it was started.
    pub(super) fn remove(&mut self, place: &CallPlace, id: u64) {
        let Some(queue) = self.waiting.get_mut(&place.namespace) else { return };
        let Some(calls) = queue.servers.get_mut(&place.server) else { return };
        let before = calls.len();
        calls.retain(|(other, _)| *other != id);
        self.waiting_calls -= before - calls.len();
        self.forget_if_empty(place);
    }

    /// Starts the next call, if one may start: namespaces take turns, and so do the servers of a namespace.
    pub(super) fn start_next(&mut self) -> Option<(CallPlace, W)> {
        if self.in_flight >= ALL.max {
            return None;
        }
        let place = after(&self.waiting, &self.last).find_map(|(namespace, queue)| {
            let own = self.of_namespace.get(namespace).copied().unwrap_or_default();
            if own >= MAX_PER_NAMESPACE || !ALL.has_room(self.in_flight, own) {
                return None;
            }
            after(&queue.servers, &queue.last)
                .map(|(server, _)| CallPlace { namespace: namespace.clone(), server: server.clone() })
                .find(|place| self.server_has_room(place))
        })?;
        let queue = self.waiting.get_mut(&place.namespace)?;
        queue.last = place.server.clone();
        let (_, waiter) = queue.servers.get_mut(&place.server)?.pop_front()?;
        self.last = place.namespace.clone();
        self.waiting_calls -= 1;
        self.forget_if_empty(&place);
        self.in_flight += 1;
        *self.of_namespace.entry(place.namespace.clone()).or_default() += 1;
        *self.of_server.entry(place.server.clone()).or_default() += 1;
        *self.of_place.entry(place.clone()).or_default() += 1;
        Some((place, waiter))
    }

    /// Notes the end of a call.
    pub(super) fn ended(&mut self, place: &CallPlace) {
        self.in_flight = self.in_flight.saturating_sub(1);
        count_down(&mut self.of_namespace, &place.namespace);
        count_down(&mut self.of_server, &place.server);
        count_down(&mut self.of_place, place);
    }

    /// Returns the number of calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting_calls
    }

    /// Returns the number of calls in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn server_has_room(&self, place: &CallPlace) -> bool {
        let own = self.of_place.get(place).copied().unwrap_or_default();
        let all = self.of_server.get(&place.server).copied().unwrap_or_default();
        own < MAX_PER_NAMESPACE_AND_SERVER && SERVER.has_room(all, own)
    }

    fn forget_if_empty(&mut self, place: &CallPlace) {
        let Some(queue) = self.waiting.get_mut(&place.namespace) else { return };
        if queue.servers.get(&place.server).is_some_and(VecDeque::is_empty) {
            queue.servers.remove(&place.server);
        }
        if queue.servers.is_empty() {
            self.waiting.remove(&place.namespace);
        }
    }
}

/// Returns all entries, beginning after `key`.
fn after<'a, K: Ord, V>(map: &'a BTreeMap<K, V>, key: &'a K) -> impl Iterator<Item = (&'a K, &'a V)> {
    map.range((Bound::Excluded(key), Bound::Unbounded)).chain(map.range(..=key))
}

fn count_down<K: Eq + Hash + Clone>(counts: &mut HashMap<K, usize>, key: &K) {
    match counts.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(key)),
    }
}
