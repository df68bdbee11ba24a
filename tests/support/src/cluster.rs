//! The cluster that everything runs on, and the place where services run: inside a test cluster, or on this machine
//! beside an existing cluster.

mod command;
mod local;

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use anyhow::{Context, Result};
use kube::Client;
use podward_testbed::{CertificatePem, Command, Process, TestCluster};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::command::ServiceCommand;
use self::local::{LocalExposedServer, LocalMachine, LocalProcess};
use crate::private_file;

/// The first port of services inside a test cluster.
const FIRST_PORT: u16 = 18_400;

/// A cluster, with the place where services run. Services reach its API server, and its API server reaches services.
#[derive(Clone, Debug)]
pub struct Cluster {
    place: ClusterPlace,
    next_port: Arc<AtomicU16>,
}

#[derive(Clone)]
enum ClusterPlace {
    TestCluster(Arc<TestCluster>),
    LocalMachine(Arc<LocalMachine>),
}

impl std::fmt::Debug for ClusterPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TestCluster(test_cluster) => {
                f.debug_tuple("TestCluster").field(&test_cluster.id()).finish()
            }
            Self::LocalMachine(local) => local.fmt(f),
        }
    }
}

/// A connection to a service.
pub trait ClusterStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ClusterStream for T {}

impl Cluster {
    /// Returns a test cluster. Services run inside it.
    #[must_use]
    pub fn of_test_cluster(test_cluster: Arc<TestCluster>) -> Self {
        Self::new(ClusterPlace::TestCluster(test_cluster))
    }

    /// Returns the cluster of a kubeconfig. Services run on this machine. The API server has to reach them at
    /// `address`, by default the address of this machine that faces the cluster's first node.
    ///
    /// # Errors
    /// Fails if the kubeconfig cannot be used, or no address is given and none is found.
    pub async fn existing(kubeconfig: &Path, address: Option<IpAddr>) -> Result<Self> {
        let local = LocalMachine::new(kubeconfig, address).await;
        let local = local.with_context(|| format!("use the cluster of {}", kubeconfig.display()))?;
        Ok(Self::new(ClusterPlace::LocalMachine(Arc::new(local))))
    }

    fn new(place: ClusterPlace) -> Self {
        Self { place, next_port: Arc::new(AtomicU16::new(FIRST_PORT)) }
    }

    /// Returns the test cluster. Returns `None` for an existing cluster.
    #[must_use]
    pub fn test_cluster(&self) -> Option<&Arc<TestCluster>> {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => Some(test_cluster),
            ClusterPlace::LocalMachine(_) => None,
        }
    }

    /// Returns a client with the rights of an administrator. It belongs to the current runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => test_cluster.client(),
            ClusterPlace::LocalMachine(local) => local.client(),
        }
    }

    /// Returns whether the cluster ends with this value. Otherwise, objects that are created in it must be removed.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.place, ClusterPlace::TestCluster(_))
    }

    /// Returns the address at which the API server reaches services.
    #[must_use]
    pub fn service_address(&self) -> IpAddr {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => test_cluster.node_ip(),
            ClusterPlace::LocalMachine(local) => local.address(),
        }
    }

    /// Returns the `cluster` entry of a kubeconfig for services.
    ///
    /// # Errors
    /// Fails if the CA cannot be written to a file.
    pub(crate) fn entry(&self) -> Result<Value> {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => {
                let ca = test_cluster.dir().join("services-ca.crt");
                private_file(&ca, test_cluster.ca_pem())?;
                Ok(json!({"server": test_cluster.api_url(), "certificate-authority": ca}))
            }
            ClusterPlace::LocalMachine(local) => Ok(local.entry()),
        }
    }

    /// Returns a folder for files of services.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => test_cluster.dir().to_owned(),
            ClusterPlace::LocalMachine(local) => local.dir().to_owned(),
        }
    }

    /// Returns the folder with the logs of everything that runs.
    #[must_use]
    pub fn logs_dir(&self) -> PathBuf {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => test_cluster.logs_dir().to_owned(),
            ClusterPlace::LocalMachine(local) => local.dir().to_owned(),
        }
    }

    /// Removes the files of services, including logs. The files in a test cluster are removed with it.
    pub(crate) fn clear(&self) -> Result<()> {
        match &self.place {
            ClusterPlace::TestCluster(_) => Ok(()),
            ClusterPlace::LocalMachine(local) => {
                let dir = local.dir();
                std::fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))
            }
        }
    }

    /// Returns a certificate for a server at `names`.
    ///
    /// # Errors
    /// Fails if the certificate cannot be created.
    pub fn server_certificate(&self, names: &[&str]) -> Result<CertificatePem> {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => Ok(test_cluster.server_certificate(names)?),
            ClusterPlace::LocalMachine(local) => local.server_certificate(names),
        }
    }

    /// Returns a client certificate for `user` in `groups` (at most two), signed by the CA of services. With
    /// `expired` it is not valid any more.
    ///
    /// # Errors
    /// Fails if the cluster is not a test cluster, or the certificate cannot be created.
    pub fn client_certificate(&self, user: &str, groups: &[&str], expired: bool) -> Result<CertificatePem> {
        let test_cluster =
            self.test_cluster().context("certificates of clients are made in test clusters only")?;
        Ok(test_cluster.client_certificate(user, groups, expired)?)
    }

    /// Returns the CA of [`server_certificate`](Self::server_certificate) as PEM. The API server has to trust it.
    #[must_use]
    pub fn server_ca(&self) -> String {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => test_cluster.ca_pem().to_owned(),
            ClusterPlace::LocalMachine(local) => local.server_ca(),
        }
    }

    /// Returns an address for a service.
    ///
    /// # Errors
    /// Fails if there is no free port.
    pub async fn free_address(&self) -> Result<SocketAddr> {
        let address = self.service_address();
        if self.is_ours() {
            return Ok(SocketAddr::new(address, self.next_port.fetch_add(1, Ordering::SeqCst)));
        }
        let listener = tokio::net::TcpListener::bind((address, 0)).await;
        let listener = listener.with_context(|| format!("find a free port at {address}"))?;
        listener.local_addr().context("learn which port is free")
    }

    /// Starts a program where services run.
    ///
    /// # Errors
    /// Fails if it cannot be started.
    pub async fn spawn(&self, command: ServiceCommand) -> Result<ServiceProcess> {
        let what = format!("start {}", command.name);
        let started = match &self.place {
            ClusterPlace::TestCluster(test_cluster) => {
                let of_test_cluster = Command::new(command.name, command.program).args(command.args);
                test_cluster.spawn(of_test_cluster).await.map(ServiceProcess::TestCluster).map_err(Into::into)
            }
            ClusterPlace::LocalMachine(local) => {
                LocalProcess::start(command, local.dir()).map(ServiceProcess::LocalMachine)
            }
        };
        started.context(what)
    }

    /// Returns the address at which this process reaches `to`, an address where services run.
    ///
    /// # Errors
    /// Fails if the port cannot be forwarded.
    pub async fn reach(&self, to: SocketAddr) -> Result<SocketAddr> {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => Ok(test_cluster.forward(to).await?),
            ClusterPlace::LocalMachine(_) => Ok(to),
        }
    }

    /// Listens on `at` where services run, and relays every connection to the Unix socket `to` of this process.
    ///
    /// # Errors
    /// Fails if the port cannot be opened.
    pub async fn expose(&self, at: SocketAddr, to: &Path) -> Result<ExposedServer> {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => {
                Ok(ExposedServer::TestCluster(test_cluster.expose(at, to.to_owned()).await?))
            }
            ClusterPlace::LocalMachine(_) => {
                Ok(ExposedServer::LocalMachine(local::expose(at, to.to_owned()).await?))
            }
        }
    }

    /// Opens a connection to a service.
    ///
    /// # Errors
    /// Fails if nothing listens there.
    pub async fn connect(&self, to: SocketAddr) -> Result<Box<dyn ClusterStream>> {
        match &self.place {
            ClusterPlace::TestCluster(test_cluster) => Ok(Box::new(test_cluster.connect(to).await?)),
            ClusterPlace::LocalMachine(_) => Ok(Box::new(tokio::net::TcpStream::connect(to).await?)),
        }
    }
}

