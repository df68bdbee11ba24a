//! Nodes that are not Ready for longer than a limit. Requested deletions of their pods wait for no consumer.

use std::collections::HashMap;
use std::sync::Arc;
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
}

impl LostNodes {
    /// Watches the nodes. A node is lost when it has not been Ready for `limit`. The stream yields the pods of `store`
    /// that have a deletion request and whose node stops being Ready.
    pub fn follow(
        client: Client,
        watch: Watch,
        limit: Duration,
        store: Store<CachedPod>,
    ) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let pods = Arc::new(WorkQueue::default());
        let out = Arc::clone(&pods);
        let mut known = HashMap::new();
        let changed = move |nodes: &HashMap<String, NodeState>| {
            let not_ready: HashMap<String, NodeState> = nodes
                .iter()
                .filter(|(_, node)| matches!(node, NodeState::NotReadySince(_)))
                .map(|(name, node)| (name.clone(), *node))
                .collect();
            let has_changed =
                |name: &str| not_ready.get(name).is_some_and(|node| known.get(name) != Some(node));
            if not_ready.keys().any(|name| has_changed(name)) {
                let is_affected = |pod: &CachedPod| {
                    pod.node_name().is_some_and(has_changed) && pod.deletion_request().is_some()
                };
                for pod in store.state().iter().filter(|pod| is_affected(pod)) {
                    out.push(ObjectRef::from_obj(&**pod));
                }
            }
            known = not_ready;
        };
        (LostNodes { nodes: nodes::follow(client, watch, changed), limit }, work_queue::stream(pods))
    }

    /// Returns the time until the node of `pod` is lost if it does not become Ready: zero if it is lost. Returns `None`
    /// if the node is Ready or its state is unknown.
    ///
    /// A node that is not in memory does not count as lost: it may be too new. Only the API server knows that a node
    /// does not exist.
    pub(crate) fn lost_in(&self, pod: &CachedPod) -> Option<Duration> {
        let node = self.nodes.get(pod.node_name()?).filter(|_| self.nodes.is_current())?;
        node.lost_in(self.limit, now())
    }
}
