//! A client of a registry, and what it can do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use podward_api::discovery_binding::BindingMode;
use podward_api::registry_connection::{RegistryConnection, RegistryKind};
use podward_registries::{Capabilities, Instance, Registry, RegistryError, RegistryErrorKind, ServiceKey};

use super::call_log::CallLog;
use super::place::PlaceFields;
use crate::model::{Binding, CacheWaits};

/// A change may take effect for this time at least after its result was not known.
const MIN_DOUBT: Duration = Duration::from_secs(10);

/// A client of a registry, and what it can do. Clones share the client.
#[derive(Clone, Debug)]
pub(crate) struct RegistryAccess {
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) capabilities: Capabilities,
    /// The id of the Kubernetes cluster in the marks of instances.
    pub(crate) cluster: Arc<str>,
    /// Whether the registry has refused the credentials.
    denied: Arc<AtomicBool>,
    pub(crate) kind: RegistryKind,
    /// By what it tells services and instances apart.
    pub(crate) places: Arc<PlaceFields>,
    /// For how long after a change whose result is not known it may still take effect: twice the timeout of a call, and at
    /// least 10 s.
    pub(crate) in_doubt: Duration,
    /// The latest calls, if they are recorded.
    pub(crate) calls: Option<Arc<CallLog>>,
}

impl RegistryAccess {
    pub(crate) fn new(
        registry: Arc<dyn Registry>,
        connection: &RegistryConnection,
        cluster: Arc<str>,
        calls: Option<Arc<CallLog>>,
    ) -> Self {
        let capabilities = registry.capabilities();
        let places = Arc::new(PlaceFields::new(connection, &capabilities));
        let kind = connection.kind;
        let in_doubt = (2 * Duration::from_secs(connection.timeout_seconds.into())).max(MIN_DOUBT);
        Self { registry, capabilities, cluster, denied: Arc::default(), kind, places, in_doubt, calls }
    }

    /// Notes an error of the registry.
    pub(crate) fn note(&self, error: &RegistryError) {
        if error.kind == RegistryErrorKind::Denied {
            self.denied.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the registry has refused the credentials since [`forget_denials`](Self::forget_denials).
    pub(crate) fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// Forgets that the registry has refused the credentials.
    pub(crate) fn forget_denials(&self) {
        self.denied.store(false, Ordering::Relaxed);
    }

    /// Returns the addresses of the registry.
    pub(crate) fn addresses(&self) -> &[String] {
        self.registry.addresses()
    }

    /// Returns whether two instances are one for the registry: there is never one beside the other.
    pub(crate) fn is_same(&self, one: (&ServiceKey, &Instance), other: (&ServiceKey, &Instance)) -> bool {
        let service = |service: &ServiceKey| self.places.service(&self.registry.canonical(service.clone()));
        self.places.place(one.1) == self.places.place(other.1) && service(one.0) == service(other.0)
    }

    /// Returns whether instances are found by their ids or addresses. Otherwise they are found only in lists.
    pub(crate) fn finds_single(&self, mode: BindingMode) -> bool {
        mode == BindingMode::Own || self.capabilities.by_address
    }

    /// Returns the waits after a removal.
    pub(crate) fn cache_waits(&self, binding: &Binding) -> CacheWaits {
        CacheWaits {
            list_lag: match binding.client_cache {
                // Who says that clients keep nothing reads single instances, which are not cached.
                Some(Duration::ZERO) if self.finds_single(binding.mode) => Duration::ZERO,
                _ => self.capabilities.list_lag,
            },
            clients: binding.client_cache.unwrap_or(self.capabilities.cache),
        }
    }
}
