//! The options that describe the real nodes of a cluster.

use std::str::FromStr;

use clap::Args;
use podward_testbed::{Taint, TestClusterBuilder};

/// The real nodes of a test cluster.
#[derive(Debug, Args)]
pub(crate) struct RealNodes {
    /// Number of real nodes, 1 to 3: node1 to node3. The control plane runs on node1
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
    /// Zone of a real node (label topology.kubernetes.io/zone), such as node2=b
    #[arg(long = "zone", value_name = "NODE=ZONE")]
    zones: Vec<OfNode<String>>,
    /// Taint of a real node, such as node3=spare:NoSchedule or node3=only=tests:NoExecute
    #[arg(long = "taint", value_name = "NODE=TAINT")]
    taints: Vec<OfNode<Taint>>,
    /// Real node whose kubelet and kube-proxy use the second API server
    #[arg(long = "second-api-server", value_name = "NODE")]
    second_api_server: Vec<String>,
}

impl RealNodes {
    /// Returns the number of nodes.
    pub(crate) fn count(&self) -> usize {
        self.nodes
    }

    /// Adds the options to the description of a cluster.
    pub(crate) fn add_to(self, builder: TestClusterBuilder) -> TestClusterBuilder {
        let builder = builder.nodes(self.nodes);
        let builder = self.zones.into_iter().fold(builder, |builder, of| builder.zone(of.node, of.value));
        let builder =
            self.second_api_server.into_iter().fold(builder, |builder, node| builder.second_api_server(node));
        self.taints.into_iter().fold(builder, |builder, of| builder.taint(of.node, of.value))
    }
}

/// A value for a node, written `NODE=VALUE`.
#[derive(Clone, Debug)]
struct OfNode<T> {
    node: String,
    value: T,
}

impl<T: FromStr<Err: ToString>> FromStr for OfNode<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (node, value) =
            text.split_once('=').ok_or_else(|| format!("{text:?} names no node: write NODE=VALUE"))?;
        let value = value.parse().map_err(|error: T::Err| error.to_string())?;
        Ok(Self { node: node.to_owned(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_the_node_before_the_first_equals_sign() {
        let taint: OfNode<Taint> = "node3=only=tests:NoExecute".parse().unwrap();
        assert_eq!(
            (taint.node.as_str(), taint.value.to_string().as_str()),
            ("node3", "only=tests:NoExecute")
        );
        "node3".parse::<OfNode<String>>().unwrap_err();
        "node3=tests".parse::<OfNode<Taint>>().unwrap_err();
    }
}
