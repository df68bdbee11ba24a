//! The identity of a caller.

use std::collections::BTreeMap;

/// The identity of a caller, as Kubernetes knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User name, as in `system:serviceaccount:<namespace>:<name>`.
    pub user: String,
    /// Unique ID of the user; `None` if it has none.
    pub uid: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// Extra attributes of the API server's authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}
