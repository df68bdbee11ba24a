//! Describes a test cluster and starts it.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use podward_images::Image;

use crate::{
    client::Clients,
    components::{API, NODE_IP, SECOND_API, SECOND_API_BEHIND, SERVICE_IP},
    error::TestClusterError,
    kubeconfig, launch,
    node_number::{MOST_NODES, NodeNumber},
    on_panic,
    pki::{self, Authority, name},
    proxy_mode::ProxyMode,
    settings::{ClusterSettings, NodeSettings},
    shape::Shape,
    start,
    state::{ClusterRecord, Layout, RunningCluster, base},
    taint::Taint,
    test_cluster::{TestCluster, blocking},
    tools::{Part, Progress, Tools, ToolsError, preflight},
};

/// The description of a cluster to start. [`TestCluster::builder`] returns one.
#[derive(Clone)]
#[must_use]
pub struct TestClusterBuilder {
    name: String,
    tools: Option<Tools>,
    settings: ClusterSettings,
    detached: bool,
}

impl TestClusterBuilder {
    pub(crate) fn new(shape: Shape) -> Self {
        let settings = ClusterSettings {
            shape,
            images: Vec::new(),
            audit_log: false,
            simulated_nodes: 3,
            nodes: 1,
            node_settings: BTreeMap::new(),
            api_servers: 1,
            dns: false,
            proxy_mode: ProxyMode::default(),
        };
        Self { name: "cluster".to_owned(), tools: None, settings, detached: false }
    }

    /// Sets the name that users see. Clusters with the same name have different ids. A name has at most 20 lower-case
    /// letters, digits and dashes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the programs to run. By default the cluster runs those of the cache, and builds the missing ones.
    pub fn tools(mut self, tools: Tools) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Adds an image that every node has from the start.
    pub fn image(mut self, image: Image) -> Self {
        self.settings.images.push(image);
        self
    }

    /// Makes the API server log all writes, and the reads of the service accounts in the namespace `podward-system`;
    /// see [`TestCluster::audit_log`].
    pub fn audit_log(mut self, on: bool) -> Self {
        self.settings.audit_log = on;
        self
    }

    /// Sets the number of nodes of a cluster of shape [`Shape::Simulated`]. Each has room for 1,000 pods. The default
    /// is 3.
    pub fn simulated_nodes(mut self, count: usize) -> Self {
        self.settings.simulated_nodes = count;
        self
    }

    /// Sets the number of real nodes of a cluster of shape [`Shape::Node`]: 1 to 3, called `node1` to `node3`. Each has
    /// a network, a kubelet, a containerd and a kube-proxy of its own. The control plane runs on `node1`. A cluster
    /// with several nodes notices after 20 s that a node is gone (with one node after 50 s, as by default). The default
    /// is 1.
    pub fn nodes(mut self, count: usize) -> Self {
        self.settings.nodes = count;
        self
    }

    /// Sets the zone of a real node: the value of its label `topology.kubernetes.io/zone`. By default a node has none.
    pub fn zone(mut self, node: impl Into<String>, zone: impl Into<String>) -> Self {
        self.settings_of(node).zone = Some(zone.into());
        self
    }

    /// Adds a taint to a real node, which it has from the start.
    pub fn taint(mut self, node: impl Into<String>, taint: Taint) -> Self {
        self.settings_of(node).taints.push(taint);
        self
    }

    /// Sets the number of API servers, 1 or 2. Both serve the same etcd and are in the EndpointSlice of the Service
    /// `kubernetes`. The watches of the second one can lag, see [`TestCluster::lag_watches`]. The default is 1.
    pub fn api_servers(mut self, count: usize) -> Self {
        self.settings.api_servers = count;
        self
    }

    /// Makes kubelet and kube-proxy of a real node clients of the second API server.
    pub fn second_api_server(mut self, node: impl Into<String>) -> Self {
        self.settings_of(node).second_api_server = true;
        self
    }

    fn settings_of(&mut self, node: impl Into<String>) -> &mut NodeSettings {
        self.settings.node_settings.entry(node.into()).or_default()
    }

