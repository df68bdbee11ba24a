//! A registry within the limits of its connection, which changes only while this replica is responsible, and whose calls are
//! recorded if there are traces.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podward_core::UnixNanos;
use podward_kube_util::now;
use podward_registries::{
    Capabilities, Change, Instance, Listed, MayChange, Registry, RegistryError, RegistryErrorKind, ServiceKey,
};

use super::call_log::{About, CallLog, RegistryCall};
use super::limiter::Limiter;
use crate::members::Fence;

/// A registry whose calls wait until the limits of its connection allow them. A batch is one call. Those that read or change
/// instances are recorded, with the wait, if there is a log. It is not changed if another replica may be responsible for the
/// binding by then: each change is checked before it is made. Reads end when the task is to end.
#[derive(Debug)]
pub(crate) struct ManagedRegistry {
    inner: Arc<dyn Registry>,
    limiter: Arc<Limiter>,
    fence: Fence,
    log: Option<Arc<CallLog>>,
}

impl ManagedRegistry {
    pub(crate) fn new(
        inner: Arc<dyn Registry>,
        limiter: Arc<Limiter>,
        fence: Fence,
        log: Option<Arc<CallLog>>,
    ) -> Self {
        Self { inner, limiter, fence, log }
    }

    /// Returns the error of a call that is not made because another replica may be responsible for the binding.
    fn refused(&self, doing: String) -> RegistryError {
        RegistryError {
            doing,
            address: self.inner.addresses().first().cloned().unwrap_or_default(),
            reason: "it was not tried, because this replica is not responsible for the binding any more, or could not renew its \
                     Lease"
                .to_owned(),
            kind: RegistryErrorKind::Unavailable,
        }
    }

    /// Makes a read when the limits allow it. Returns `None` when the task is to end: a slow registry does not delay that.
    async fn read<F: Future>(&self, read: F) -> Option<F::Output> {
        let turn = async {
            let _permit = self.limiter.read().await;
            read.await
        };
        self.fence.run(turn).await
    }

    /// Returns the error of a change that may not be made any more.
    fn check(&self, change: &Change) -> Result<(), RegistryError> {
        match self.fence.is_open() {
            true => Ok(()),
            false => Err(self.refused(change.to_string())),
        }
    }

    fn record(
        &self,
        name: &'static str,
        begin: UnixNanos,
        address: Option<usize>,
        about: impl FnOnce() -> About,
        result: Result<usize, &RegistryError>,
    ) {
        let Some(log) = &self.log else { return };
        log.add(RegistryCall {
            number: 0,
            name,
            begin,
            end: now(),
            address: address.and_then(|index| self.inner.addresses().get(index).cloned()),
            instances: result.unwrap_or_default(),
            about: about(),
            error: result.err().map(ToString::to_string),
        });
    }
}

#[async_trait]
impl Registry for ManagedRegistry {
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

    fn check_weight(&self, weight: f64) -> Result<(), String> {
        self.inner.check_weight(weight)
    }

    fn addresses(&self) -> &[String] {
        self.inner.addresses()
    }

    fn canonical(&self, service: ServiceKey) -> ServiceKey {
        self.inner.canonical(service)
    }

    fn read_lag(&self) -> Duration {
        self.inner.read_lag()
    }

    fn reads_many(&self) -> bool {
        self.inner.reads_many()
    }

    async fn services(&self, address: usize, cluster: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        let found = self.read(self.inner.services(address, cluster)).await;
        found.unwrap_or_else(|| Err(self.refused("list the services".to_owned())))
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        self.listed(address, service).await?.complete()
    }

    async fn listed(&self, address: usize, service: &ServiceKey) -> Result<Listed, RegistryError> {
        let begin = now();
        let found = self.read(self.inner.listed(address, service)).await;
        let refused = || Err(self.refused(format!("read the instances of service {}", service.name)));
        let found = found.unwrap_or_else(refused);
        let about = || About::Service(service.clone());
        let count = found.as_ref().map(|listed| listed.instances.len());
        self.record("registry list", begin, Some(address), about, count);
        found
    }

    async fn instance(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        let found = self.read_many(address, service, &[wanted]).await?;
        Ok(found.into_iter().next().flatten())
    }