/// A port where services run that is relayed to this process. Dropping it closes the port and its connections.
#[derive(Debug)]
pub enum ExposedServer {
    /// Inside a test cluster.
    TestCluster(podward_testbed::ExposedPort),
    /// On this machine.
    LocalMachine(LocalExposedServer),
}

impl ExposedServer {
    /// Closes the port and waits until nothing listens on it.
    ///
    /// # Errors
    /// Fails if the end cannot be observed.
    pub async fn end(self) -> Result<()> {
        match self {
            Self::TestCluster(exposed) => exposed.end().await.map_err(Into::into),
            Self::LocalMachine(exposed) => {
                exposed.end().await;
                Ok(())
            }
        }
    }
}

/// A running program.
#[derive(Debug)]
pub enum ServiceProcess {
    /// A process inside a test cluster. It ends with the cluster.
    TestCluster(Process),
    /// A process on this machine. It ends when this is dropped.
    LocalMachine(LocalProcess),
}

impl ServiceProcess {
    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// Fails if the signal cannot be sent, or the process ends with a failure.
    pub async fn stop(&mut self) -> Result<()> {
        match self {
            Self::TestCluster(process) => {
                let exit = process.stop().await?;
                anyhow::ensure!(
                    exit.success(),
                    "{} ended with {exit}: {}",
                    process.name(),
                    process.log_tail(10)
                );
                Ok(())
            }
            Self::LocalMachine(process) => process.stop().await,
        }
    }

    /// Sends a signal, by its number.
    ///
    /// # Errors
    /// Fails if the process does not run.
    pub async fn signal(&self, signal: i32) -> Result<()> {
        match self {
            Self::TestCluster(process) => process.signal(signal).await.map_err(Into::into),
            Self::LocalMachine(process) => process.signal(signal),
        }
    }

    /// Sends SIGKILL and waits for the end.
    ///
    /// # Errors
    /// Fails if the process cannot be killed.
    pub async fn kill(&mut self) -> Result<()> {
        match self {
            Self::TestCluster(process) => process.kill().await.map(drop).map_err(Into::into),
            Self::LocalMachine(process) => process.kill().await,
        }
    }

    /// Returns whether it still runs.
    pub fn is_running(&mut self) -> bool {
        match self {
            Self::TestCluster(process) => process.is_running(),
            Self::LocalMachine(process) => process.is_running(),
        }
    }

    /// Returns the path of its log.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        match self {
            Self::TestCluster(process) => process.log_path(),
            Self::LocalMachine(process) => process.log_path(),
        }
    }

    /// Returns the last `lines` lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}
