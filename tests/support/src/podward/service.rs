//! One service: a process that can be ended and started again at the same address.

use std::{
    fmt,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use hyper::StatusCode;
use nix::sys::signal::Signal;
use tokio::{sync::Mutex, time::Instant};

use super::{
    Podward,
    args::{self, Addresses},
};
use crate::{
    ask,
    cluster::{Cluster, ServiceCommand, ServiceProcess},
    memory,
    wait::{WAIT, within},
};

/// How often a service is asked whether it is ready.
const POLL: Duration = Duration::from_millis(20);

/// Podward's services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `mutating-webhook`.
    MutatingWebhook,
    /// `validating-webhook`.
    ValidatingWebhook,
    /// `lifecycle-controller`.
    LifecycleController,
    /// `traffic-controller`.
    TrafficController,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] =
        [Kind::MutatingWebhook, Kind::ValidatingWebhook, Kind::LifecycleController, Kind::TrafficController];

    /// The name of its program, its service account and its Service.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::MutatingWebhook => "mutating-webhook",
            Kind::ValidatingWebhook => "validating-webhook",
            Kind::LifecycleController => "lifecycle-controller",
            Kind::TrafficController => "traffic-controller",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One service.
#[derive(Debug)]
pub struct Service {
    cluster: Cluster,
    kind: Kind,
    command: ServiceCommand,
    admin: SocketAddr,
    serves: SocketAddr,
    starts: AtomicUsize,
    process: Mutex<Option<ServiceProcess>>,
}

impl Service {
    /// Gives the service what it needs: addresses, a certificate, an identity.
    pub(super) async fn prepare(podward: &Podward, kind: Kind, number: usize) -> Result<Self> {
        let Podward { cluster, options, programs, controllers, .. } = podward;
        let name = format!("{kind}-{number}");
        let serves = match controllers.get(number).filter(|_| kind == Kind::LifecycleController) {
            Some(address) => *address,
            None => cluster.free_address().await?,
        };
        let admin = cluster.free_address().await?;
        let addresses = Addresses { admin, serves, controllers };
        let args = args::of(cluster, options, kind, &name, addresses).await?;
        let program = programs.path(kind.as_str())?;
        let command = ServiceCommand { name, program, args };
        Ok(Self {
            cluster: cluster.clone(),
            kind,
            command,
            admin,
            serves,
            starts: AtomicUsize::new(0),
            process: Mutex::default(),
        })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.command.name
    }

    /// Where it serves what it is there for: admission reviews, or gRPC.
    #[must_use]
    pub fn serves_at(&self) -> SocketAddr {
        self.serves
    }

    /// Starts it, unless it runs, and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or isn't ready within [`WAIT`]; the text has the end of its log.
    pub async fn start(&self) -> Result<()> {
        let mut slot = self.process.lock().await;
        if slot.as_mut().is_some_and(ServiceProcess::is_running) {
            return Ok(());
        }
        let process = slot.insert(self.cluster.spawn(self.next_command()).await?);
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

    /// Every start is somebody else to the Lease: a process that was killed must not be taken for the one that follows it.
    fn next_command(&self) -> ServiceCommand {
        let start = self.starts.fetch_add(1, Ordering::SeqCst);
        let mut command = self.command.clone();
        if self.kind == Kind::LifecycleController {
            command.args.extend(["--identity".to_owned(), format!("{}.{start}", self.name())]);
        }
        command
    }

    /// Whether it goes by the name `holder` in a Lease.
    pub(super) fn is_known_as(&self, holder: &str) -> bool {
        holder.rsplit_once('.').is_some_and(|(name, _)| name == self.name())
    }

    async fn is_ready(&self) -> bool {
        let asked = ask::get(&self.cluster, self.admin, "/readyz");
        let asked = tokio::time::timeout(Duration::from_secs(1), asked).await;
        matches!(asked, Ok(Ok((StatusCode::OK, _))))
    }

    /// SIGTERM, and waits for the end. Nothing if it doesn't run.
    ///
    /// # Errors
    /// When it doesn't end well.
    pub async fn stop(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.stop().await.with_context(|| format!("stop {}", self.name())),
            None => Ok(()),
        }
    }

    /// SIGKILL, and waits for the end. Nothing if it doesn't run.
    ///
    /// # Errors
    /// When it can't be killed.
    pub async fn kill(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.kill().await.with_context(|| format!("kill {}", self.name())),
            None => Ok(()),
        }
    }

    /// SIGSTOP: it runs on, and does nothing, not even end connections.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP).await
    }

    /// SIGCONT: it goes on where it was.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT).await
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let slot = self.process.lock().await;
        let process = slot.as_ref().with_context(|| format!("{} does not run", self.name()))?;
        process.signal(signal as i32).await.with_context(|| format!("send {signal} to {}", self.name()))
    }

    /// Whether it runs. A service that is just being started or stopped counts as running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.try_lock().map_or(true, |mut slot| slot.as_mut().is_some_and(ServiceProcess::is_running))
    }

    /// Its metrics, as it tells them.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub async fn metrics(&self) -> Result<String> {
        let ask = async { ask::get(&self.cluster, self.admin, "/metrics").await };
        let (status, body) = within(WAIT, || format!("the metrics of {}", self.name()), ask).await?;
        anyhow::ensure!(status == StatusCode::OK, "{} answers {status} for its metrics", self.name());
        Ok(body)
    }

    /// Its resident memory, in bytes.
    ///
    /// # Errors
    /// When it doesn't run on this machine.
    pub fn memory(&self) -> Result<u64> {
        memory::of_command(&self.command.args)
            .with_context(|| format!("look at the memory of {}", self.name()))
    }

    /// The end of its log.
    #[must_use]
    pub fn last_words(&self) -> String {
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
