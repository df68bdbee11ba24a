//! Nodes that are not Ready for longer than a limit. Requested deletions of their pods wait for no consumer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::Stream;
use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use podward_core::deletion::hold::NodeState;
use podward_kube_util::watched::{Watch, Watched};
use podward_kube_util::{CachedPod, WorkQueue, nodes, now, work_queue};

/// The nodes of the cluster and the time limit after which a node counts as lost.
pub struct LostNodes {
    nodes: Watched<NodeState>,
    limit: Duration,
    /// True if the state of a node was needed while the watch was failing.
    was_unknown: Arc<AtomicBool>,
}

impl LostNodes {
    /// Watches the nodes. A node is lost when it has not been Ready for `limit`. The stream yields the pods of `store`
    /// that have a deletion request and whose node stops being Ready, or is not Ready when a watch that failed is
    /// current again.
    pub fn follow(
        client: Client,
        watch: Watch,
        limit: Duration,
        store: Store<CachedPod>,
    ) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let pods = Arc::new(WorkQueue::default());
        let out = Arc::clone(&pods);
        let was_unknown = Arc::new(AtomicBool::default());
        let was_asked = Arc::clone(&was_unknown);
        let mut not_ready = NotReadyNodes::default();
        let changed = move |nodes: &HashMap<String, NodeState>| {
            let changed = not_ready.update(nodes, was_asked.swap(false, Ordering::SeqCst));
            if changed.is_empty() {
                return;
            }
            let is_affected = |pod: &CachedPod| {
                pod.node_name().is_some_and(|node| changed.contains(node)) && pod.deletion_request().is_some()
            };
            for pod in store.state().iter().filter(|pod| is_affected(pod)) {
                out.push(ObjectRef::from_obj(&**pod));
            }
        };
        let nodes = nodes::follow(client, watch, changed);
        (LostNodes { nodes, limit, was_unknown }, work_queue::stream(pods))
    }

    /// Returns the time until the node of `pod` is lost if it does not become Ready: zero if it is lost. Returns `None`
    /// if the node is Ready or its state is unknown.
    ///
    /// A node that is not in memory does not count as lost: it may be too new. Only the API server knows that a node
    /// does not exist.
    pub(crate) fn lost_in(&self, pod: &CachedPod) -> Option<Duration> {
        let node = self.nodes.get(pod.node_name()?).filter(|_| self.is_current())?;
        node.lost_in(self.limit, now())
    }

    /// Returns whether the states of the nodes are up to date. If not, the pods are reported when they are.
    fn is_current(&self) -> bool {
        if self.nodes.is_current() {
            return true;
        }
        self.was_unknown.store(true, Ordering::SeqCst);
        // Otherwise a watch that has become current in between would not report the pods.
        self.nodes.is_current()
    }
}

/// The nodes that were not Ready at the last change.
#[derive(Default)]
struct NotReadyNodes(HashMap<String, NodeState>);

impl NotReadyNodes {
    /// Replaces the states. Returns the nodes whose pods are to be reported: those that have stopped being Ready, or
    /// all that are not Ready if the states were unknown.
    fn update(&mut self, nodes: &HashMap<String, NodeState>, were_unknown: bool) -> HashSet<String> {
        let not_ready = nodes.iter().filter(|(_, node)| matches!(node, NodeState::NotReadySince(_)));
        let not_ready: HashMap<String, NodeState> =
            not_ready.map(|(name, node)| (name.clone(), *node)).collect();
        let has_changed =
            |(name, node): &(&String, &NodeState)| were_unknown || self.0.get(*name) != Some(*node);
        let changed = not_ready.iter().filter(has_changed).map(|(name, _)| name.clone()).collect();
        self.0 = not_ready;
        changed
    }
}

#[cfg(test)]
mod tests {
    use podward_core::UnixNanos;

    use super::*;

    #[test]
    fn pods_are_reported_when_their_node_changes_or_is_known_again() {
        let nodes = |nodes: &[(&str, NodeState)]| -> HashMap<String, NodeState> {
            nodes.iter().map(|(name, node)| ((*name).to_owned(), *node)).collect()
        };
        let since = |time| NodeState::NotReadySince(UnixNanos(time));
        let mut known = NotReadyNodes::default();
        let mut update = |states: &[(&str, NodeState)], were_unknown| {
            let mut changed: Vec<_> = known.update(&nodes(states), were_unknown).into_iter().collect();
            changed.sort();
            changed
        };
        let (ready, unknown) = (NodeState::Ready, NodeState::Unknown);
        assert_eq!(update(&[("a", since(1)), ("b", ready), ("c", unknown)], false), ["a"]);
        assert!(update(&[("a", since(1)), ("b", ready), ("c", ready)], false).is_empty());
        assert_eq!(update(&[("a", since(1)), ("b", since(2)), ("c", ready)], false), ["b"]);
        assert_eq!(update(&[("a", since(3)), ("b", since(2)), ("c", ready)], false), ["a"]);
        assert_eq!(update(&[("a", since(3)), ("b", since(2)), ("c", ready)], true), ["a", "b"]);
        assert!(update(&[("a", since(3)), ("b", since(2)), ("c", ready)], false).is_empty());
        assert!(update(&[], false).is_empty());
        assert_eq!(update(&[("a", since(3))], false), ["a"]);
    }
}
