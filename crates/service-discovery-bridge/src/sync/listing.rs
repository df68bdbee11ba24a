//! A full list of what a registry shows.

use std::collections::HashSet;

use futures::stream::{self, StreamExt};
use podward_registries::{Instance, RegistryError, ServiceKey};

use super::access::RegistryAccess;

/// Services that are read at the same time.
const MAX_CONCURRENT_CALLS: usize = 8;

/// What one address shows.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) instances: Vec<(ServiceKey, Instance)>,
}

/// Reads all services at an address that may have instances of this cluster, and `known` ones besides, in their
/// [canonical](podward_registries::Registry::canonical) form.
///
/// # Errors
/// Fails if the address, or one of its services, cannot be read: an incomplete list shows nothing.
pub(crate) async fn list(
    access: &RegistryAccess,
    address: usize,
    known: &HashSet<ServiceKey>,
) -> Result<Listing, RegistryError> {
    let registry = &access.registry;
    let mut services = known.clone();
    if registry.can_list() {
        services.extend(registry.services(address, &access.cluster).await?);
    }
    let reads: Vec<_> = services
        .into_iter()
        .map(|service| async move {
            let found = registry.instances(address, &service).await?;
            Ok::<_, RegistryError>(
                found.into_iter().map(|instance| (service.clone(), instance)).collect::<Vec<_>>(),
            )
        })
        .collect();
    let mut reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_CALLS);
    let mut instances = Vec::new();
    while let Some(found) = reads.next().await {
        instances.extend(found?);
    }
    Ok(Listing { instances })
}
