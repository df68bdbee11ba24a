//! A real node of a running cluster, and its faults.

use std::{ffi::OsStr, net::IpAddr, net::SocketAddr};

use tokio::net::UnixStream;

use crate::{
    components::node,
    control::ControlClient,
    error::{During, TestClusterError},
    node_number::NodeNumber,
    process::{Command, Process},
    shape::Shape,
    test_cluster::{TestCluster, TestClusterStream},
};

/// A real node of a cluster. [`TestCluster::node`] returns it.
#[derive(Clone)]
pub struct TestNode<'a> {
    cluster: &'a TestCluster,
    number: NodeNumber,
    control: ControlClient,
}

impl TestCluster {
    /// Returns the real nodes, `node1` first. A cluster of another shape than [`Shape::Node`] has none.
    pub fn nodes(&self) -> Vec<TestNode<'_>> {
        let numbers = self.numbers().into_iter();
        let node = |number| TestNode { cluster: self, number, control: self.control_of(number) };
        numbers.map(node).collect()
    }

    /// Returns the real node with this name, such as `node2`.
    pub fn node(&self, name: &str) -> Result<TestNode<'_>, TestClusterError> {
        let nodes = self.nodes();
        let names: Vec<String> = nodes.iter().map(TestNode::name).collect();
        nodes.into_iter().find(|node| node.name() == name).ok_or_else(|| {
            let cluster = &self.record.id;
            TestClusterError::Name(match self.record.shape {
                Shape::Node => {
                    format!("cluster {cluster} has no node {name:?}: its nodes are {}", names.join(", "))
                }
                shape => format!("cluster {cluster} has the shape {shape}, without real nodes"),
            })
        })
    }
}

impl TestNode<'_> {
    /// Returns the node's name, such as `node2`.
    pub fn name(&self) -> String {
        self.number.name()
    }

    /// Returns the node's address.
    pub fn ip(&self) -> IpAddr {
        self.number.ip()
    }

    /// Cuts the node off from the other nodes, in both directions: packets are dropped, and connections are neither
    /// closed nor refused. Traffic within the node goes on. A cluster whose `node1` is cut off has no control plane for
    /// the other nodes.
    pub async fn cut_off(&self) -> Result<(), TestClusterError> {
        self.control.link(false).await
    }

    /// Connects the node with the other nodes again, except with those that are cut off themselves.
    pub async fn restore(&self) -> Result<(), TestClusterError> {
        self.control.link(true).await
    }

    /// Returns a process of this node by the name of its command: `kubelet`, `kube-proxy`, `containerd`, or a program
    /// that was started with [`spawn`](Self::spawn). It is the last one with this name, and may have ended. Whoever
    /// started it need not be this process. Stop it with [`Process::stop`], and freeze it with SIGSTOP.
    pub async fn process(&self, name: &str) -> Result<Process, TestClusterError> {
        let name = self.number.own(name);
        let (pid, spawn) = self.control.find(&name).await?;
        Ok(Process { name, pid, log: spawn.log, control: self.control.clone() })
    }

    /// Starts a process of this node again, with the same arguments, after it has been stopped. Waits until a
    /// component is healthy.
    pub async fn start(&self, name: &str) -> Result<Process, TestClusterError> {
        let stopped = self.process(name).await?;
        if stopped.try_exit()?.is_none() {
            return Err(TestClusterError::Refused {
                what: format!("start {name} on {}", self.name()),
                message: format!("it runs, as process {}: stop it first", stopped.pid),
            });
        }
        let (_, spawn) = self.control.find(&stopped.name).await?;
        let started = Process { pid: self.control.spawn(spawn).await?, ..stopped };
        if let Some(health) = node::health(name) {
            self.cluster.started_again(&started, &health).await?;
        }
        Ok(started)
    }

    /// Starts a program in the node's network. It ends with the cluster. The name of its process and log ends with
    /// the node's name, except on the first node.
    pub async fn spawn(&self, command: Command) -> Result<Process, TestClusterError> {
        self.cluster.spawn_on(self.number, command).await
    }

    /// Opens a TCP connection from the node.
    pub async fn connect(&self, to: SocketAddr) -> Result<TestClusterStream, TestClusterError> {
        self.control.connect(to).await
    }

    /// Returns a command that runs in the node's network, see [`TestCluster::exec_command`].
    pub async fn exec_command(
        &self,
        argv: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<std::process::Command, TestClusterError> {
        let socket = self.cluster.layout.control_socket_of(self.number);
        // The kernel translates the process id of the listener into this namespace.
        let peer = async { UnixStream::connect(&socket).await?.peer_cred() }.await;
        let pid = peer.during(|| format!("connect to {}", socket.display()))?.pid();
        let pid = pid.unwrap_or(self.cluster.live.init_pid);
        Ok(self.cluster.command_in_network_of(pid, argv))
    }
}
