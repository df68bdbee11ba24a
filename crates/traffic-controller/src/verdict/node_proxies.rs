//! The kube-proxies of all nodes.

use std::sync::Arc;

use podward_core::UnixNanos;

use crate::index::ApiServers;
use crate::proxy::RulesState;

/// The progress of a change at the kube-proxies of all nodes.
#[derive(Clone, Debug)]
pub(crate) enum NodeProxies {
    /// No URL for the metrics of kube-proxies is configured.
    NotConfigured,
    /// The state of each node.
    Read(Vec<NodeProxy>),
}

impl NodeProxies {
    /// Returns the progress at `nodes`, in a cluster with `servers` API servers.
    ///
    /// What a kube-proxy has written is compared with what this process has observed. Both are in the same order only
    /// if both watch the same API server. The watches of another one may lag by any time.
    pub(crate) fn read(mut nodes: Vec<NodeProxy>, servers: ApiServers) -> Self {
        let servers = match servers {
            ApiServers::One => return NodeProxies::Read(nodes),
            ApiServers::Several(number) => format!("one of {number} API servers"),
            ApiServers::Unknown => "one of an unknown number of API servers".to_owned(),
        };
        let why = format!("it watches {servers}, which may lag");
        for node in nodes.iter_mut().filter(|node| node.rules == RulesState::Written) {
            node.rules = RulesState::Unconfirmed(why.clone());
        }
        NodeProxies::Read(nodes)
    }
}

/// The progress of a change at the kube-proxy of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeProxy {
    /// The name of the node.
    pub(crate) name: Arc<str>,
    /// When the node stopped being Ready. `None` if it is Ready.
    pub(crate) not_ready_since: Option<UnixNanos>,
    /// The progress of the change in the rules of the node.
    pub(crate) rules: RulesState,
}
