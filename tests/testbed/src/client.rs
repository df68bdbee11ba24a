//! Clients of an API server, from a kubeconfig.

use std::{path::Path, sync::Arc};

use hyper_util::{client::legacy, rt::TokioExecutor};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{BoxError, ServiceBuilder};

use crate::error::TestClusterError;

/// Creates clients. Each client has its own connections and its own task, so that it belongs to the runtime that
/// created it: a cluster can outlive the runtime of the test that started it.
#[derive(Clone)]
pub(crate) struct Clients {
    make: Arc<dyn Fn() -> Client + Send + Sync>,
}

impl Clients {
    /// Returns clients for the user and cluster of the kubeconfig's current context.
    pub(crate) async fn from_kubeconfig(path: &Path) -> Result<Self, TestClusterError> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| TestClusterError::Kubeconfig {
            path: path.to_owned(),
            source,
        };
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| failed(error.into()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| failed(error.into()))?;
        let connector = config.rustls_https_connector().map_err(|error| failed(error.into()))?;
        // The layer that adds tokens cannot be shared. This checks that it can be created.
        drop(config.auth_layer().map_err(|error| failed(error.into()))?);
        // No retries and no timeouts: a test must see every failure, and watches last.
        let make = move || {
            let service = ServiceBuilder::new()
                .layer(config.base_uri_layer())
                .option_layer(config.auth_layer().ok().flatten())
                .map_err(BoxError::from)
                .service(legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector.clone()));
            Client::new(service, config.default_namespace.clone())
        };
        Ok(Self { make: Arc::new(make) })
    }

    /// Returns a new client. It must be called within a runtime.
    pub(crate) fn client(&self) -> Client {
        (self.make)()
    }
}
