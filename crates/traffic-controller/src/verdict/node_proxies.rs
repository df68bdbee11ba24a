//! The kube-proxies of all nodes.

use std::sync::Arc;

use podward_core::UnixNanos;

use crate::proxy::RulesState;

/// The progress of a change at the kube-proxies of all nodes.
#[derive(Clone, Debug)]
pub(crate) enum NodeProxies {
    /// No URL for the metrics of kube-proxies is configured.
    NotConfigured,
    /// The state of each node.
    Read(Vec<NodeProxy>),
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