    /// Installs a cluster DNS, so that pods find Services by name: CoreDNS runs in the namespace `kube-system` behind
    /// the Service `kube-dns`. Names outside of the cluster do not exist (NXDOMAIN). The default is false, because
    /// the start then takes one or two seconds longer: it waits until a name is resolved. Only for clusters of shape
    /// [`Shape::Node`].
    pub fn dns(mut self, on: bool) -> Self {
        self.settings.dns = on;
        self
    }

    /// Sets the mode of kube-proxy on a cluster of shape [`Shape::Node`]. The default is iptables, as in Kubernetes.
    pub fn proxy_mode(mut self, mode: ProxyMode) -> Self {
        self.settings.proxy_mode = mode;
        self
    }

    /// Starts the cluster and waits until it is usable: all components are healthy, the nodes are Ready, the service
    /// account of the namespace `default` exists, and the cluster DNS, if there is one, answers.
    pub async fn start(self) -> Result<TestCluster, TestClusterError> {
        self.check_name()?;
        self.check_dns()?;
        self.check_nodes()?;
        let tools = match self.tools.clone() {
            Some(tools) => tools,
            None => self.ensure_tools().await?,
        };
        self.check_rights()?;
        let builder = self.clone();
        let prepared = blocking(move || builder.prepare(&tools)).await?;
        let PreparedCluster { record, layout, live, owned, authority } = prepared;
        let mut guard = StartGuard { layout: layout.clone(), owned: Some(owned) };
        let host = layout.dir.join("admin.kubeconfig");
        kubeconfig::write(&layout.pki(), &host, &format!("https://{}", live.host_api), name::ADMIN)?;
        let clients = Clients::from_kubeconfig(&host).await?;
        let cluster = TestCluster::new(record, live, layout, authority, clients, guard.owned.take());
        on_panic::remember(&cluster.layout, cluster.record.logs.clone());
        if let Err(error) = start::components(&cluster, &self.settings).await {
            cluster.keep_logs();
            return Err(error);
        }
        Ok(cluster)
    }

    /// Says everything that the machine lacks before anything is built.
    async fn ensure_tools(&self) -> Result<Tools, TestClusterError> {
        let node = self.settings.shape == Shape::Node;
        let mut parts = self.settings.shape.parts().to_vec();
        parts.extend(self.settings.dns.then_some(Part::Dns));
        let looked_for = parts.clone();
        let missing = blocking(move || Ok(preflight(&looked_for, node))).await?;
        if !missing.is_empty() {
            return Err(ToolsError::Missing(missing).into());
        }
        Ok(Tools::ensure(&parts, &Progress::stderr()).await?)
    }

    fn check_dns(&self) -> Result<(), TestClusterError> {
        if self.settings.dns && self.settings.shape != Shape::Node {
            let message = format!("a cluster of shape {} runs no pods, and so no DNS", self.settings.shape);
            return Err(TestClusterError::Unsupported(message));
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), TestClusterError> {
        let ClusterSettings { nodes, node_settings, shape, api_servers, .. } = &self.settings;
        let needs_second = node_settings.iter().find(|(_, settings)| settings.second_api_server);
        let message = if !(1..=MOST_NODES).contains(nodes) {
            format!("a cluster has 1 to {MOST_NODES} real nodes, not {nodes}")
        } else if *shape != Shape::Node && (*nodes > 1 || !node_settings.is_empty()) {
            format!("a cluster of shape {shape} has no real nodes: use the shape node")
        } else if let Some(name) = node_settings.keys().find(|name| NodeNumber::named(name, *nodes).is_none())
        {
            format!("a cluster of {nodes} real nodes has no {name:?}: they are called node1, node2, ...")
        } else if !(1..=2).contains(api_servers) {
            format!("a cluster has 1 or 2 API servers, not {api_servers}")
        } else if let Some((name, _)) = needs_second.filter(|_| *api_servers < 2) {
            format!("{name} is to use the second API server, and there is one: use api_servers(2)")
        } else {
            return Ok(());
        };
        Err(TestClusterError::Unsupported(message))
    }

    fn check_name(&self) -> Result<(), TestClusterError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 20 || !self.name.chars().all(plain) {
            let message =
                format!("a cluster can't be called {:?}: use a-z, 0-9 and -, at most 20", self.name);
            return Err(TestClusterError::Name(message));
        }
        Ok(())
    }

