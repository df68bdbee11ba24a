//! A running cluster.

use std::{
    ffi::OsStr,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::Client;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::{
    client::Clients,
    components::{Component, Context},
    control::ControlClient,
    error::{During, TestClusterError},
    kubeconfig,
    launch::{self, OwnedCluster},
    node_number::NodeNumber,
    on_panic,
    pki::{self, Authority, CertificatePem},
    process::{Command, Process},
    protocol::SpawnRequest,
    shape::Shape,
    state::{self, ClusterRecord, Layout, RunningCluster},
    tools::Tools,
};

/// The number of log lines in an error.
pub(crate) const TAIL_LINES: usize = 20;

/// A Kubernetes cluster in namespaces of its own.
///
/// It ends on [`TestCluster::down`], when it is dropped, and when the process that started it ends. A cluster that
/// [`TestCluster::up_detached`] started stays until it is taken down.
pub struct TestCluster {
    pub(crate) record: ClusterRecord,
    pub(crate) live: RunningCluster,
    pub(crate) layout: Layout,
    pub(crate) tools: Tools,
    pub(crate) control: ControlClient,
    pub(crate) supervisor: ControlClient,
    pub(crate) clients: Clients,
    kubeconfig: PathBuf,
    authority: Arc<Authority>,
    pub(crate) components: Mutex<Vec<(Process, Component)>>,
    pub(crate) owned: Mutex<Option<OwnedCluster>>,
}

/// A TCP connection made inside a cluster.
pub type TestClusterStream = UnixStream;

/// A port inside the cluster that is relayed to this process. Dropping it closes the port and its connections.
#[derive(Debug)]
pub struct ExposedPort(UnixStream);

impl ExposedPort {
    /// Closes the port and waits until nothing listens on it.
    pub async fn end(mut self) -> Result<(), TestClusterError> {
        let end = async {
            self.0.shutdown().await?;
            self.0.read(&mut [0]).await
        };
        end.await.map(drop).during(|| "close a port of the cluster".to_owned())
    }
}

impl TestCluster {
    pub(crate) fn new(
        record: ClusterRecord,
        live: RunningCluster,
        layout: Layout,
        authority: Authority,
        clients: Clients,
        owned: Option<OwnedCluster>,
    ) -> Self {
        let tools = Tools::at(record.tools.clone());
        let (control, supervisor) =
            (ControlClient::new(layout.control_socket()), ControlClient::new(layout.supervisor_socket()));
        let (authority, components, owned) = (Arc::new(authority), Mutex::default(), Mutex::new(owned));
        let kubeconfig = layout.dir.join("admin.kubeconfig");
        Self {
            record,
            live,
            layout,
            tools,
            control,
            supervisor,
            clients,
            kubeconfig,
            authority,
            components,
            owned,
        }
    }

    /// Returns the name that the builder set.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Returns the name with a suffix that makes it unique.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// Returns the shape.
    pub fn shape(&self) -> Shape {
        self.record.shape
    }

    /// Returns a new client of the API server for the admin, from the host. It has no retries, timeouts or limits of
    /// its own. It belongs to the runtime in which this is called.
    pub fn client(&self) -> Client {
        self.clients.client()
    }

    /// Returns the admin's kubeconfig, for programs on the host.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the admin's kubeconfig, for programs inside the cluster's network.
    pub fn inner_kubeconfig(&self) -> PathBuf {
        self.layout.pki().join("admin.kubeconfig")
    }

    /// Returns the address on which processes inside listen, as the API server sees it.
    pub fn node_ip(&self) -> IpAddr {
        self.record.node_ip
    }

    /// Returns the URL of the API server, for processes inside.
    pub fn api_url(&self) -> String {
        format!("https://{}", self.record.api)
    }

    /// Returns the certificate of the cluster's CA.
    pub fn ca_pem(&self) -> &str {
        self.authority.cert_pem()
    }

    /// Returns a certificate for a server inside with these DNS names and addresses, signed by the cluster's CA.
    pub fn server_certificate(&self, names: &[&str]) -> Result<CertificatePem, TestClusterError> {
        self.authority.server(names.first().unwrap_or(&"server"), names)
    }

    /// Returns a client certificate for `user` in `groups` (at most two), signed by the cluster's CA. With `expired`
    /// it is not valid any more.
    pub fn client_certificate(
        &self,
        user: &str,
        groups: &[&str],
        expired: bool,
    ) -> Result<CertificatePem, TestClusterError> {
        match expired {
            false => self.authority.client(user, groups),
            true => self.authority.expired_client(user, groups),
        }
    }

    /// Writes a kubeconfig with a client certificate for `user` in `groups` (at most two), for programs inside, and
    /// returns its path.
    pub fn client_kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf, TestClusterError> {
        let file: String = user.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = format!("client-{file}");
        pki::store(&self.layout.pki(), &file, &self.authority.client(user, groups)?)?;
        let path = self.layout.dir.join(format!("{file}.kubeconfig"));
        kubeconfig::write(&self.layout.pki(), &path, &self.api_url(), &file)
    }

    /// Returns the folder of the cluster. It is removed with the cluster.
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    /// Returns the folder with a log for each component and process.
    pub fn logs_dir(&self) -> &Path {
        &self.record.logs
    }

    /// Returns the log of writes to the first API server, one JSON event a line. Returns `None` if the log is not
    /// enabled. That of a second API server is `audit-2.json` beside it.
    pub fn audit_log(&self) -> Option<PathBuf> {
        Some(self.record.logs.join("audit.json")).filter(|path| path.exists())
    }

    /// Returns the programs that the cluster runs.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Keeps the logs when the cluster ends.
    pub fn keep_logs(&self) {
        on_panic::keep_logs(&self.layout);
    }

    /// Returns the numbers of the real nodes.
    pub(crate) fn numbers(&self) -> Vec<NodeNumber> {
        let count = if self.record.shape == Shape::Node { self.record.nodes } else { 0 };
        NodeNumber::all(count).collect()
    }

    /// Returns the client of the init of a node.
    pub(crate) fn control_of(&self, node: NodeNumber) -> ControlClient {
        ControlClient::new(self.layout.control_socket_of(node))
    }

    /// Starts a program inside, beside the control plane. It ends with the cluster.
    pub async fn spawn(&self, command: Command) -> Result<Process, TestClusterError> {
        self.spawn_on(NodeNumber::FIRST, command).await
    }

    pub(crate) async fn spawn_on(
        &self,
        node: NodeNumber,
        command: Command,
    ) -> Result<Process, TestClusterError> {
        let Command { name, program, args, env, cwd } = command;
        let (name, control) = (node.own(&name), self.control_of(node));
        let log = self.record.logs.join(format!("{name}.log"));
        let path = self.tools.bin_path_env().to_string_lossy().into_owned();
        let spawn = SpawnRequest {
            name: name.clone(),
            argv: std::iter::once(program.display().to_string()).chain(args).collect(),
            env: std::iter::once(("PATH".to_owned(), path)).chain(env).collect(),
            cwd: cwd.unwrap_or_else(|| self.layout.dir.clone()),
            log: log.clone(),
        };
        let pid = control.spawn(spawn).await?;
        Ok(Process { name, pid, log, control })
    }

    /// Returns the process of a component that this process has started, such as `kube-proxy`, or `kube-proxy-node2` for
    /// the one of the second node.
    pub fn component(&self, name: &str) -> Option<Process> {
        self.running(name).map(|(process, _)| process)
    }

    pub(crate) fn running(&self, name: &str) -> Option<(Process, Component)> {
        self.components.lock().iter().find(|(process, _)| process.name == name).cloned()
    }

    /// Opens a TCP connection inside.
    pub async fn connect(&self, to: SocketAddr) -> Result<TestClusterStream, TestClusterError> {
        self.control.connect(to).await
    }

    /// Listens on `at` inside and relays every connection to the Unix socket `to`, so that processes inside can reach
    /// a server of this process.
    pub async fn expose(&self, at: SocketAddr, to: PathBuf) -> Result<ExposedPort, TestClusterError> {
        Ok(ExposedPort(self.control.expose(at, to).await?))
    }

    /// Opens a loopback port of the host and relays its connections to `to` inside, as long as the cluster lives.
    pub async fn forward(&self, to: SocketAddr) -> Result<SocketAddr, TestClusterError> {
        self.supervisor.forward(to).await
    }

    /// Returns a command that runs in the network of the control plane and of the first node, with the host's files and processes, and with
    /// `KUBECONFIG` and `PATH` set for kubectl and helm.
    pub fn exec_command(&self, argv: impl IntoIterator<Item = impl AsRef<OsStr>>) -> std::process::Command {
        self.command_in_network_of(self.live.init_pid, argv)
    }

    /// Returns a command that runs in the network of the process `pid` of the host.
    pub(crate) fn command_in_network_of(
        &self,
        pid: i32,
        argv: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> std::process::Command {
        let mut command = std::process::Command::new("nsenter");
        command.arg("-t").arg(pid.to_string());
        if self.record.user_namespace {
            command.args(["-U", "--preserve-credentials"]);
        }
        command.args(["-n", "--"]).args(argv);
        command.env("KUBECONFIG", self.inner_kubeconfig()).env("PATH", self.tools.bin_path_env());
        command
    }

    /// Ends the cluster and waits until its processes, namespaces, mounts, cgroups and files are gone.
    pub async fn down(&self) -> Result<(), TestClusterError> {
        let owned = self.owned.lock().take();
        let layout = self.layout.clone();
        on_panic::forget(&layout);
        if owned.is_none() && layout.lives() {
            self.supervisor.stop().await?;
        }
        blocking(move || match owned {
            Some(owned) => owned.end(&layout),
            None => launch::wait_gone(&layout),
        })
        .await
    }

    /// Returns the cluster with this name or id, which another process started.
    pub async fn attach(name: &str) -> Result<TestCluster, TestClusterError> {
        let mut clusters =
            TestCluster::list()?.into_iter().filter(|cluster| cluster.name == name || cluster.id == name);
        let cluster = clusters
            .next_back()
            .ok_or_else(|| TestClusterError::Name(format!("no cluster called {name:?} runs")))?;
        let layout = Layout::new(cluster.dir);
        let record = layout.read()?;
        let live = record
            .live
            .ok_or_else(|| TestClusterError::Name(format!("cluster {name:?} is still starting")))?;
        let authority = Authority::load(&layout.pki(), pki::name::CA)?;
        let clients = Clients::from_kubeconfig(&layout.dir.join("admin.kubeconfig")).await?;
        Ok(TestCluster::new(record, live, layout, authority, clients, None))
    }

    /// Returns the running clusters of this user, sorted by name.
    pub fn list() -> Result<Vec<TestClusterInfo>, TestClusterError> {
        let mut clusters: Vec<TestClusterInfo> = state::clusters(&state::base()?)
            .into_iter()
            .filter(Layout::lives)
            .filter_map(|layout| Some((layout.read().ok()?, layout.dir)))
            .map(|(record, dir)| TestClusterInfo {
                id: record.id,
                name: record.name,
                shape: record.shape,
                detached: record.detached,
                dir,
            })
            .collect();
        clusters.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Ok(clusters)
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { record: &self.record, tools: &self.tools, dir: &self.layout.dir }
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.lock().take() {
            if std::thread::panicking() {
                self.keep_logs();
            }
            on_panic::forget(&self.layout);
            owned.end_without_waiting();
        }
    }
}

/// A summary of a cluster. It needs no connection to the cluster.
#[derive(Clone, Debug)]
pub struct TestClusterInfo {
    /// The cluster's unique id.
    pub id: String,
    /// The name that the builder set.
    pub name: String,
    /// The shape.
    pub shape: Shape,
    /// True if the cluster stays when the process that started it ends.
    pub detached: bool,
    /// The folder of the cluster.
    pub dir: PathBuf,
}

pub(crate) fn died(process: &Process, exit: crate::exit::Exit) -> TestClusterError {
    TestClusterError::Died {
        name: process.name.clone(),
        exit,
        log: process.log.clone(),
        tail: process.log_tail(TAIL_LINES),
    }
}

/// Runs blocking code on a thread for blocking code.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TestClusterError> + Send + 'static,
) -> Result<T, TestClusterError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(TestClusterError::Io { what: "run a blocking step".to_owned(), source: error.into() })
    })
}
