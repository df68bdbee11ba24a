//! Where things run: in a bed, or on this machine beside a cluster that the user has.

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
use podward_testbed::{Bed, CertificatePem, Command, Process};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use self::local::{Local, LocalExposed, LocalProcess};

/// The first of the ports that services get inside a bed.
const FIRST_PORT: u16 = 18_400;

/// A cluster, and a place from which its API server can be reached and which its API server can reach.
#[derive(Clone, Debug)]
pub struct Cluster {
    place: Place,
    next_port: Arc<AtomicU16>,
}

#[derive(Clone)]
enum Place {
    Bed(Arc<Bed>),
    Local(Arc<Local>),
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bed(bed) => f.debug_tuple("Bed").field(&bed.id()).finish(),
            Self::Local(local) => local.fmt(f),
        }
    }
}

/// A connection to a service.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Cluster {
    /// The cluster of a bed. Services run inside it.
    #[must_use]
    pub fn of_bed(bed: Arc<Bed>) -> Self {
        Self::new(Place::Bed(bed))
    }

    /// The cluster of a kubeconfig. Services run on this machine; the cluster's API server has to reach them at `address`,
    /// by default the address from which this machine speaks to the cluster's first node.
    ///
    /// # Errors
    /// When the kubeconfig can't be used, or no address is given and none can be found.
    pub async fn existing(kubeconfig: &Path, address: Option<IpAddr>) -> Result<Self> {
        let local = Local::new(kubeconfig, address).await;
        let local = local.with_context(|| format!("use the cluster of {}", kubeconfig.display()))?;
        Ok(Self::new(Place::Local(Arc::new(local))))
    }

    fn new(place: Place) -> Self {
        Self { place, next_port: Arc::new(AtomicU16::new(FIRST_PORT)) }
    }

    /// The bed, if it is one.
    #[must_use]
    pub fn bed(&self) -> Option<&Arc<Bed>> {
        match &self.place {
            Place::Bed(bed) => Some(bed),
            Place::Local(_) => None,
        }
    }

    /// A client with an administrator's rights, of the present runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        match &self.place {
            Place::Bed(bed) => bed.client(),
            Place::Local(local) => local.client(),
        }
    }

    /// Whether the cluster goes with this value; if not, what is made in it must be taken away again.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.place, Place::Bed(_))
    }

    /// The address at which the API server reaches services.
    #[must_use]
    pub fn service_address(&self) -> IpAddr {
        match &self.place {
            Place::Bed(bed) => bed.node_ip(),
            Place::Local(local) => local.address(),
        }
    }

    /// The `cluster` entry of a kubeconfig for services.
    ///
    /// # Errors
    /// When the CA can't be written to a file.
    pub(crate) fn entry(&self) -> Result<Value> {
        match &self.place {
            Place::Bed(bed) => {
                let ca = bed.dir().join("services-ca.crt");
                crate::private_file(&ca, bed.ca_pem())?;
                Ok(json!({"server": bed.api_url(), "certificate-authority": ca}))
            }
            Place::Local(local) => Ok(local.entry()),
        }
    }

    /// A folder for files of services.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        match &self.place {
            Place::Bed(bed) => bed.dir().to_owned(),
            Place::Local(local) => local.dir().to_owned(),
        }
    }

    /// The folder with the logs of everything that runs.
    #[must_use]
    pub fn logs_dir(&self) -> PathBuf {
        match &self.place {
            Place::Bed(bed) => bed.logs_dir().to_owned(),
            Place::Local(local) => local.dir().to_owned(),
        }
    }

    /// Removes the files of services, logs too; those of a bed go with it.
    pub(crate) fn clear(&self) -> Result<()> {
        match &self.place {
            Place::Bed(_) => Ok(()),
            Place::Local(local) => {
                let dir = local.dir();
                std::fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))
            }
        }
    }

    /// A certificate for a server at `names`.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn server_certificate(&self, names: &[&str]) -> Result<CertificatePem> {
        match &self.place {
            Place::Bed(bed) => Ok(bed.server_certificate(names)?),
            Place::Local(local) => local.server_certificate(names),
        }
    }

    /// A certificate of a client that is `user` in `groups` (at most two) to services, signed by the same CA; one that has expired, if
    /// it is to have.
    ///
    /// # Errors
    /// When it can't be made, which is so where the cluster isn't a bed.
    pub fn client_certificate(&self, user: &str, groups: &[&str], expired: bool) -> Result<CertificatePem> {
        let bed = self.bed().context("certificates of clients are made in beds only")?;
        Ok(bed.client_certificate(user, groups, expired)?)
    }

    /// The CA of [`server_certificate`](Self::server_certificate), which the API server is to trust, as PEM.
    #[must_use]
    pub fn server_ca(&self) -> String {
        match &self.place {
            Place::Bed(bed) => bed.ca_pem().to_owned(),
            Place::Local(local) => local.server_ca(),
        }
    }

    /// An address for a service.
    ///
    /// # Errors
    /// When there is no free port.
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
    /// When it can't be started.
    pub async fn spawn(&self, command: ServiceCommand) -> Result<ServiceProcess> {
        let what = format!("start {}", command.name);
        let started = match &self.place {
            Place::Bed(bed) => {
                let of_bed = Command::new(command.name, command.program).args(command.args);
                bed.spawn(of_bed).await.map(ServiceProcess::Bed).map_err(Into::into)
            }
            Place::Local(local) => LocalProcess::start(command, local.dir()).map(ServiceProcess::Local),
        };
        started.context(what)
    }

    /// Where this process reaches what listens at `to` where services run.
    ///
    /// # Errors
    /// When the way can't be opened.
    pub async fn reach(&self, to: SocketAddr) -> Result<SocketAddr> {
        match &self.place {
            Place::Bed(bed) => Ok(bed.forward(to).await?),
            Place::Local(_) => Ok(to),
        }
    }

    /// Listens at `at` where services run, and relays every connection to the Unix socket `to` of this process.
    ///
    /// # Errors
    /// When nobody can listen there.
    pub async fn expose(&self, at: SocketAddr, to: &Path) -> Result<Exposed> {
        match &self.place {
            Place::Bed(bed) => Ok(Exposed::Bed(bed.expose(at, to.to_owned()).await?)),
            Place::Local(_) => Ok(Exposed::Local(local::expose(at, to.to_owned()).await?)),
        }
    }

    /// Opens a connection to a service.
    pub(crate) async fn connect(&self, to: SocketAddr) -> Result<Box<dyn Stream>> {
        match &self.place {
            Place::Bed(bed) => Ok(Box::new(bed.connect(to).await?)),
            Place::Local(_) => Ok(Box::new(tokio::net::TcpStream::connect(to).await?)),
        }
    }
}

