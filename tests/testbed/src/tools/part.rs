//! The groups of programs.

/// A group of programs that is built as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl.
    ControlPlane,
    /// kubelet, kube-proxy, and the distribution's containerd, runc, CNI plugins, nft, iptables and busybox.
    Node,
    /// CoreDNS, for names of Services on a real node.
    Dns,
    /// kwok, for simulated nodes.
    Kwok,
    /// helm.
    Helm,
    /// Consul, a registry. No cluster needs it.
    Consul,
    /// Eureka, a registry that runs on Java.
    Eureka,
    /// ZooKeeper, which runs on Java.
    ZooKeeper,
    /// Prometheus, which records metrics. No cluster needs it.
    Prometheus,
    /// rnacos, which has the HTTP interface of Nacos 1.
    Nacos,
}

impl Part {
    /// All parts of clusters.
    pub const ALL: [Self; 5] = [Self::ControlPlane, Self::Node, Self::Dns, Self::Kwok, Self::Helm];
    /// The servers of registries.
    pub const REGISTRIES: [Self; 4] = [Self::Consul, Self::Eureka, Self::ZooKeeper, Self::Nacos];
}
