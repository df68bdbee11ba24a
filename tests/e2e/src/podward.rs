//! Podward and its services, with the same methods for pods and for processes.

use std::{fmt, net::SocketAddr, sync::Arc, time::Instant};

use crate::forged_review::ReachableWebhook;
use anyhow::{Result, bail};
use podward_support::{Cluster, Installation, Replica, Replicas, ServiceKind};

/// Podward, whose services a test can stop and start.
#[derive(Debug)]
pub enum Podward {
    /// Installed with Helm.
    Installed(Replicas),
    /// The services are processes. Simulated nodes cannot run programs, and an existing cluster does not have the
    /// images.
    Processes(Box<podward_support::Podward>),
}

/// The TLS settings of gRPC clients of the lifecycle-controllers.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The authority of the controllers' certificates, as PEM.
    pub ca: String,
    /// A name in these certificates.
    pub server_name: String,
}

impl Podward {
    /// Returns all services of this kind.
    #[must_use]
    pub fn services(&self, kind: ServiceKind) -> Vec<ServiceInstance> {
        match self {
            Self::Installed(replicas) => {
                replicas.of_kind(kind).into_iter().map(ServiceInstance::Pod).collect()
            }
            Self::Processes(podward) => {
                podward.services(kind).into_iter().map(ServiceInstance::Process).collect()
            }
        }
    }

    /// Returns both webhooks.
    #[must_use]
    pub fn webhooks(&self) -> Vec<ServiceInstance> {
        [ServiceKind::MutatingWebhook, ServiceKind::ValidatingWebhook]
            .into_iter()
            .flat_map(|kind| self.services(kind))
            .collect()
    }

    /// Returns the controller that holds the Lease, if one does.
    ///
    /// # Errors
    /// Fails if the Lease cannot be read.
    pub async fn leader(&self) -> Result<Option<ServiceInstance>> {
        match self {
            Self::Installed(replicas) => Ok(replicas.leader().await?.map(ServiceInstance::Pod)),
            Self::Processes(podward) => Ok(podward.leader().await?.map(ServiceInstance::Process)),
        }
    }

    /// Returns the cloneset-controller that holds its Lease, if one does.
    ///
    /// # Errors
    /// Fails if the Lease cannot be read, or the services are pods: those of the chart are not installed in a suite.
    pub async fn cloneset_leader(&self) -> Result<Option<ServiceInstance>> {
        match self {
            Self::Installed(_) => bail!("the cloneset-controller is not installed"),
            Self::Processes(podward) => {
                let leader = podward.leader_of(ServiceKind::ClonesetController).await?;
                Ok(leader.map(ServiceInstance::Process))
            }
        }
    }

    /// Waits until the API server calls the webhooks after a restart.
    ///
    /// # Errors
    /// Fails if it does not in time.
    pub async fn until_webhooks_are_called(&self) -> Result<()> {
        match self {
            Self::Installed(replicas) => replicas.installation().until_webhooks_are_called().await,
            Self::Processes(podward) => podward.until_webhooks_are_called().await,
        }
    }

    /// Returns the TLS settings for the lifecycle-controllers, for any address.
    ///
    /// # Errors
    /// Fails if the authority cannot be read.
    pub async fn trust(&self) -> Result<Trust> {
        match self {
            Self::Installed(replicas) => {
                Ok(Trust { ca: replicas.installation().authority().await?, server_name: controller_name() })
            }
            Self::Processes(podward) => {
                Ok(Trust { ca: podward.cluster().server_ca(), server_name: "localhost".to_owned() })
            }
        }
    }

    /// Returns a webhook as a client on the network reaches it.
    ///
    /// # Errors
    /// Fails if it has no address, or its authority cannot be read.
    pub async fn reachable(&self, webhook: &ServiceInstance) -> Result<ReachableWebhook> {
        let server_name = match self {
            Self::Installed(_) => format!("{}.{}.svc", webhook.kind(), Installation::NAMESPACE),
            Self::Processes(_) => "localhost".to_owned(),
        };
        let (cluster, ca) = (self.cluster().clone(), self.trust().await?.ca);
        Ok(ReachableWebhook { cluster, address: webhook.serves_at()?, ca, server_name })
    }

