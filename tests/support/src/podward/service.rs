//! One service: a process that can be stopped and started again at the same address.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail};
use hyper::StatusCode;
use nix::sys::signal::Signal;
use tokio::{sync::Mutex, time::Instant};

use podward_images::BuiltPrograms;

use super::{
    args::{self, ServiceAddresses},
    kind::ServiceKind,
    options::PodwardOptions,
};
use crate::{
    ask,
    cluster::{Cluster, ServiceCommand, ServiceProcess},
    memory,
    wait::{WAIT, within},
};

/// The interval at which readiness is queried.
const POLL: Duration = Duration::from_millis(20);

/// One service process.
#[derive(Debug)]
pub struct PodwardService {
    cluster: Cluster,
    kind: ServiceKind,
    command: ServiceCommand,
    admin: SocketAddr,
    serves: SocketAddr,
    process: Mutex<Option<ServiceProcess>>,
}

impl PodwardService {
    /// Prepares the addresses, the certificate and the identity of a service.
    pub(super) async fn prepare(
        cluster: &Cluster,
        options: &PodwardOptions,
        programs: &BuiltPrograms,
        controllers: &[SocketAddr],
        kind: ServiceKind,
        number: usize,
    ) -> Result<Self> {
        let name = format!("{kind}-{number}");
        let serves = match controllers.get(number).filter(|_| kind == ServiceKind::LifecycleController) {
            Some(address) => *address,
            None => cluster.free_address().await?,
        };
        let admin = cluster.free_address().await?;
        let addresses = ServiceAddresses { admin, serves, controllers };
        let args = args::of(cluster, options, kind, &name, addresses).await?;
        let program = programs.path(kind.as_str())?;
        let command = ServiceCommand { name, program, args };
        Ok(Self { cluster: cluster.clone(), kind, command, admin, serves, process: Mutex::default() })
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ServiceKind {
        self.kind
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.command.name
    }

    /// Returns the address of its own API: admission reviews, or gRPC.
    #[must_use]
    pub fn serves_at(&self) -> SocketAddr {
        self.serves
    }

    /// Starts the process, unless it runs, and waits until it is ready.
    ///
    /// # Errors
    /// Fails if it ends or is not ready within [`WAIT`]. The message contains the end of its log.
    pub async fn start(&self) -> Result<()> {
        let mut slot = self.process.lock().await;
        if slot.as_mut().is_some_and(ServiceProcess::is_running) {
            return Ok(());
        }
        let process = slot.insert(self.cluster.spawn(self.command.clone()).await?);
        let deadline = Instant::now() + WAIT;
        loop {
            if self.is_ready().await {
                return Ok(());
            }
            if !process.is_running() {
                bail!("{} ended at once; its log says:\n{}", self.name(), process.log_tail(20));
            }
            if Instant::now() > deadline {
                bail!(
                    "{} is not ready after {} s; its log says:\n{}",
                    self.name(),
                    WAIT.as_secs(),
                    process.log_tail(20)
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns whether `holder` is the identity of one of its processes in a Lease.
    pub(super) fn is_known_as(&self, holder: &str) -> bool {
        holder.contains(&format!("_{}_", self.name()))
    }

    async fn is_ready(&self) -> bool {
        let asked = ask::get(&self.cluster, self.admin, "/readyz");
        let asked = tokio::time::timeout(Duration::from_secs(1), asked).await;
        matches!(asked, Ok(Ok((StatusCode::OK, _))))
    }

    /// Sends SIGTERM and waits for the end. Does nothing if the process does not run.
    ///
    /// # Errors
    /// Fails if it ends with a failure.
    pub async fn stop(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.stop().await.with_context(|| format!("stop {}", self.name())),
            None => Ok(()),
        }
    }

    /// Sends SIGKILL and waits for the end. Does nothing if the process does not run.
    ///
    /// # Errors
    /// Fails if it cannot be killed.
    pub async fn kill(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.kill().await.with_context(|| format!("kill {}", self.name())),
            None => Ok(()),
        }
    }

    /// Sends SIGSTOP: the process exists but does nothing, and does not close connections.
    ///
    /// # Errors
    /// Fails if it does not run.
    pub async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP).await
    }

    /// Sends SIGCONT: the process continues.
    ///
    /// # Errors
    /// Fails if it does not run.
    pub async fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT).await
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let slot = self.process.lock().await;
        let process = slot.as_ref().with_context(|| format!("{} does not run", self.name()))?;
        process.signal(signal as i32).await.with_context(|| format!("send {signal} to {}", self.name()))
    }

    /// Returns whether the process runs. A service that is starting or stopping counts as running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.try_lock().map_or(true, |mut slot| slot.as_mut().is_some_and(ServiceProcess::is_running))
    }

    /// Returns its metrics.
    ///
    /// # Errors
    /// Fails if it does not respond.
    pub async fn metrics(&self) -> Result<String> {
        let ask = async { ask::get(&self.cluster, self.admin, "/metrics").await };
        let (status, body) = within(WAIT, || format!("the metrics of {}", self.name()), ask).await?;
        anyhow::ensure!(status == StatusCode::OK, "{} answers {status} for its metrics", self.name());
        Ok(body)
    }

    /// Returns its resident memory, in bytes.
    ///
    /// # Errors
    /// Fails if it does not run on this machine.
    pub fn memory(&self) -> Result<u64> {
        memory::of_command(&self.command.args)
            .with_context(|| format!("look at the memory of {}", self.name()))
    }

    /// Returns the end of its log.
    #[must_use]
    pub fn diagnostics(&self) -> String {
        match self.process.try_lock() {
            Ok(slot) => match slot.as_ref() {
                Some(process) => {
                    format!(
                        "--- {} ({})\n{}",
                        self.name(),
                        process.log_path().display(),
                        process.log_tail(15)
                    )
                }
                None => format!("--- {} does not run", self.name()),
            },
            Err(_) => format!("--- {} is just being started or stopped", self.name()),
        }
    }
}
