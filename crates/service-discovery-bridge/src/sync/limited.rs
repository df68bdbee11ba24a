//! A registry within the limits of its connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podward_registries::{Capabilities, Change, Instance, Registry, RegistryError, ServiceKey};

use super::limiter::Limiter;

/// A registry whose calls wait until the limits of its connection allow them. A batch is one call.
#[derive(Debug)]
pub(crate) struct LimitedRegistry {
    inner: Arc<dyn Registry>,
    limiter: Arc<Limiter>,
}

impl LimitedRegistry {
    pub(crate) fn new(inner: Arc<dyn Registry>, limiter: Arc<Limiter>) -> Self {
        Self { inner, limiter }
    }
}

#[async_trait]
impl Registry for LimitedRegistry {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn can_read(&self) -> bool {
        self.inner.can_read()
    }

    fn can_list(&self) -> bool {
        self.inner.can_list()
    }

    fn can_take_out_of_service(&self) -> bool {
        self.inner.can_take_out_of_service()
    }

    fn addresses(&self) -> &[String] {
        self.inner.addresses()
    }

    async fn services(&self, address: usize, cluster: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        let _permit = self.limiter.call().await;
        self.inner.services(address, cluster).await
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        let _permit = self.limiter.call().await;
        self.inner.instances(address, service).await
    }

    async fn instance(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        let _permit = self.limiter.call().await;
        self.inner.instance(address, service, wanted).await
    }

    fn read_lag(&self) -> Duration {
        self.inner.read_lag()
    }

    fn reads_many(&self) -> bool {
        self.inner.reads_many()
    }

    async fn read_many(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &[&Instance],
    ) -> Result<Vec<Option<Instance>>, RegistryError> {
        let _permit = self.limiter.call().await;
        self.inner.read_many(address, service, wanted).await
    }

    fn canonical(&self, service: ServiceKey) -> ServiceKey {
        self.inner.canonical(service)
    }

    async fn write(&self, changes: &[Change]) -> Vec<Result<(), RegistryError>> {
        self.limiter.changes(changes.len()).await;
        let _permit = self.limiter.call().await;
        self.inner.write(changes).await
    }

    async fn renew(&self, instances: &[(ServiceKey, Instance)]) -> Vec<Result<bool, RegistryError>> {
        let _permit = self.limiter.call().await;
        self.inner.renew(instances).await
    }

    // It waits for a change, which costs the registry nothing.
    async fn changed(&self, address: usize, services: &[ServiceKey]) -> Result<(), RegistryError> {
        self.inner.changed(address, services).await
    }
}