/// A port where services run that leads to this process. It is closed when this is dropped, and connections with it.
#[derive(Debug)]
pub enum Exposed {
    /// Inside a bed.
    Bed(podward_testbed::Exposed),
    /// On this machine.
    Local(LocalExposed),
}

impl Exposed {
    /// Closes it, and waits until nobody listens there any more.
    ///
    /// # Errors
    /// When that can't be told.
    pub async fn end(self) -> Result<()> {
        match self {
            Self::Bed(exposed) => exposed.end().await.map_err(Into::into),
            Self::Local(exposed) => {
                exposed.end().await;
                Ok(())
            }
        }
    }
}

/// A program to start.
#[derive(Clone, Debug)]
pub struct ServiceCommand {
    /// Names its log.
    pub name: String,
    /// The file.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

/// A program that was started.
#[derive(Debug)]
pub enum ServiceProcess {
    /// Inside a bed; ends with it.
    Bed(Process),
    /// On this machine; ends when this is dropped.
    Local(LocalProcess),
}

impl ServiceProcess {
    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// When it can't be told to end, or ends with a failure.
    pub async fn stop(&mut self) -> Result<()> {
        match self {
            Self::Bed(process) => {
                let exit = process.stop().await?;
                anyhow::ensure!(
                    exit.success(),
                    "{} ended with {exit}: {}",
                    process.name(),
                    process.log_tail(10)
                );
                Ok(())
            }
            Self::Local(process) => process.stop().await,
        }
    }

    /// Sends a signal by its number.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn signal(&self, signal: i32) -> Result<()> {
        match self {
            Self::Bed(process) => process.signal(signal).await.map_err(Into::into),
            Self::Local(process) => process.signal(signal),
        }
    }

    /// SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// When it can't be killed.
    pub async fn kill(&mut self) -> Result<()> {
        match self {
            Self::Bed(process) => process.kill().await.map(drop).map_err(Into::into),
            Self::Local(process) => process.kill().await,
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        match self {
            Self::Bed(process) => process.is_running(),
            Self::Local(process) => process.is_running(),
        }
    }

    /// Its log.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        match self {
            Self::Bed(process) => process.log_path(),
            Self::Local(process) => process.log_path(),
        }
    }

    /// The last `lines` lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}
