//! The nodes in the index, also those whose Node object was deleted while they were not Ready.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use podward_core::UnixNanos;

use super::endpoint_index::EndpointIndex;
use super::node::IndexedNode;
use super::object::ObjectKey;

/// The maximum number of deleted nodes that are remembered.
const MAX_DELETED_NODES: usize = 5_000;

impl EndpointIndex {
    /// Adds or replaces a node. Returns true if the node differs from the indexed one.
    pub(crate) fn put_node(&mut self, name: &Arc<str>, node: IndexedNode) -> bool {
        if self.nodes.get(name) == Some(&node) {
            return false;
        }
        Arc::make_mut(&mut self.nodes).insert(Arc::clone(name), node);
        true
    }

    /// Records that a node is deleted. If it was not Ready, it may be cut off and run on, so it is remembered.
    pub(crate) fn remove_node(&mut self, name: &str, now: UnixNanos) {
        let is_full = self.nodes.len() - self.nodes().count() >= MAX_DELETED_NODES;
        let nodes = Arc::make_mut(&mut self.nodes);
        match nodes.get_mut(name).filter(|node| node.not_ready_since.is_some() && !is_full) {
            Some(node) => {
                node.deleted_at.get_or_insert(now);
            }
            None => {
                nodes.remove(name);
            }
        }
    }

    /// Records that the nodes that are not in `listed` are deleted.
    pub(crate) fn retain_nodes(&mut self, listed: &HashSet<ObjectKey>, now: UnixNanos) {
        let names: HashSet<&str> = listed.iter().map(|key| &*key.name).collect();
        let gone: Vec<Arc<str>> =
            self.nodes().map(|(name, _)| name).filter(|name| !names.contains(&***name)).cloned().collect();
        for name in gone {
            self.remove_node(&name, now);
        }
    }

    /// Returns the nodes that exist, with their names.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &IndexedNode)> {
        self.nodes.iter().filter(|(_, node)| node.deleted_at.is_none())
    }

    /// Returns the addresses of the node `name`. None if it is not known.
    pub(crate) fn node_addresses(&self, name: &str) -> &[IpAddr] {
        self.nodes.get(name).map_or(&[], |node| &node.addresses)
    }

    /// Returns all nodes by their names, also those that were deleted lately. They do not change with the index.
    pub(crate) fn node_snapshot(&self) -> Arc<HashMap<Arc<str>, IndexedNode>> {
        Arc::clone(&self.nodes)
    }

    /// Returns the number of nodes, including those that were deleted lately.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Forgets the nodes that were deleted until `limit`.
    pub(super) fn sweep_nodes(&mut self, limit: UnixNanos) {
        let is_forgotten = |node: &IndexedNode| node.deleted_at.is_some_and(|deleted| deleted <= limit);
        if self.nodes.values().any(is_forgotten) {
            Arc::make_mut(&mut self.nodes).retain(|_, node| !is_forgotten(node));
        }
    }
}