    /// Returns the Service of the lifecycle-controllers and its port, or `None` if they run as processes.
    #[must_use]
    pub fn controller_service(&self) -> Option<String> {
        matches!(self, Self::Installed(_)).then(|| format!("{}:9444", controller_name()))
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        match self {
            Self::Installed(replicas) => replicas.installation().cluster(),
            Self::Processes(podward) => podward.cluster(),
        }
    }

    /// Returns information on what the services did.
    pub(crate) async fn diagnostics(&self) -> String {
        match self {
            Self::Installed(replicas) => replicas.installation().diagnostics().await,
            Self::Processes(podward) => podward.diagnostics(),
        }
    }
}

fn controller_name() -> String {
    format!("{}.{}.svc", ServiceKind::LifecycleController, Installation::NAMESPACE)
}

/// One service.
#[derive(Clone, Debug)]
pub enum ServiceInstance {
    /// A pod.
    Pod(Arc<Replica>),
    /// A process.
    Process(Arc<podward_support::PodwardService>),
}

impl fmt::Display for ServiceInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(replica) => replica.fmt(f),
            Self::Process(service) => f.write_str(service.name()),
        }
    }
}

impl ServiceInstance {
    /// Returns its name. It is the same after a restart.
    #[must_use]
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ServiceKind {
        match self {
            Self::Pod(replica) => replica.kind(),
            Self::Process(service) => service.kind(),
        }
    }

    /// Returns the address of its own API: admission reviews, or gRPC. A pod has another address after a restart.
    ///
    /// # Errors
    /// Fails if there is no pod.
    pub fn serves_at(&self) -> Result<SocketAddr> {
        match self {
            Self::Pod(replica) => replica.serves_at(),
            Self::Process(service) => Ok(service.serves_at()),
        }
    }

    /// Starts the service, unless it runs, and waits until it is ready.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn start(&self) -> Result<()> {
        match self {
            Self::Pod(replica) => replica.start().await,
            Self::Process(service) => service.start().await,
        }
    }

    /// Sends SIGTERM and waits for the end. Returns the time of the signal. Does nothing if the service does not run.
    ///
    /// # Errors
    /// Fails if it ends with a failure.
    pub async fn stop(&self) -> Result<Instant> {
        match self {
            Self::Pod(replica) => replica.stop().await,
            Self::Process(service) => {
                let told = Instant::now();
                service.stop().await.map(|()| told)
            }
        }
    }

    /// Sends SIGKILL. Does nothing if the service does not run.
    ///
    /// # Errors
    /// Fails if it cannot be killed.
    pub async fn kill(&self) -> Result<()> {
        match self {
            Self::Pod(replica) => replica.kill().await,
            Self::Process(service) => service.kill().await,
        }
    }

    /// Sends SIGSTOP: the process exists but does nothing, and does not close connections.
    ///
    /// # Errors
    /// Fails if it does not run.
    pub async fn freeze(&self) -> Result<()> {
        match self {
            Self::Pod(replica) => replica.freeze().await,
            Self::Process(service) => service.freeze().await,
        }
    }

    /// Sends SIGCONT: the process continues.
    ///
    /// # Errors
    /// Fails if it does not run.
    pub async fn thaw(&self) -> Result<()> {
        match self {
            Self::Pod(replica) => replica.thaw().await,
            Self::Process(service) => service.thaw().await,
        }
    }

    /// Returns whether the process of the last start still runs.
    ///
    /// # Errors
    /// Fails if the state cannot be read.
    pub async fn is_running(&self) -> Result<bool> {
        match self {
            Self::Pod(replica) => replica.is_running().await,
            Self::Process(service) => Ok(service.is_running()),
        }
    }

    /// Returns its metrics.
    ///
    /// # Errors
    /// Fails if it does not respond.
    pub async fn metrics(&self) -> Result<String> {
        match self {
            Self::Pod(replica) => replica.metrics().await,
            Self::Process(service) => service.metrics().await,
        }
    }

    /// Returns its resident memory, in bytes.
    ///
    /// # Errors
    /// Fails if it does not run on this machine.
    pub async fn memory(&self) -> Result<u64> {
        match self {
            Self::Pod(replica) => replica.memory().await,
            Self::Process(service) => service.memory(),
        }
    }
}
