//! A pod that is brought into its wanted state, and what became of it.

use std::time::Duration;

use podward_api::discovery_binding::{BindingMode, ForeignChanges};
use podward_registries::Instance;

use super::access::RegistryAccess;
use crate::model::{Desired, Presence};

/// A pod and what the registry should show of it.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) presence: Presence,
    pub(crate) desired: Desired,
    pub(crate) mode: BindingMode,
    pub(crate) policy: ForeignChanges,
    /// Whether the lists of the registry must not show the instance in service either.
    pub(crate) lists: bool,
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every address that answers shows what it should. A removal needs all addresses.
    Shown {
        /// The addresses that do not answer.
        unreachable: Vec<String>,
        /// Whether others have changed the instance.
        drifted: bool,
        /// Whether something had to be written.
        written: bool,
    },
    /// The change was made, and can be read back after this time. The text counts if it is not shown then.
    Written(Duration, String),
    /// The instance is out of service, but a list still shows it in service. The text says which list, and what to do.
    InStaleList(String),
    /// Somebody else has to act. The text says who and what.
    Waits(String),
    /// It is to be tried again. The text says what failed.
    Failed(String),
}

/// Returns whether `found` is the instance `wanted`. `by_id` is true if it has our id.
pub(super) fn is_same(access: &RegistryAccess, found: &Instance, wanted: &Instance, by_id: bool) -> bool {
    match by_id && !access.capabilities.by_address {
        true => found.id == wanted.id,
        false => (&found.host, found.port) == (&wanted.host, wanted.port),
    }
}
