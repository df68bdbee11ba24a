//! The service that is responsible for DiscoveryBindings.

/// The name of the service, of its Deployment and of the label of its Leases.
pub(in crate::commands) const BRIDGE: &str = "service-discovery-bridge";
