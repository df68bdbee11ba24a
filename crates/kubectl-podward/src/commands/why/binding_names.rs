//! The names by which people know a DiscoveryBinding.

use podward_api::DiscoveryBinding;

/// Returns the name of the hook of a DiscoveryBinding.
pub(super) fn hook_of(namespace: &str, binding: &str) -> String {
    format!("{namespace}.{binding}")
}

/// Returns the registry of a binding, for people.
pub(super) fn registry_of(binding: &DiscoveryBinding) -> String {
    let registry = &binding.spec.registry;
    match (&registry.cluster_registry, &registry.connection) {
        (Some(of_cluster), _) => format!("ClusterRegistry {of_cluster}"),
        (None, Some(connection)) => format!("{} at {}", connection.kind, connection.addresses.join(", ")),
        (None, None) => "no registry".to_owned(),
    }
}
