//! The real nodes of a cluster, by their number.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The most real nodes that a cluster can have.
pub(crate) const MOST_NODES: usize = 3;

/// The number of a real node: 1 for the first, which also runs the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NodeNumber(u8);

impl NodeNumber {
    /// The first node.
    pub(crate) const FIRST: Self = Self(1);

    /// Returns the first `count` nodes.
    pub(crate) fn all(count: usize) -> impl Iterator<Item = Self> + Clone {
        (1..=u8::try_from(count.min(MOST_NODES)).unwrap_or(1)).map(Self)
    }

    /// Returns the node with this name, if it is one of the first `count`.
    pub(crate) fn named(name: &str, count: usize) -> Option<Self> {
        Self::all(count).find(|node| node.name() == name)
    }

    /// Returns the node's name, such as `node1`. It is also the node's host name.
    pub(crate) fn name(self) -> String {
        format!("node{}", self.0)
    }

    /// Returns the node's address. It is the same in every cluster, since each has a network of its own.
    pub(crate) const fn ip(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 200, 0, self.0))
    }

    /// Returns an address of a server on the node.
    pub(crate) const fn at(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip(), port)
    }

    /// Returns the network of the node's pods.
    pub(crate) fn pod_cidr(self) -> String {
        format!("10.244.{}.0/24", self.0 - 1)
    }

    /// Returns the name of a process or folder of this node: that of the first node is `name`, and those of the
    /// others end with the node's name.
    pub(crate) fn own(self, name: &str) -> String {
        if self == Self::FIRST { name.to_owned() } else { format!("{name}-{}", self.name()) }
    }

    /// Returns the folder of this node in the folder `dir` of the cluster: `dir` for the first node.
    pub(crate) fn folder(self, dir: &Path) -> PathBuf {
        if self == Self::FIRST { dir.to_owned() } else { dir.join(self.name()) }
    }

    /// Returns the name of the network interface that leads to this node.
    pub(crate) fn link(self) -> String {
        format!("to{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_differ_in_everything_they_own() {
        let three: Vec<NodeNumber> = NodeNumber::all(3).collect();
        assert_eq!(three.iter().map(|node| node.name()).collect::<Vec<_>>(), ["node1", "node2", "node3"]);
        let (first, second) = (three[0], three[1]);
        assert_eq!((first.own("kubelet"), second.own("kubelet")), ("kubelet".into(), "kubelet-node2".into()));
        assert_eq!(first.pod_cidr(), "10.244.0.0/24");
        assert_eq!(second.pod_cidr(), "10.244.1.0/24");
        assert_eq!(second.at(10250).to_string(), "10.200.0.2:10250");
        assert_eq!(NodeNumber::named("node2", 3), Some(second));
        assert_eq!(NodeNumber::named("node2", 1), None);
        assert_eq!(NodeNumber::all(9).count(), MOST_NODES);
    }
}
