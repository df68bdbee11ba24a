//! The programs of a cluster and their flags.

pub(crate) mod control_plane;
pub(crate) mod dns;
pub(crate) mod node;
pub(crate) mod simulated;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use crate::{node_number::NodeNumber, probe::Health, process::Command, state::ClusterRecord, tools::Tools};

/// The address of the control plane, which runs on the first node.
pub(crate) const NODE_IP: IpAddr = NodeNumber::FIRST.ip();
/// Where the API server listens inside.
pub(crate) const API: SocketAddr = NodeNumber::FIRST.at(6443);
/// Where clients reach the second API server, if there is one: the address of the proxy before it.
pub(crate) const SECOND_API: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 200, 0, 101)), API.port());
/// Where the second API server itself listens. The port is that of the first one, because the EndpointSlice of the
/// Service `kubernetes` has one port for all.
pub(crate) const SECOND_API_BEHIND: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), API.port());
/// The addresses of Services, and the first of them, which is the API server's.
pub(crate) const SERVICE_CIDR: &str = "10.96.0.0/16";
pub(crate) const SERVICE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));
/// The address of the cluster DNS. It is the one that kubeadm uses.
pub(crate) const DNS_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
/// The domain of Services and pods.
pub(crate) const CLUSTER_DOMAIN: &str = "cluster.local";

/// A program of the cluster, and its health check.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    /// The node on which it runs.
    pub(crate) node: NodeNumber,
    pub(crate) command: Command,
    pub(crate) health: Health,
}

impl Component {
    /// Returns a component that runs on the first node.
    fn control(command: Command, health: Health) -> Self {
        Self { node: NodeNumber::FIRST, command, health }
    }
}

/// The input for the flags of all components.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) record: &'a ClusterRecord,
    pub(crate) tools: &'a Tools,
    pub(crate) dir: &'a Path,
}

impl Context<'_> {
    fn pki(&self, file: &str) -> String {
        self.dir.join("pki").join(file).display().to_string()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    fn command(&self, name: &str) -> Command {
        Command::new(name, self.tools.bin(name))
    }
}

/// Returns the health endpoint of a program on a loopback address of its node.
fn local(port: u16, tls: bool, path: &'static str) -> Health {
    Health { at: (Ipv4Addr::LOCALHOST, port).into(), tls, path }
}
