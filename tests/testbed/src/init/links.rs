//! The network between the nodes: a pair of interfaces for every two nodes, and routes to each node and its pods. No
//! packet between two nodes passes a third one.

use std::{fmt::Write, io};

use super::namespaces::{enter_and_run_ip, run_ip};
use crate::{components::SECOND_API, node_number::NodeNumber};

/// The links of a node to the other nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) node: NodeNumber,
    /// The number of nodes.
    pub(super) count: usize,
}

impl Links {
    fn others(self) -> impl Iterator<Item = NodeNumber> {
        NodeNumber::all(self.count).filter(move |&other| other != self.node)
    }

    /// Returns the input of `ip -batch` that connects the node. The kernel removes the routes of a link that is set
    /// down, so that they are added each time.
    fn up(self) -> String {
        let source = self.node.ip();
        self.others().fold(String::new(), |mut batch, other| {
            let (link, ip, pods) = (other.link(), other.ip(), other.pod_cidr());
            let _ = writeln!(batch, "link set {link} up");
            let _ = writeln!(batch, "route replace {ip}/32 dev {link} src {source}");
            if other == NodeNumber::FIRST {
                // The control plane, with the second API server if there is one, is on the first node.
                let api = SECOND_API.ip();
                let _ = writeln!(batch, "route replace {api}/32 dev {link} src {source}");
            }
            let _ = writeln!(batch, "route replace {pods} via {ip} dev {link} onlink src {source}");
            batch
        })
    }

    fn down(self) -> String {
        self.others().map(|other| format!("link set {} down\n", other.link())).collect()
    }

    /// Connects the node with the others, or cuts it off from them. It must run in the network namespace of the node.
    pub(super) fn set(self, connected: bool) -> io::Result<()> {
        if self.count < 2 {
            let message = "the cluster has one real node, which has no network to others";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        run_ip(&if connected { self.up() } else { self.down() })
    }
}

/// Makes the links between the nodes, whose network namespaces are those of the processes `nodes`, and sets them up.
pub(super) fn make(nodes: &[(NodeNumber, u32)]) -> io::Result<()> {
    let mut pairs = String::new();
    for (at, (one, pid)) in nodes.iter().enumerate() {
        for (other, other_pid) in &nodes[at + 1..] {
            let (to_other, to_one) = (other.link(), one.link());
            let _ = writeln!(
                pairs,
                "link add name {to_other} netns {pid} type veth peer name {to_one} netns {other_pid}"
            );
        }
    }
    run_ip(&pairs)?;
    for &(node, pid) in nodes {
        enter_and_run_ip(pid, &Links { node, count: nodes.len() }.up())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_linked_with_every_other_node() {
        let second = NodeNumber::named("node2", 3).unwrap();
        let links = Links { node: second, count: 3 };
        assert_eq!(
            links.up(),
            "link set to1 up\n\
             route replace 10.200.0.1/32 dev to1 src 10.200.0.2\n\
             route replace 10.200.0.101/32 dev to1 src 10.200.0.2\n\
             route replace 10.244.0.0/24 via 10.200.0.1 dev to1 onlink src 10.200.0.2\n\
             link set to3 up\n\
             route replace 10.200.0.3/32 dev to3 src 10.200.0.2\n\
             route replace 10.244.2.0/24 via 10.200.0.3 dev to3 onlink src 10.200.0.2\n"
        );
        assert_eq!(links.down(), "link set to1 down\nlink set to3 down\n");
    }

    #[test]
    fn a_single_node_cannot_be_cut_off() {
        let error = Links { node: NodeNumber::FIRST, count: 1 }.set(false).unwrap_err();
        assert!(error.to_string().contains("one real node"), "{error}");
    }
}
