//! A registry whose calls are recorded, for the traces of operations.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use podward_core::UnixNanos;
use podward_kube_util::now;
use podward_registries::{Capabilities, Change, Instance, Registry, RegistryError, ServiceKey};

/// The number of calls that are kept.
const KEPT: usize = 1024;

/// A call to a registry.
#[derive(Clone, Debug)]
pub(crate) struct RegistryCall {
    /// Counts the calls, from 1.
    pub(crate) number: u64,
    /// What it does.
    pub(crate) name: &'static str,
    pub(crate) begin: UnixNanos,
    pub(crate) end: UnixNanos,
    /// The address that was read. Writes go to any.
    pub(crate) address: Option<String>,
    /// How many instances were written, or found.
    pub(crate) instances: usize,
    about: About,
    error: Option<String>,
}

#[derive(Clone, Debug)]
enum About {
    /// All instances of a service.
    Service(ServiceKey),
    /// Host, port and error of each.
    Instances(Vec<(String, u16, Option<String>)>),
}

impl RegistryCall {
    /// Returns whether the call was about an instance, or about all of its service.
    pub(crate) fn is_about(&self, service: &ServiceKey, instance: &Instance) -> bool {
        match &self.about {
            About::Service(of) => of == service,
            About::Instances(of) => {
                of.iter().any(|(host, port, _)| (host, *port) == (&instance.host, instance.port))
            }
        }
    }

    /// Returns what failed, for an instance that the call was about.
    pub(crate) fn error(&self, instance: &Instance) -> Option<&str> {
        let of_instance = match &self.about {
            About::Service(_) => None,
            About::Instances(of) => {
                let found =
                    of.iter().find(|(host, port, _)| (host, *port) == (&instance.host, instance.port));
                found.and_then(|(_, _, error)| error.as_deref())
            }
        };
        of_instance.or(self.error.as_deref())
    }
}

/// The latest calls to a registry.
#[derive(Debug, Default)]
pub(crate) struct CallLog(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    last: u64,
    calls: VecDeque<RegistryCall>,
}

impl CallLog {
    /// Returns the calls after the one with the number `after` that were about an instance, in their order.
    pub(crate) fn about(&self, after: u64, service: &ServiceKey, instance: &Instance) -> Vec<RegistryCall> {
        let calls = self.0.lock();
        let wanted =
            calls.calls.iter().filter(|call| call.number > after && call.is_about(service, instance));
        wanted.cloned().collect()
    }

    fn add(&self, mut call: RegistryCall) {
        let mut calls = self.0.lock();
        calls.last += 1;
        call.number = calls.last;
        if calls.calls.len() >= KEPT {
            calls.calls.pop_front();
        }
        calls.calls.push_back(call);
    }
}

/// Passes all calls on and records those that read or change instances.
#[derive(Debug)]
pub(crate) struct RecordedRegistry {
    inner: Arc<dyn Registry>,
    log: Arc<CallLog>,
}

impl RecordedRegistry {
    pub(crate) fn new(inner: Arc<dyn Registry>, log: Arc<CallLog>) -> Self {
        Self { inner, log }
    }

    fn record(
        &self,
        name: &'static str,
        begin: UnixNanos,
        address: Option<usize>,
        about: About,
        result: Result<usize, &RegistryError>,
    ) {
        self.log.add(RegistryCall {
            number: 0,
            name,
            begin,
            end: now(),
            address: address.and_then(|index| self.inner.addresses().get(index).cloned()),
            instances: result.unwrap_or_default(),
            about,
            error: result.err().map(ToString::to_string),
        });
    }
}

#[async_trait]
impl Registry for RecordedRegistry {
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
        self.inner.services(address, cluster).await
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        let begin = now();
        let found = self.inner.instances(address, service).await;
        let about = About::Service(service.clone());
        self.record("registry list", begin, Some(address), about, found.as_ref().map(Vec::len));
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
        let begin = now();
        let found = self.inner.read_many(address, service, wanted).await;
        let about = wanted.iter().map(|wanted| (wanted.host.clone(), wanted.port, None));
        let count = found.as_ref().map(|found| found.iter().flatten().count());
        self.record("registry read", begin, Some(address), About::Instances(about.collect()), count);
        found
    }

    fn canonical(&self, service: ServiceKey) -> ServiceKey {
        self.inner.canonical(service)
    }

    async fn write(&self, changes: &[Change]) -> Vec<Result<(), RegistryError>> {
        let begin = now();
        let results = self.inner.write(changes).await;
        let written = changes.iter().zip(&results).map(|(change, result)| {
            let (_, instance) = change.target();
            let error = result.as_ref().err().map(ToString::to_string);
            (instance.host.clone(), instance.port, error)
        });
        self.record("registry write", begin, None, About::Instances(written.collect()), Ok(changes.len()));
        results
    }

    async fn renew(&self, instances: &[(ServiceKey, Instance)]) -> Vec<Result<bool, RegistryError>> {
        self.inner.renew(instances).await
    }

    async fn changed(&self, address: usize, services: &[ServiceKey]) -> Result<(), RegistryError> {
        self.inner.changed(address, services).await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use podward_registries::RegistryErrorKind;

    use super::*;

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

        async fn write(&self, changes: &[Change]) -> Vec<Result<(), RegistryError>> {
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

    /// Returns a recorded registry that shows nothing and refuses the first change of each batch with `error`.
    pub(crate) fn recorded(error: &str) -> (RecordedRegistry, Arc<CallLog>) {
        let log = Arc::<CallLog>::default();
        let inner = Refusing(error.to_owned(), vec!["http://a".to_owned()]);
        (RecordedRegistry::new(Arc::new(inner), Arc::clone(&log)), log)
    }
}
