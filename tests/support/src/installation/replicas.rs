//! Podward's pods one by one, to be ended, frozen and started again by tests, in the words in which those do it to processes.

mod fleet;

use std::{fmt, net::SocketAddr, sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use hyper::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use nix::sys::signal::Signal;

use self::fleet::{Fleet, Known};
use super::Installation;
use crate::{
    Kind, ask, memory,
    podward::lease_holder,
    wait::{WAIT, within},
};

/// Probes and metrics.
const ADMIN_PORT: u16 = 8080;

/// The pods of an installation that nobody changes but by this.
#[derive(Debug)]
pub struct Replicas {
    installation: Installation,
    all: Vec<Arc<Replica>>,
}

impl Replicas {
    /// The pods that an installation has now.
    ///
    /// # Errors
    /// When they can't be listed.
    pub async fn of(installation: Installation) -> Result<Self> {
        let mut all = Vec::new();
        for kind in Kind::ALL {
            let fleet = Arc::new(Fleet::of(&installation, kind).await?);
            all.extend((0..fleet.size()).map(|number| Arc::new(Replica { fleet: fleet.clone(), number })));
        }
        Ok(Self { installation, all })
    }

    /// Whose pods they are.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Those of a service.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> Vec<Arc<Replica>> {
        self.all.iter().filter(|replica| replica.kind() == kind).cloned().collect()
    }

    /// The controller that holds the Lease, if one does.
    ///
    /// # Errors
    /// When the Lease can't be read.
    pub async fn leader(&self) -> Result<Option<Arc<Replica>>> {
        let holder = lease_holder(self.installation.cluster.client()).await?;
        // A process goes by the name of its pod, and something that tells it from others that the pod had.
        let Some((pod, _)) = holder.rsplit_once('_') else { return Ok(None) };
        let mut controllers = self.of_kind(Kind::LifecycleController).into_iter();
        Ok(controllers.find(|replica| replica.pod().is_ok_and(|known| known.name == pod)))
    }
}

/// One of as many pods as a service has. When it was ended and started again it has another pod, at another address.
#[derive(Debug)]
pub struct Replica {
    fleet: Arc<Fleet>,
    number: usize,
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.fleet.kind, self.number)
    }
}

impl Replica {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.fleet.kind
    }

    /// Where it serves what it is there for: admission reviews, or gRPC.
    ///
    /// # Errors
    /// When it has no pod.
    pub fn serves_at(&self) -> Result<SocketAddr> {
        let port = if self.kind() == Kind::LifecycleController { 9444 } else { 9443 };
        Ok(SocketAddr::new(self.pod()?.address, port))
    }

    /// Gives it a pod, unless it has one, and waits until that is ready.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn start(&self) -> Result<()> {
        let _one_at_a_time = self.fleet.changing.lock().await;
        if self.pod().is_err() {
            self.fleet.start(self.number).await.with_context(|| format!("start {self}"))?;
        }
        Ok(())
    }

    /// Takes its pod away, as a scale-in does, and waits until it is gone; gives when it was told to go. Nothing if it has none.
    ///
    /// # Errors
    /// When its process doesn't end well.
    pub async fn stop(&self) -> Result<Instant> {
        let _one_at_a_time = self.fleet.changing.lock().await;
        let Some(pod) = self.fleet.forget(self.number) else { return Ok(Instant::now()) };
        let config = watcher::Config::default().fields(&format!("metadata.name={}", pod.name));
        let mut versions = std::pin::pin!(watcher(self.fleet.pods(), config).default_backoff());
        let gone = async {
            while let Some(event) = versions.try_next().await.context("watch a pod")? {
                if let watcher::Event::Delete(pod) = event {
                    return Ok(pod);
                }
            }
            anyhow::bail!("the watch of a pod has ended")
        };
        let gone = within(WAIT, || format!("pod {} to be gone", pod.name), gone);
        let told = async { self.fleet.let_go(&pod.name).await.map(|()| Instant::now()) };
        let (last, told) = tokio::try_join!(gone, told)?;
        let code = exit_code(&last).with_context(|| format!("pod {} doesn't tell how it ended", pod.name))?;
        ensure!(code == 0, "{self} (pod {}) ended with exit code {code}", pod.name);
        Ok(told)
    }

    /// SIGKILL, and no process takes its place: the pod goes, without being told to. Nothing if it has none.
    ///
    /// # Errors
    /// When it can't be killed.
    pub async fn kill(&self) -> Result<()> {
        let _one_at_a_time = self.fleet.changing.lock().await;
        let Some(pod) = self.fleet.forget(self.number) else { return Ok(()) };
        let killed = async {
            let container = self.fleet.container(&pod).await?;
            // What is frozen hears no SIGTERM.
            self.fleet.signal(&container, Signal::SIGSTOP).await?;
            self.fleet.until_the_first_to_go(&pod.name).await?;
            self.fleet.let_go(&pod.name).await?;
            self.fleet.signal(&container, Signal::SIGKILL).await
        };
        killed.await.with_context(|| format!("kill {self} (pod {})", pod.name))
    }

    /// SIGSTOP: it runs on, and does nothing, not even end connections; until its liveness probe has failed for a minute.
    ///
    /// # Errors
    /// When it has no pod.
    pub async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP).await
    }

    /// SIGCONT: it goes on where it was.
    ///
    /// # Errors
    /// When it has no pod.
    pub async fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT).await
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let container = self.fleet.container(&self.pod()?).await?;
        self.fleet.signal(&container, signal).await
    }

    /// Whether it has a pod in which the process runs that was started there; of one that has none, whether somebody gave it one.
    ///
    /// # Errors
    /// When that can't be read.
    pub async fn is_running(&self) -> Result<bool> {
        match self.pod() {
            Ok(known) => self.fleet.runs(&known).await,
            Err(_) => self.fleet.has_strangers().await,
        }
    }

    /// Its metrics, as it tells them.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub async fn metrics(&self) -> Result<String> {
        let at = SocketAddr::new(self.pod()?.address, ADMIN_PORT);
        let ask = async { ask::get(&self.fleet.installation.cluster, at, "/metrics").await };
        let (status, body) = within(WAIT, || format!("the metrics of {self}"), ask).await?;
        ensure!(status == StatusCode::OK, "{self} answers {status} for its metrics");
        Ok(body)
    }

    /// Its resident memory, in bytes.
    ///
    /// # Errors
    /// When it has no pod.
    pub async fn memory(&self) -> Result<u64> {
        let container = self.fleet.container(&self.pod()?).await?;
        memory::of_container(&container).with_context(|| format!("look at the memory of {self}"))
    }

    fn pod(&self) -> Result<Known> {
        self.fleet.known(self.number).with_context(|| format!("{self} has no pod"))
    }
}

/// With what the process of a pod ended.
fn exit_code(pod: &Pod) -> Option<i32> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
}
