//! Nodes that are not Ready: past a limit, what is wished of their pods waits for nobody.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use podward_core::hold::Node;
use podward_runtime::nodes;
use podward_runtime::watched::{Watch, Watched};

use crate::cached_pod::CachedPod;
use crate::inbox::{self, Inbox};
use crate::reconcile::now;

/// The nodes of the cluster, as far as deletions care.
pub(crate) struct LostNodes {
    nodes: Watched<Node>,
    limit: Duration,
}

impl LostNodes {
    /// Follows the nodes, which are lost once they have not been Ready for `limit`. The stream gives the pods of `store` that are wished
    /// gone and whose node has changed to not Ready.
    pub(crate) fn follow(
        client: Client,
        watch: Watch,
        limit: Duration,
        store: Store<CachedPod>,
    ) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let pods = Arc::new(Inbox::default());
        let out = Arc::clone(&pods);
        let mut known = HashMap::new();
        let changed = move |nodes: &HashMap<String, Node>| {
            let away: HashMap<String, Node> = nodes
                .iter()
                .filter(|(_, node)| matches!(node, Node::NotReadySince(_)))
                .map(|(name, node)| (name.clone(), *node))
                .collect();
            let is_news = |name: &str| away.get(name).is_some_and(|node| known.get(name) != Some(node));
            if away.keys().any(|name| is_news(name)) {
                let concerned =
                    |pod: &CachedPod| pod.node_name().is_some_and(is_news) && pod.wish().is_some();
                for pod in store.state().iter().filter(|pod| concerned(pod)) {
                    out.push(ObjectRef::from_obj(&**pod));
                }
            }
            known = away;
        };
        (LostNodes { nodes: nodes::follow(client, watch, changed), limit }, inbox::stream(pods))
    }

    /// In how long the node of `pod` is lost, if it stays as it is: zero if it is. `None` if nothing is known to be wrong with it.
    ///
    /// That a node is not there is for the API server to say: what is not in memory may be too new for it.
    pub(super) fn lost_in(&self, pod: &CachedPod) -> Option<Duration> {
        let node = self.nodes.get(pod.node_name()?).filter(|_| self.nodes.is_current())?;
        node.lost_in(self.limit, now())
    }
}