    async fn read_many(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &[&Instance],
    ) -> Result<Vec<Option<Instance>>, RegistryError> {
        let begin = now();
        let found = self.read(self.inner.read_many(address, service, wanted)).await;
        let refused =
            || Err(self.refused(format!("read {} instances of service {}", wanted.len(), service.name)));
        let found = found.unwrap_or_else(refused);
        let each = wanted.iter().map(|wanted| (wanted.host.clone(), wanted.port, None));
        let count = found.as_ref().map(|found| found.iter().flatten().count());
        self.record("registry read", begin, Some(address), || About::Instances(each.collect()), count);
        found
    }

    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        let begin = now();
        let turn = async {
            self.limiter.changes(changes.len()).await;
            self.limiter.call().await
        };
        let _turn = self.fence.run(turn).await;
        let results = match self.fence.is_open() {
            true => {
                let may_change: MayChange<'_> =
                    &|change| self.check(change).and_then(|()| may_change(change));
                self.inner.write_while(changes, may_change).await
            }
            false => changes.iter().map(|change| Err(self.refused(change.to_string()))).collect(),
        };
        let written = changes.iter().zip(&results).map(|(change, result)| {
            let (_, instance) = change.target();
            let error = result.as_ref().err().map(ToString::to_string);
            (instance.host.clone(), instance.port, error)
        });
        let about = || About::Instances(written.collect());
        self.record("registry write", begin, None, about, Ok(changes.len()));
        results
    }

    async fn renew_while(
        &self,
        instances: &[(ServiceKey, Instance)],
        may_change: MayChange<'_>,
    ) -> Vec<Result<bool, RegistryError>> {
        let turn = async {
            let _permit = self.limiter.call().await;
            // It may be made although this replica could not renew its Lease: then nothing that is stored is changed.
            let may_change: MayChange<'_> = &|change| self.check(change).and_then(|()| may_change(change));
            match self.fence.is_ended() {
                true => None,
                false => Some(self.inner.renew_while(instances, may_change).await),
            }
        };
        let refused = |(service, instance): &(ServiceKey, Instance)| {
            let (host, port, name) = (&instance.host, instance.port, &service.name);
            Err(self.refused(format!("renew {host}:{port} of service {name}")))
        };
        self.fence.run(turn).await.flatten().unwrap_or_else(|| instances.iter().map(refused).collect())
    }

    // It waits for a change, which costs the registry nothing.
    async fn changed(&self, address: usize, services: &[ServiceKey]) -> Result<(), RegistryError> {
        self.inner.changed(address, services).await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use podward_api::registry_connection::RegistryLimits;
    use tokio_util::sync::CancellationToken;

    use super::super::limiter::Limiters;
    use super::*;
    use crate::members::Tenure;

    /// A registry that shows nothing and refuses the first change of each batch.
    #[derive(Debug)]
    struct Refusing(String, Vec<String>);

    #[async_trait]
    impl Registry for Refusing {
        fn capabilities(&self) -> Capabilities {
            Capabilities {
                own: true,
                steer: true,
                by_address: false,
                weights: true,
                renewal: None,
                batch: 10,
                list_lag: Duration::ZERO,
                cache: Duration::ZERO,
            }
        }

        fn addresses(&self) -> &[String] {
            &self.1
        }

        async fn services(&self, _: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
            Ok(Vec::new())
        }

        async fn instances(&self, _: usize, _: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
            Ok(Vec::new())
        }

        async fn instance(
            &self,
            _: usize,
            _: &ServiceKey,
            _: &Instance,
        ) -> Result<Option<Instance>, RegistryError> {
            Ok(None)
        }

        async fn write_while(&self, changes: &[Change], _: MayChange<'_>) -> Vec<Result<(), RegistryError>> {
            let result = |index| match index {
                0 => Err(RegistryError {
                    doing: "deregister".to_owned(),
                    address: "a".to_owned(),
                    reason: self.0.clone(),
                    kind: RegistryErrorKind::Rejected,
                }),
                _ => Ok(()),
            };
            (0..changes.len()).map(result).collect()
        }
    }

    /// Returns a registry, and its log, that shows nothing and refuses the first change of each batch with `error`.
    pub(crate) fn recorded(error: &str) -> (ManagedRegistry, Arc<CallLog>) {
        let log = Arc::<CallLog>::default();
        let inner = Refusing(error.to_owned(), vec!["http://a".to_owned()]);
        let limiter = Limiters::default().of("a", RegistryLimits::default());
        let tenure = Arc::<Tenure>::default();
        tenure.confirm(std::time::Instant::now());
        let fence = Fence::new(CancellationToken::new(), tenure);
        (ManagedRegistry::new(Arc::new(inner), limiter, fence, Some(Arc::clone(&log))), log)
    }
}