    fn check_rights(&self) -> Result<(), TestClusterError> {
        if self.settings.shape == Shape::Node && !nix::unistd::geteuid().is_root() {
            let message = "a cluster of shape node needs root, for cgroups and mounts; control-plane and simulated don't";
            return Err(TestClusterError::Unsupported(message.to_owned()));
        }
        Ok(())
    }

    fn prepare(&self, tools: &Tools) -> Result<PreparedCluster, TestClusterError> {
        let base = base()?;
        let (layout, logs) = launch::make_folders(&base, &self.name)?;
        let id = layout.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let record = ClusterRecord {
            id,
            name: self.name.clone(),
            shape: self.settings.shape,
            nodes: self.settings.nodes,
            api_servers: self.settings.api_servers,
            detached: self.detached,
            user_namespace: !nix::unistd::geteuid().is_root(),
            node_ip: NODE_IP,
            api: API,
            tools: tools.dir().to_owned(),
            logs: logs.clone(),
            live: None,
        };
        let started = write_pki(&layout, &self.settings).and_then(|authority| {
            let (owned, live) = launch::launch(&base, &layout, &record)?;
            Ok((authority, owned, live))
        });
        match started {
            Ok((authority, owned, live)) => Ok(PreparedCluster { record, layout, live, owned, authority }),
            Err(error) => {
                // Whatever the supervisor got as far as making, it has removed; what it never saw is left to us.
                let _ = std::fs::remove_dir_all(&layout.dir);
                let _ = std::fs::remove_dir(&logs);
                Err(error)
            }
        }
    }
}

impl TestCluster {
    /// Returns the description of a cluster to start.
    pub fn builder(shape: Shape) -> TestClusterBuilder {
        TestClusterBuilder::new(shape)
    }

    /// Starts a cluster that goes on when this process ends, until `TestCluster::attach(name)` and
    /// [`TestCluster::down`]. Names of detached clusters are unique.
    pub async fn up_detached(builder: TestClusterBuilder) -> Result<TestCluster, TestClusterError> {
        if let Some(cluster) =
            TestCluster::list()?.into_iter().find(|cluster| cluster.detached && cluster.name == builder.name)
        {
            return Err(TestClusterError::Name(format!(
                "a cluster called {:?} runs already, in {}",
                cluster.name,
                cluster.dir.display()
            )));
        }
        let cluster = TestClusterBuilder { detached: true, ..builder }.start().await?;
        cluster.supervisor.detach().await?;
        on_panic::forget(&cluster.layout);
        if let Some(owned) = cluster.owned.lock().take() {
            owned.detach();
        }
        Ok(cluster)
    }
}

struct PreparedCluster {
    record: ClusterRecord,
    layout: Layout,
    live: RunningCluster,
    owned: launch::OwnedCluster,
    authority: Authority,
}

/// Ends the cluster if starting it fails before there is a [`TestCluster`].
struct StartGuard {
    layout: Layout,
    owned: Option<launch::OwnedCluster>,
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            on_panic::keep_logs(&self.layout);
            owned.end_without_waiting();
        }
    }
}

/// Certificates of all components, and the kubeconfigs of those inside.
fn write_pki(layout: &Layout, settings: &ClusterSettings) -> Result<Authority, TestClusterError> {
    let dir: PathBuf = layout.pki();
    let api_ips = [API, SECOND_API, SECOND_API_BEHIND].map(|address| address.ip());
    let authority = pki::create(&dir, &api_ips, SERVICE_IP, settings.nodes)?;
    let write = |file: &str, api: SocketAddr, user: &str| {
        kubeconfig::write(&dir, &dir.join(format!("{file}.kubeconfig")), &format!("https://{api}"), user)
    };
    for user in [name::ADMIN, name::CONTROLLER_MANAGER, name::SCHEDULER, name::KWOK] {
        write(user, API, user)?;
    }
    for node in NodeNumber::all(settings.nodes) {
        let name = node.name();
        let second = settings.node_settings.get(&name).is_some_and(|node| node.second_api_server);
        let api = if second { SECOND_API } else { API };
        write(&name, api, &name)?;
        write(&node.own(name::PROXY), api, name::PROXY)?;
    }
    Ok(authority)
}
