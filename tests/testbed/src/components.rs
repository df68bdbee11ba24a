//! The programs of a cluster and their flags.

pub(crate) mod control_plane;
pub(crate) mod dns;
pub(crate) mod node;
pub(crate) mod simulated;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use crate::{probe::Health, process::Command, state::ClusterRecord, tools::Tools};

/// The node's address: the same in every cluster, since each has a network of its own.
pub(crate) const NODE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));
/// The name of the one real node.
pub(crate) const NODE_NAME: &str = "node1";
/// Where the API server listens inside.
pub(crate) const API: SocketAddr = SocketAddr::new(NODE_IP, 6443);
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
    pub(crate) command: Command,
    pub(crate) health: Health,
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

fn local(port: u16, tls: bool, path: &'static str) -> Health {
    Health { at: (Ipv4Addr::LOCALHOST, port).into(), tls, path }
}
