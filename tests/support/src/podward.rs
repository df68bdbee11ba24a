//! Podward's services, run on a cluster as they would run in pods: each with the rights of its own service account and no more.

mod args;
mod canary;
mod hook;
mod identity;
mod manifests;
mod service;

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_testbed::{Programs, build_workspace};

use self::manifests::Manifests;
pub use self::service::{Kind, Service};
pub(crate) use self::{canary::Canary, hook::until_reachable};
use crate::{cluster::Cluster, wait::WAIT};

/// The namespace of Podward.
pub(crate) const NAMESPACE: &str = "podward-system";
/// The name of the controller's Lease.
const LEASE: &str = "lifecycle-controller";

/// How Podward is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Deny what is otherwise only warned of.
    pub strict: bool,
    /// How many lifecycle-controllers.
    pub controllers: usize,
    /// How many traffic-controllers; with none, nobody speaks for Services.
    pub traffic_controllers: usize,
    /// How long a controller that was killed keeps its Lease, in seconds.
    pub lease_seconds: u32,
    /// Whether deletes and evictions are held.
    pub hold: bool,
    /// How long a delete is kept waiting for its pod before it is answered, in seconds.
    pub wait_seconds: u32,
    /// How long a node must have been away until its pods may be deleted all the same, in seconds.
    pub node_unreachable_seconds: u32,
    /// Where kube-proxy's metrics are, for the traffic-controller's proof; only in beds with a real node. With `None` it has to
    /// wait for a bounded time instead.
    pub kube_proxy_metrics_url: Option<String>,
    /// Further arguments of the services of a kind.
    pub more: Vec<(Kind, String)>,
    /// User names that may write protected labels; Podward's own if there are none.
    pub trusted: Vec<String>,
    /// The cargo profile of the services: `dev`, `bench-lite`, `release`.
    pub profile: String,
    /// What services log, such as `info` or `info,podward_runtime=debug`; by default `PODWARD_LOG` of this process.
    pub log: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strict: false,
            controllers: 1,
            traffic_controllers: 1,
            lease_seconds: 5,
            hold: true,
            wait_seconds: 0,
            node_unreachable_seconds: 60,
            kube_proxy_metrics_url: Some("http://127.0.0.1:10249/metrics".to_owned()),
            more: Vec::new(),
            trusted: Vec::new(),
            profile: "dev".to_owned(),
            log: std::env::var("PODWARD_LOG").unwrap_or_else(|_| "info".to_owned()),
        }
    }
}

/// Podward, running.
#[derive(Debug)]
pub struct Podward {
    cluster: Cluster,
    options: Options,
    manifests: Manifests,
    programs: Programs,
    /// Where the lifecycle-controllers serve gRPC: the others have to know before they run.
    controllers: Vec<SocketAddr>,
    services: Mutex<Vec<Arc<Service>>>,
}

impl Podward {
    /// Builds the services if need be, installs the manifests, starts the services, and waits until the API server asks them.
    ///
    /// # Errors
    /// When any of it fails; the text has the end of the log of a service that isn't ready.
    pub async fn start(cluster: &Cluster, options: Options) -> Result<Self> {
        let programs = build_workspace(&options.profile).await.context("build Podward's services")?;
        let manifests = Manifests::read().context("read Podward's manifests")?;
        let client = cluster.client();
        manifests.install(&client).await.context("install Podward's manifests")?;
        let mut controllers = Vec::new();
        for _ in 0..options.controllers.max(1) {
            controllers.push(cluster.free_address().await?);
        }
        let (cluster, services) = (cluster.clone(), Mutex::default());
        let podward = Self { cluster, options, manifests, programs, controllers, services };
        let webhooks = async {
            tokio::try_join!(podward.add(Kind::MutatingWebhook), podward.add(Kind::ValidatingWebhook))
        };
        let controllers = async {
            for _ in 0..podward.options.controllers {
                podward.add(Kind::LifecycleController).await?;
            }
            Ok(())
        };
        let ((mutating, validating), ()) = tokio::try_join!(webhooks, controllers)?;
        podward.register(&[&mutating, &validating]).await?;
        // It registers with a controller, as any other hook.
        for _ in 0..podward.options.traffic_controllers {
            podward.add(Kind::TrafficController).await?;
        }
        if podward.options.traffic_controllers > 0 {
            let registered = until_reachable(&client, Kind::TrafficController.as_str()).await;
            registered.with_context(|| podward.last_words())?;
        }
        Ok(podward)
    }

