//! Stops, freezes and starts the pods of an installation one by one. The methods are those of services that run as
//! processes.

mod fleet;

use std::{fmt, net::SocketAddr, sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use hyper::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use nix::sys::signal::Signal;

use self::fleet::{KnownPod, ReplicaFleet};
use super::Installation;
use crate::{
    ServiceKind, ask, memory,
    podward::lease_holder,
    wait::{WAIT, within},
};

/// The port of probes and metrics.
const ADMIN_PORT: u16 = 8080;

/// The pods of an installation. Nothing else may change them.
#[derive(Debug)]
pub struct Replicas {
    installation: Installation,
    all: Vec<Arc<Replica>>,
}

impl Replicas {
    /// Returns the current pods of an installation.
    ///
    /// # Errors
    /// Fails if they cannot be listed.
    pub async fn of(installation: Installation) -> Result<Self> {
        let mut all = Vec::new();
        for kind in ServiceKind::ALL {
            let fleet = Arc::new(ReplicaFleet::of(&installation, kind).await?);
            all.extend((0..fleet.size()).map(|number| Arc::new(Replica { fleet: fleet.clone(), number })));
        }
        Ok(Self { installation, all })
    }

    /// Returns the installation.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Returns the replicas of a service.
    #[must_use]
    pub fn of_kind(&self, kind: ServiceKind) -> Vec<Arc<Replica>> {
        self.all.iter().filter(|replica| replica.kind() == kind).cloned().collect()
    }

    /// Returns the controller that holds the Lease, if one does.
    ///
    /// # Errors
    /// Fails if the Lease cannot be read.
    pub async fn leader(&self) -> Result<Option<Arc<Replica>>> {
        let kind = ServiceKind::LifecycleController;
        let holder = lease_holder(self.installation.cluster.client(), kind).await?;
        let mut controllers = self.of_kind(kind).into_iter();
        Ok(controllers.find(|replica| replica.pod().is_ok_and(|known| known.is_known_as(&holder))))
    }
}

/// One replica of a service. After a stop and a start it has another pod, at another address.
#[derive(Debug)]
pub struct Replica {
    fleet: Arc<ReplicaFleet>,
    number: usize,
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.fleet.kind, self.number)
    }
}

impl Replica {
    /// Returns the kind of the service.
    #[must_use]
    pub fn kind(&self) -> ServiceKind {
        self.fleet.kind
    }

    /// Returns the address of its own API: admission reviews, or gRPC.
    ///
    /// # Errors
    /// Fails if it has no pod.
    pub fn serves_at(&self) -> Result<SocketAddr> {
        let port = if self.kind() == ServiceKind::LifecycleController { 9444 } else { 9443 };
        Ok(SocketAddr::new(self.pod()?.address, port))
    }

    /// Starts a pod, unless it has one, and waits until it is ready.
    ///
    /// # Errors
    /// Fails if that takes too long.
    pub async fn start(&self) -> Result<()> {
        let _one_at_a_time = self.fleet.changing.lock().await;
        if self.pod().is_err() {
            self.fleet.start(self.number).await.with_context(|| format!("start {self}"))?;
        }
        Ok(())
    }

    /// Deletes its pod, as a scale-in does, and waits until it is gone. Returns the time of the deletion. Does
    /// nothing if it has no pod.
    ///
    /// # Errors
    /// Fails if its process ends with a failure.
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
        let told = async { self.fleet.remove_pod(&pod.name).await.map(|()| Instant::now()) };
        let (last, told) = tokio::try_join!(gone, told)?;
        let code = exit_code(&last).with_context(|| format!("pod {} doesn't tell how it ended", pod.name))?;
        ensure!(code == 0, "{self} (pod {}) ended with exit code {code}", pod.name);
        Ok(told)
    }

    /// Kills its process with SIGKILL. The pod is deleted and no process replaces it. Does nothing if it has no pod.
    ///
    /// # Errors
    /// Fails if it cannot be killed.
    pub async fn kill(&self) -> Result<()> {
        let _one_at_a_time = self.fleet.changing.lock().await;
        let Some(pod) = self.fleet.forget(self.number) else { return Ok(()) };
        let killed = async {
            let container = self.fleet.container(&pod).await?;
            // A frozen process does not handle SIGTERM.
            self.fleet.signal(&container, Signal::SIGSTOP).await?;
            self.fleet.remove_pod(&pod.name).await?;
            self.fleet.signal(&container, Signal::SIGKILL).await
        };
        killed.await.with_context(|| format!("kill {self} (pod {})", pod.name))
    }

    /// Sends SIGSTOP: the process exists but does nothing, and does not close connections. The kubelet restarts it
    /// when its liveness probe has failed for a minute.
    ///
    /// # Errors
    /// Fails if it has no pod.
    pub async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP).await
    }

    /// Sends SIGCONT: the process continues.
    ///
    /// # Errors
    /// Fails if it has no pod.
    pub async fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT).await
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let container = self.fleet.container(&self.pod()?).await?;
        self.fleet.signal(&container, signal).await
    }

    /// Returns whether its process runs since the pod started. For a replica without a pod, returns whether an
    /// unexpected pod is ready.
    ///
    /// # Errors
    /// Fails if the pods cannot be read.
    pub async fn is_running(&self) -> Result<bool> {
        match self.pod() {
            Ok(known) => self.fleet.runs(&known).await,
            Err(_) => self.fleet.has_other_pods().await,
        }
    }

    /// Returns its metrics.
    ///
    /// # Errors
    /// Fails if it does not respond.
    pub async fn metrics(&self) -> Result<String> {
        let at = SocketAddr::new(self.pod()?.address, ADMIN_PORT);
        let ask = async { ask::get(&self.fleet.installation.cluster, at, "/metrics").await };
        let (status, body) = within(WAIT, || format!("the metrics of {self}"), ask).await?;
        ensure!(status == StatusCode::OK, "{self} answers {status} for its metrics");
        Ok(body)
    }

    /// Returns its resident memory, in bytes.
    ///
    /// # Errors
    /// Fails if it has no pod.
    pub async fn memory(&self) -> Result<u64> {
        let container = self.fleet.container(&self.pod()?).await?;
        memory::of_container(&container).with_context(|| format!("look at the memory of {self}"))
    }

    fn pod(&self) -> Result<KnownPod> {
        self.fleet.known(self.number).with_context(|| format!("{self} has no pod"))
    }
}

/// Returns the exit code of the pod's process.
fn exit_code(pod: &Pod) -> Option<i32> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
}
