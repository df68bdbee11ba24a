//! What the API server says of EndpointSlices, Services and nodes: only what the questions are answered from.
//!
//! Endpoints are indexed by the pod that they name, so that a question costs the same however large the cluster is.

mod facts;
mod node;
mod object;
mod service;
mod slice;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use podward_core::UnixNanos;

pub(crate) use facts::{Facts, Others, PodId, ServiceFacts};
pub(crate) use node::{Node, NodeObject};
pub(crate) use object::{Key, Slim};
pub(crate) use service::{Service, ServiceKind, ServiceObject};
pub(crate) use slice::{Carrier, Family, Owner, Slice, SliceObject};

use crate::clock::before;

/// How long it is remembered when an endpoint was last changed that is in no slice any more.
const MEMORY: std::time::Duration = std::time::Duration::from_secs(600);

/// When an endpoint last changed, as far as it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// When it was seen here: it was so in the API server by then.
    pub(crate) seen: UnixNanos,
    /// A proxy that has had nothing to do since then can't have heard of it. `None` when that can't be told.
    pub(crate) not_before: Option<UnixNanos>,
}

/// How a slice came.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// By the watch, so it has just changed.
    Watched,
    /// In a list: it may have changed long ago; at this time, if it says so
    /// (annotation `endpoints.kubernetes.io/last-change-trigger-time`).
    Listed(Option<UnixNanos>),
}

impl Origin {
    fn change(self, now: UnixNanos) -> Change {
        // Two watches of the same server are not that far apart; nor are the clocks of a cluster.
        const APART: std::time::Duration = std::time::Duration::from_secs(1);
        const CLOCKS: std::time::Duration = std::time::Duration::from_secs(10);
        let not_before = match self {
            Origin::Watched => Some(before(now, APART)),
            Origin::Listed(trigger) => trigger.map(|time| before(time, CLOCKS)),
        };
        Change { seen: now, not_before }
    }
}

/// A pod, by its endpoints.
#[derive(Debug, Default)]
struct Indexed {
    slices: Vec<Arc<Key>>,
    changed: [Option<Change>; Family::COUNT],
    /// When it last changed in a slice that doesn't name it any more.
    left: [Option<Change>; Carrier::COUNT],
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct World {
    slices: HashMap<Arc<Key>, Slice>,
    owners: HashMap<Owner, Indexed>,
    by_service: HashMap<Key, HashSet<Arc<Key>>>,
    services: HashMap<Arc<str>, HashMap<Arc<str>, Service>>,
    nodes: HashMap<Arc<str>, Node>,
    filled: Option<UnixNanos>,
}

impl World {
    /// All slices were listed for the first time at `now`.
    pub(crate) fn slices_are_known(&mut self, now: UnixNanos) {
        self.filled.get_or_insert(now);
    }

    /// A slice is so now. Tells whether that is news to anybody.
    pub(crate) fn put_slice(&mut self, key: Key, slice: Slice, origin: Origin, now: UnixNanos) -> bool {
        if self.slices.get(&key) == Some(&slice) {
            return false;
        }
        let id = match self.slices.get_key_value(&key) {
            Some((id, _)) => Arc::clone(id),
            None => Arc::new(key),
        };
        let change = origin.change(now);
        let old = self.slices.remove(&id);
        self.move_owners(&id, old.as_ref(), Some(&slice), change);
        let service = |slice: &Slice| Some(Key::new(&id.namespace, slice.service.as_deref()?));
        if old.as_ref().and_then(service) != service(&slice) {
            old.as_ref().and_then(service).inspect(|service| self.unlink(service, &id));
            if let Some(service) = service(&slice) {
                self.by_service.entry(service).or_default().insert(Arc::clone(&id));
            }
        }
        self.slices.insert(id, slice);
        true
    }

    /// A slice is gone.
    pub(crate) fn remove_slice(&mut self, key: &Key, origin: Origin, now: UnixNanos) {
        let Some((id, slice)) = self.slices.remove_entry(key) else { return };
        self.move_owners(&id, Some(&slice), None, origin.change(now));
        if let Some(service) = slice.service.as_deref() {
            self.unlink(&Key::new(&id.namespace, service), &id);
        }
    }

    /// Removes the slices that are not among `listed`.
    pub(crate) fn keep_slices(&mut self, listed: &HashSet<Key>, now: UnixNanos) {
        let gone: Vec<Key> =
            self.slices.keys().filter(|id| !listed.contains(&***id)).map(|id| (**id).clone()).collect();
        for key in gone {
            self.remove_slice(&key, Origin::Listed(None), now);
        }
    }

