//! This machine as the place where services run, beside an existing cluster.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podward_testbed::CertificatePem;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tokio::{
    net::{TcpListener, UnixStream},
    process::{Child, Command},
    task::{JoinHandle, JoinSet},
};

use super::command::ServiceCommand;
use crate::wait::{WAIT, within};

/// This machine, and the connection to the cluster.
pub(crate) struct LocalMachine {
    client: Client,
    /// The cluster's entry in the kubeconfig.
    entry: Value,
    address: IpAddr,
    dir: PathBuf,
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for LocalMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalMachine")
            .field("cluster", &self.entry["server"])
            .field("address", &self.address)
            .finish()
    }
}

impl LocalMachine {
    pub(super) async fn new(kubeconfig: &Path, address: Option<IpAddr>) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
        let entry = cluster_entry(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.context("understand the kubeconfig")?;
        let client = Client::try_from(config).context("make a client")?;
        let address = match address {
            Some(address) => address,
            None => address_towards_nodes(client.clone()).await?,
        };
        let key = KeyPair::generate().context("make the key of a certificate authority")?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Some clients take a certificate whose issuer has the same name for self-signed.
        params.distinguished_name.push(DnType::CommonName, "podward-services");
        let ca_pem = params.self_signed(&key).context("make a certificate authority")?.pem();
        let dir = tempfile::Builder::new()
            .prefix("podward-")
            .tempdir()
            .context("make a folder for services")?
            .keep();
        Ok(Self { client, entry, address, dir, ca_pem, issuer: Issuer::new(params, key) })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    pub(super) fn entry(&self) -> Value {
        self.entry.clone()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn server_certificate(&self, names: &[&str]) -> Result<CertificatePem> {
        let make = || {
            let params =
                CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
            let key = KeyPair::generate()?;
            let cert = params.signed_by(&key, &self.issuer)?.pem();
            Ok::<_, rcgen::Error>(CertificatePem { cert, key: key.serialize_pem() })
        };
        make().with_context(|| format!("make a certificate for {names:?}"))
    }

    pub(super) fn server_ca(&self) -> String {
        self.ca_pem.clone()
    }
}

/// Returns the `cluster` of the current context, with paths made absolute by the reader.
fn cluster_entry(kubeconfig: &Kubeconfig) -> Result<Value> {
    let current = kubeconfig.current_context.as_deref().context("the kubeconfig has no current-context")?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == current);
    let context = context.and_then(|context| context.context.as_ref());
    let context = context.with_context(|| format!("the kubeconfig has no context {current}"))?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|cluster| cluster.cluster.as_ref());
    let cluster = cluster.with_context(|| format!("the kubeconfig has no cluster {}", context.cluster))?;
    serde_json::to_value(cluster).context("copy the kubeconfig's cluster")
}

/// Returns the address of this machine that faces the cluster's first node. No packet is sent: connecting a datagram
/// socket only queries the routing table.
async fn address_towards_nodes(client: Client) -> Result<IpAddr> {
    let nodes =
        Api::<Node>::all(client).list(&ListParams::default().limit(1)).await.context("list the nodes")?;
    let status = nodes.items.first().and_then(|node| node.status.as_ref());
    let addresses = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses
        .filter(|address| address.type_ == "InternalIP")
        .find_map(|address| address.address.parse().ok());
    let Some(node): Option<IpAddr> = internal else {
        bail!(
            "the first node has no InternalIP: say at which address the API server reaches this machine (--address)"
        );
    };
    let any: SocketAddr = if node.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).context("make a socket")?;
    socket.connect((node, 10250)).with_context(|| format!("find the way to node {node}"))?;
    Ok(socket.local_addr().context("learn this machine's address")?.ip())
}

/// A service on this machine. It is killed when this is dropped.
#[derive(Debug)]
pub struct LocalProcess {
    name: String,
    child: Child,
    log: PathBuf,
}

impl LocalProcess {
    pub(super) fn start(command: ServiceCommand, dir: &Path) -> Result<Self> {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let log = dir.join(format!("{}-{}.log", command.name, STARTS.fetch_add(1, Ordering::SeqCst)));
        let file = std::fs::File::create(&log).with_context(|| format!("make the log {}", log.display()))?;
        let errors = file.try_clone().with_context(|| format!("share the log {}", log.display()))?;
        let child = Command::new(&command.program)
            .args(&command.args)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("run {}", command.program.display()))?;
        Ok(Self { name: command.name, child, log })
    }

    pub(super) async fn stop(&mut self) -> Result<()> {
        if let Some(id) = self.child.id() {
            let pid = Pid::from_raw(i32::try_from(id).context("a process id")?);
            kill(pid, Signal::SIGTERM).with_context(|| format!("send SIGTERM to {}", self.name))?;
        }
        let what = || format!("the end of {}", self.name);
        let status =
            within(WAIT, what, async { self.child.wait().await.context("wait for the process") }).await?;
        anyhow::ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }

    pub(super) fn signal(&self, signal: i32) -> Result<()> {
        let id = self.child.id().with_context(|| format!("{} has ended", self.name))?;
        let (pid, signal) =
            (Pid::from_raw(i32::try_from(id).context("a process id")?), Signal::try_from(signal)?);
        kill(pid, signal).with_context(|| format!("send {signal} to {}", self.name))
    }

    pub(super) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("kill {}", self.name))
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn log_path(&self) -> &Path {
        &self.log
    }
}

/// A port that is relayed to a Unix socket. Dropping it closes the port.
#[derive(Debug)]
pub struct LocalExposedServer {
    task: JoinHandle<()>,
}

pub(super) async fn expose(at: SocketAddr, to: PathBuf) -> Result<LocalExposedServer> {
    let listener = TcpListener::bind(at).await.with_context(|| format!("listen at {at}"))?;
    let task = tokio::spawn(async move {
        let mut relays = JoinSet::new();
        loop {
            tokio::select! {
                Ok((mut tcp, _)) = listener.accept() => {
                    let to = to.clone();
                    relays.spawn(async move {
                        let mut ours = UnixStream::connect(to).await?;
                        tokio::io::copy_bidirectional(&mut tcp, &mut ours).await
                    });
                }
                Some(_) = relays.join_next() => {}
            }
        }
    });
    Ok(LocalExposedServer { task })
}

impl LocalExposedServer {
    pub(super) async fn end(mut self) {
        self.task.abort();
        // The task was told to end, so its result does not matter.
        let _ = (&mut self.task).await;
    }
}

impl Drop for LocalExposedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
