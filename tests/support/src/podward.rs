//! Podward's services as processes beside a cluster. Each has exactly the rights of its own service account, as in a
//! pod.

mod args;
mod canary;
mod hook;
mod identity;
mod kind;
mod manifests;
mod options;
mod service;
mod webhook_path;

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_core::webhook_path::PathSecret;
use podward_images::{BuiltPrograms, build_workspace};

use self::manifests::PodwardManifests;
pub(crate) use self::{canary::WebhookCanary, hook::until_reachable, options::NAMESPACE};
pub use self::{
    kind::ServiceKind,
    options::PodwardOptions,
    service::PodwardService,
    webhook_path::{webhook_path_state, webhook_paths},
};
use crate::{cluster::Cluster, wait::WAIT};

/// Podward's running services.
#[derive(Debug)]
pub struct Podward {
    cluster: Cluster,
    options: PodwardOptions,
    manifests: PodwardManifests,
    /// The secret in the paths of the webhooks.
    path: PathSecret,
    programs: BuiltPrograms,
    /// The gRPC addresses of the lifecycle-controllers. Other services need them before the controllers run.
    controllers: Vec<SocketAddr>,
    services: Mutex<Vec<Arc<PodwardService>>>,
}

impl Podward {
    /// Builds the services if necessary, installs the manifests, starts the services, and waits until the API server
    /// calls them.
    ///
    /// # Errors
    /// Fails if a step fails. The message contains the end of the log of a service that is not ready.
    pub async fn start(cluster: &Cluster, options: PodwardOptions) -> Result<Self> {
        let programs = build_workspace(&options.profile).await.context("build Podward's services")?;
        let mut manifests = PodwardManifests::read().context("read Podward's manifests")?;
        if options.check_deletes_as_requester {
            manifests = manifests.with_requesters().context("read the role of the chart")?;
        }
        if options.bridges > 0 {
            manifests =
                manifests.with_bridge().context("read the manifests of the service-discovery-bridge")?;
        }
        if options.cloneset_controllers > 0 {
            manifests = manifests
                .with_cloneset_controller()
                .context("read the manifests of the cloneset-controller")?;
        }
        let client = cluster.client();
        manifests.install(&client).await.context("install Podward's manifests")?;
        let path = webhook_path::store(&client).await?;
        let mut controllers = Vec::new();
        for _ in 0..options.controllers.max(1) {
            controllers.push(cluster.free_address().await?);
        }
        let (cluster, services) = (cluster.clone(), Mutex::default());
        let podward = Self { cluster, options, manifests, path, programs, controllers, services };
        let webhooks = async {
            tokio::try_join!(
                podward.add(ServiceKind::MutatingWebhook),
                podward.add(ServiceKind::ValidatingWebhook)
            )
        };
        let controllers = async {
            for _ in 0..podward.options.controllers {
                podward.add(ServiceKind::LifecycleController).await?;
            }
            Ok(())
        };
        let ((mutating, validating), ()) = tokio::try_join!(webhooks, controllers)?;
        podward.register(&[&mutating, &validating]).await?;
        // It registers with a controller like any other hook.
        for _ in 0..podward.options.traffic_controllers {
            podward.add(ServiceKind::TrafficController).await?;
        }
        for _ in 0..podward.options.bridges {
            podward.add(ServiceKind::ServiceDiscoveryBridge).await?;
        }
        for _ in 0..podward.options.cloneset_controllers {
            podward.add(ServiceKind::ClonesetController).await?;
        }
        if podward.options.traffic_controllers > 0 {
            let registered = until_reachable(&client, ServiceKind::TrafficController.as_str()).await;
            registered.with_context(|| podward.diagnostics())?;
        }
        Ok(podward)
    }

    /// Registers these webhooks and waits until the API server calls them.
    async fn register(&self, webhooks: &[&PodwardService]) -> Result<()> {
        let client = self.cluster.client();
        let addresses: Vec<(ServiceKind, SocketAddr)> =
            webhooks.iter().map(|service| (service.kind(), service.serves_at())).collect();
        let ca = self.cluster.server_ca();
        let registered = self.manifests.register_webhooks(&client, &addresses, &self.path, &ca).await;
        registered.context("register the webhooks")?;
        let canary = WebhookCanary::new(client);
        let waited = canary.until_called(WAIT).await;
        waited.with_context(|| {
            webhooks.iter().map(|service| service.diagnostics()).collect::<Vec<_>>().join("\n")
        })
    }

    /// Starts another service of this kind. The API server does not call additional webhooks unless they replace
    /// another one.
    ///
    /// # Errors
    /// Fails if the service does not become ready.
    pub async fn add(&self, kind: ServiceKind) -> Result<Arc<PodwardService>> {
        let number = self.services.lock().iter().filter(|service| service.kind() == kind).count();
        let service = PodwardService::prepare(
            &self.cluster,
            &self.options,
            &self.programs,
            &self.controllers,
            kind,
            number,
        )
        .await;
        let service = Arc::new(service.with_context(|| format!("prepare {kind}"))?);
        self.services.lock().push(service.clone());
        service.start().await?;
        Ok(service)
    }

    /// Returns all services of this kind, in the order of their starts.
    #[must_use]
    pub fn services(&self, kind: ServiceKind) -> Vec<Arc<PodwardService>> {
        self.services.lock().iter().filter(|service| service.kind() == kind).cloned().collect()
    }

    /// Returns both webhooks.
    #[must_use]
    pub fn webhooks(&self) -> Vec<Arc<PodwardService>> {
        [ServiceKind::MutatingWebhook, ServiceKind::ValidatingWebhook]
            .into_iter()
            .flat_map(|kind| self.services(kind))
            .collect()
    }

    /// Waits until the API server calls the webhooks after a restart.
    ///
    /// # Errors
    /// Fails if it does not within [`WAIT`].
    pub async fn until_webhooks_are_called(&self) -> Result<()> {
        WebhookCanary::new(self.cluster.client()).until_called(WAIT).await
    }

    /// Returns the lifecycle-controller that holds the Lease, if one does.
    ///
    /// # Errors
    /// Fails if the Lease cannot be read.
    pub async fn leader(&self) -> Result<Option<Arc<PodwardService>>> {
        self.leader_of(ServiceKind::LifecycleController).await
    }

    /// Returns the service of this kind that holds the Lease of its kind, if one does.
    ///
    /// # Errors
    /// Fails if the Lease cannot be read.
    pub async fn leader_of(&self, kind: ServiceKind) -> Result<Option<Arc<PodwardService>>> {
        let holder = lease_holder(self.cluster.client(), kind).await?;
        let mut services = self.services(kind).into_iter();
        Ok(services.find(|service| service.is_known_as(&holder) && service.is_running()))
    }

    /// Returns the cluster that the services run on.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the last lines of every service's log, for the text of a failure.
    #[must_use]
    pub fn diagnostics(&self) -> String {
        self.services.lock().iter().map(|service| service.diagnostics()).collect::<Vec<_>>().join("\n")
    }

    /// Removes the webhook configurations, stops the services and removes the manifests. An existing cluster must not
    /// keep calling stopped webhooks.
    ///
    /// # Errors
    /// Fails if something cannot be removed.
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

/// Returns the holder of the Lease of the services of this kind, or an empty string if nothing holds it.
pub(crate) async fn lease_holder(client: Client, kind: ServiceKind) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let name = kind.as_str();
    let lease = leases.get_opt(name).await.with_context(|| format!("read the lease {NAMESPACE}/{name}"))?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default())
}