    fn unlink(&mut self, service: &Key, id: &Arc<Key>) {
        if let Some(slices) = self.by_service.get_mut(service) {
            slices.remove(id);
            if slices.is_empty() {
                self.by_service.remove(service);
            }
        }
    }

    /// Brings the index from `old` to `new`. What changes for the traffic of an owner is noted with `change`.
    fn move_owners(&mut self, id: &Arc<Key>, old: Option<&Slice>, new: Option<&Slice>, change: Change) {
        fn states(slice: Option<&Slice>) -> HashMap<&Owner, (bool, bool)> {
            let mut states: HashMap<&Owner, (bool, bool)> = HashMap::new();
            for endpoint in slice.into_iter().flat_map(|slice| &slice.endpoints) {
                let state = states.entry(&endpoint.owner).or_default();
                *state = (state.0 || endpoint.ready, state.1 || endpoint.serving);
            }
            states
        }

        let (before, now) = (states(old), states(new));
        let Some(family) = new.or(old).map(|slice| slice.family) else { return };
        for (owner, state) in &now {
            let indexed = self.owners.entry((*owner).clone()).or_default();
            if !indexed.slices.contains(id) {
                indexed.slices.push(Arc::clone(id));
            }
            // One that was never in a slice and one that is not ready are the same to traffic.
            if before.get(owner).copied().unwrap_or_default() != *state
                || indexed.changed[family.index()].is_none()
            {
                indexed.changed[family.index()] = Some(change);
            }
        }
        for (owner, state) in before.iter().filter(|(owner, _)| !now.contains_key(**owner)) {
            if let Some(indexed) = self.owners.get_mut(*owner) {
                indexed.slices.retain(|slice| slice != id);
                if *state != (false, false) {
                    indexed.changed[family.index()] = Some(change);
                }
                if let Some(slice) = old {
                    indexed.left[slice.carrier.index()] = indexed.changed[family.index()];
                }
            }
        }
    }

    /// A Service is so now.
    pub(crate) fn put_service(&mut self, key: &Key, service: Service) {
        self.services.entry(Arc::clone(&key.namespace)).or_default().insert(Arc::clone(&key.name), service);
    }

    /// A Service is gone, and with it the traffic of the endpoints in its slices, though the slices may stay.
    pub(crate) fn remove_service(&mut self, key: &Key, origin: Origin, now: UnixNanos) {
        let change = origin.change(now);
        for id in self.by_service.get(key).into_iter().flatten() {
            let Some(slice) = self.slices.get(id) else { continue };
            for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.ready || endpoint.serving) {
                if let Some(indexed) = self.owners.get_mut(&endpoint.owner) {
                    indexed.changed[slice.family.index()] = Some(change);
                }
            }
        }
        if let Some(services) = self.services.get_mut(&key.namespace) {
            services.remove(&key.name);
            if services.is_empty() {
                self.services.remove(&key.namespace);
            }
        }
    }

    /// Removes the Services that are not among `listed`.
    pub(crate) fn keep_services(&mut self, listed: &HashSet<Key>, now: UnixNanos) {
        let known = self.services.iter().flat_map(|(namespace, services)| {
            services.keys().map(|name| Key { namespace: Arc::clone(namespace), name: Arc::clone(name) })
        });
        let gone: Vec<Key> = known.filter(|key| !listed.contains(key)).collect();
        for key in gone {
            self.remove_service(&key, Origin::Listed(None), now);
        }
    }

    /// A node is so now.
    pub(crate) fn put_node(&mut self, name: &Arc<str>, node: Node) -> bool {
        self.nodes.insert(Arc::clone(name), node.clone()) != Some(node)
    }

    /// A node is gone.
    pub(crate) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Removes the nodes that are not among `listed`.
    pub(crate) fn keep_nodes(&mut self, listed: &HashSet<Key>) {
        let names: HashSet<&str> = listed.iter().map(|key| &*key.name).collect();
        self.nodes.retain(|name, _| names.contains(&**name));
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.nodes.iter()
    }

    /// Forgets owners that have long been in no slice.
    pub(crate) fn sweep(&mut self, now: UnixNanos) {
        let limit = before(now, MEMORY);
        self.owners.retain(|_, indexed| {
            !indexed.slices.is_empty() || indexed.changed.iter().flatten().any(|change| change.seen > limit)
        });
    }

    /// How much is known, for the metrics: slices, pods with endpoints, Services, nodes.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        let services = self.services.values().map(HashMap::len).sum();
        [self.slices.len(), self.owners.len(), services, self.nodes.len()]
    }
}

#[cfg(test)]
mod tests;
