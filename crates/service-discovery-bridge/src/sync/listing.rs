//! A full list of what a registry shows.

use std::collections::HashSet;

use futures::stream::{self, StreamExt};
use podward_registries::{Listed, RegistryError, ServiceKey};

use super::access::RegistryAccess;

/// Services that are read at the same time.
const MAX_CONCURRENT_CALLS: usize = 4;

/// Reads all services at an address that may have instances of this cluster, and `known` ones besides, in their
/// [canonical](podward_registries::Registry::canonical) form. Calls `visit` with each of them and its entries, as they
/// arrive.
///
/// # Errors
/// Fails if the address, or one of its services, cannot be read: then nothing follows from what was visited.
pub(crate) async fn read_services(
    access: &RegistryAccess,
    address: usize,
    known: &HashSet<ServiceKey>,
    mut visit: impl FnMut(ServiceKey, Listed),
) -> Result<(), RegistryError> {
    let registry = &access.registry;
    let mut services = known.clone();
    if registry.can_list() {
        services.extend(registry.services(address, &access.cluster).await?);
    }
    let reads: Vec<_> = services
        .into_iter()
        .map(|service| async move {
            let found = registry.listed(address, &service).await?;
            Ok::<_, RegistryError>((service, found))
        })
        .collect();
    let mut reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_CALLS);
    while let Some(found) = reads.next().await {
        let (service, listed) = found?;
        visit(service, listed);
    }
    Ok(())
}
