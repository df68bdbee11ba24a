//! The options of the demo of registries.

use std::time::Duration;

use demo_client::RegistryKind;

use crate::demo::options::Demo;

/// The options of the demo of registries.
#[derive(Clone, Debug)]
pub struct RegistryDemo {
    /// The options of the demo. Its cluster is a test cluster with one node.
    pub demo: Demo,
    /// The registries.
    pub registries: Vec<RegistryKind>,
    /// The interval at which clients read the registry, in whole seconds. Eureka's servers answer lists from a cache of the
    /// same age, as both have the same default.
    pub cache: Duration,
}
