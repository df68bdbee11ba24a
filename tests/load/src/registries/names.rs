//! Names and limits of all parts of the measurement.

use std::time::Duration;

/// The namespace of the pods and of the binding.
pub(super) const NAMESPACE: &str = "registries";
/// The name of the binding.
pub(super) const BINDING: &str = "bench";
/// The time for what takes longest: ten thousand pods on two busy cores.
pub(super) const DEADLINE: Duration = Duration::from_secs(900);
