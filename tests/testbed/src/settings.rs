//! The settings of a cluster that its components depend on.

use std::collections::BTreeMap;

use podward_images::Image;

use crate::{proxy_mode::ProxyMode, shape::Shape, taint::Taint};

/// The settings of a cluster.
#[derive(Clone)]
pub(crate) struct ClusterSettings {
    pub(crate) shape: Shape,
    pub(crate) images: Vec<Image>,
    pub(crate) audit_log: bool,
    pub(crate) simulated_nodes: usize,
    /// The number of real nodes.
    pub(crate) nodes: usize,
    /// The settings of real nodes, by name. Nodes that are not here have the default.
    pub(crate) node_settings: BTreeMap<String, NodeSettings>,
    /// The number of API servers, 1 or 2.
    pub(crate) api_servers: usize,
    pub(crate) dns: bool,
    pub(crate) proxy_mode: ProxyMode,
}

/// The settings of a real node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSettings {
    /// The value of the label `topology.kubernetes.io/zone`.
    pub(crate) zone: Option<String>,
    pub(crate) taints: Vec<Taint>,
    /// True if kubelet and kube-proxy are clients of the second API server.
    pub(crate) second_api_server: bool,
}
