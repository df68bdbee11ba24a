//! Podward and its services, in the same words whether they are pods or processes.

use std::{fmt, net::SocketAddr, sync::Arc, time::Instant};

use anyhow::Result;
use podward_support::{Cluster, Installation, Kind, Replica, Replicas};

/// Podward, whose services a test may end and start.
#[derive(Debug)]
pub enum Podward {
    /// Installed by Helm.
    Installed(Replicas),
    /// Its services are processes: on simulated nodes, which run no programs, and beside a cluster of the user, which has no images of
    /// them.
    Processes(Box<podward_support::Podward>),
}

/// How to speak with lifecycle-controllers over gRPC.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The authority of their certificates, as PEM.
    pub ca: String,
    /// A name that is in these.
    pub server_name: String,
}

impl Podward {
    /// All services of this kind.
    #[must_use]
    pub fn services(&self, kind: Kind) -> Vec<Service> {
        match self {
            Self::Installed(replicas) => replicas.of_kind(kind).into_iter().map(Service::Pod).collect(),
            Self::Processes(podward) => podward.services(kind).into_iter().map(Service::Process).collect(),
        }
    }

    /// Both webhooks.
    #[must_use]
    pub fn webhooks(&self) -> Vec<Service> {
        [Kind::MutatingWebhook, Kind::ValidatingWebhook]
            .into_iter()
            .flat_map(|kind| self.services(kind))
            .collect()
    }

    /// The controller that holds the Lease, if one does.
    ///
    /// # Errors
    /// When the Lease can't be read.
    pub async fn leader(&self) -> Result<Option<Service>> {
        match self {
            Self::Installed(replicas) => Ok(replicas.leader().await?.map(Service::Pod)),
            Self::Processes(podward) => Ok(podward.leader().await?.map(Service::Process)),
        }
    }

    /// Waits until the API server asks the webhooks, after they were started again.
    ///
    /// # Errors
    /// When it doesn't in time.
    pub async fn until_webhooks_are_asked(&self) -> Result<()> {
        match self {
            Self::Installed(replicas) => replicas.installation().until_webhooks_are_asked().await,
            Self::Processes(podward) => podward.until_webhooks_are_asked().await,
        }
    }

    /// By what lifecycle-controllers are known at whatever address they are reached.
    ///
    /// # Errors
    /// When the authority can't be read.
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

    /// The Service of the lifecycle-controllers and its port, where there is one.
    #[must_use]
    pub fn controller_service(&self) -> Option<String> {
        matches!(self, Self::Installed(_)).then(|| format!("{}:9444", controller_name()))
    }

    /// The audience of the tokens that it shows to hook systems.
    #[must_use]
    pub fn hook_audience(&self) -> &'static str {
        match self {
            Self::Installed(_) => "podward-hooks",
            // That of the API server: it has no other tokens.
            Self::Processes(_) => "https://kubernetes.default.svc",
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        match self {
            Self::Installed(replicas) => replicas.installation().cluster(),
            Self::Processes(podward) => podward.cluster(),
        }
    }

    /// What helps to see what its services did.
    pub(crate) async fn last_words(&self) -> String {
        match self {
            Self::Installed(replicas) => replicas.installation().last_words().await,
            Self::Processes(podward) => podward.last_words(),
        }
    }
}

fn controller_name() -> String {
    format!("{}.{}.svc", Kind::LifecycleController, Installation::NAMESPACE)
}

/// One service.
#[derive(Clone, Debug)]
pub enum Service {
    /// In a pod.
    Pod(Arc<Replica>),
    /// By itself.
    Process(Arc<podward_support::Service>),
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(replica) => replica.fmt(f),
            Self::Process(service) => f.write_str(service.name()),
        }
    }
}

impl Service {
    /// Its name, which it keeps when it is ended and started again.
    #[must_use]
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pod(replica) => replica.kind(),
            Self::Process(service) => service.kind(),
        }
    }

    /// Where it serves what it is there for: admission reviews, or gRPC. A pod that was started again does so elsewhere.
    ///
    /// # Errors
    /// When there is no pod.
    pub fn serves_at(&self) -> Result<SocketAddr> {
        match self {
            Self::Pod(replica) => replica.serves_at(),
            Self::Process(service) => Ok(service.serves_at()),
        }
    }

    /// Starts it, unless it runs, and waits until it is ready.
    ///
    /// # Errors
    /// When it doesn't become so.
    pub async fn start(&self) -> Result<()> {
        match self {
            Self::Pod(replica) => replica.start().await,
            Self::Process(service) => service.start().await,
        }
    }

    /// SIGTERM, and waits for the end; gives when it was told to. Nothing if it doesn't run.
    ///
    /// # Errors
    /// When it doesn't end well.
    pub async fn stop(&self) -> Result<Instant> {
        match self {
            Self::Pod(replica) => replica.stop().await,
            Self::Process(service) => {
                let told = Instant::now();
                service.stop().await.map(|()| told)
            }
        }
    }

    /// SIGKILL. Nothing if it doesn't run.
    ///
    /// # Errors
    /// When it can't be killed.
    pub async fn kill(&self) -> Result<()> {
        match self {
            Self::Pod(replica) => replica.kill().await,
            Self::Process(service) => service.kill().await,
        }
    }

    /// SIGSTOP: it runs on, and does nothing, not even end connections.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn freeze(&self) -> Result<()> {
        match self {
            Self::Pod(replica) => replica.freeze().await,
            Self::Process(service) => service.freeze().await,
        }
    }

    /// SIGCONT: it goes on where it was.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn thaw(&self) -> Result<()> {
        match self {
            Self::Pod(replica) => replica.thaw().await,
            Self::Process(service) => service.thaw().await,
        }
    }

    /// Whether the process runs that was started last.
    ///
    /// # Errors
    /// When that can't be read.
    pub async fn is_running(&self) -> Result<bool> {
        match self {
            Self::Pod(replica) => replica.is_running().await,
            Self::Process(service) => Ok(service.is_running()),
        }
    }

    /// Its metrics, as it tells them.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub async fn metrics(&self) -> Result<String> {
        match self {
            Self::Pod(replica) => replica.metrics().await,
            Self::Process(service) => service.metrics().await,
        }
    }

    /// Its resident memory, in bytes.
    ///
    /// # Errors
    /// When it doesn't run on this machine.
    pub async fn memory(&self) -> Result<u64> {
        match self {
            Self::Pod(replica) => replica.memory().await,
            Self::Process(service) => service.memory(),
        }
    }
}