    /// Tells the API server to ask these webhooks, and waits until it does.
    async fn register(&self, webhooks: &[&Service]) -> Result<()> {
        let client = self.cluster.client();
        let addresses: Vec<(Kind, SocketAddr)> =
            webhooks.iter().map(|service| (service.kind(), service.serves_at())).collect();
        let ca = self.cluster.server_ca();
        self.manifests.register_webhooks(&client, &addresses, &ca).await.context("register the webhooks")?;
        let canary = Canary::new(client);
        let waited = canary.until_asked(WAIT).await;
        waited.with_context(|| {
            webhooks.iter().map(|service| service.last_words()).collect::<Vec<_>>().join("\n")
        })
    }

    /// Starts one more service of this kind. Further webhooks are not asked by anybody unless they take another one's place.
    ///
    /// # Errors
    /// When it doesn't become ready.
    pub async fn add(&self, kind: Kind) -> Result<Arc<Service>> {
        let number = self.services.lock().iter().filter(|service| service.kind() == kind).count();
        let service = Service::prepare(self, kind, number).await;
        let service = Arc::new(service.with_context(|| format!("prepare {kind}"))?);
        self.services.lock().push(service.clone());
        service.start().await?;
        Ok(service)
    }

    /// All services of this kind, in the order of their starts.
    #[must_use]
    pub fn services(&self, kind: Kind) -> Vec<Arc<Service>> {
        self.services.lock().iter().filter(|service| service.kind() == kind).cloned().collect()
    }

    /// Both webhooks.
    #[must_use]
    pub fn webhooks(&self) -> Vec<Arc<Service>> {
        [Kind::MutatingWebhook, Kind::ValidatingWebhook]
            .into_iter()
            .flat_map(|kind| self.services(kind))
            .collect()
    }

    /// Waits until the API server asks the webhooks, after they were started again.
    ///
    /// # Errors
    /// When it doesn't within [`WAIT`].
    pub async fn until_webhooks_are_asked(&self) -> Result<()> {
        Canary::new(self.cluster.client()).until_asked(WAIT).await
    }

    /// The controller that holds the Lease, if one does.
    ///
    /// # Errors
    /// When the Lease can't be read.
    pub async fn leader(&self) -> Result<Option<Arc<Service>>> {
        let holder = lease_holder(self.cluster.client()).await?;
        let mut controllers = self.services(Kind::LifecycleController).into_iter();
        Ok(controllers.find(|service| service.is_known_as(&holder) && service.is_running()))
    }

    /// Where it runs.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The last lines of every service's log, for the text of a failure.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.services.lock().iter().map(|service| service.last_words()).collect::<Vec<_>>().join("\n")
    }

    /// Takes the webhook configurations away, ends the services and removes the manifests: a cluster that isn't ours must not go
    /// on asking webhooks that are gone.
    ///
    /// # Errors
    /// When something can't be removed.
    pub async fn shutdown(&self) -> Result<()> {
        let client = self.cluster.client();
        self.manifests.unregister_webhooks(&client).await.context("remove the webhook configurations")?;
        let services = std::mem::take(&mut *self.services.lock());
        for service in services {
            service.stop().await?;
        }
        self.manifests.uninstall(&client).await.context("remove Podward's manifests")?;
        self.cluster.clear()
    }
}

/// Who holds the controllers' Lease; nobody is the empty text.
pub(crate) async fn lease_holder(client: Client) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let lease = leases.get_opt(LEASE).await.with_context(|| format!("read the lease {NAMESPACE}/{LEASE}"))?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default())
}
