//! Who somebody is.

use std::collections::BTreeMap;

/// Who somebody is, as Kubernetes sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User name, as in `system:serviceaccount:<namespace>:<name>`.
    pub user: String,
    /// Unique id of the user, where there is one.
    pub uid: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// What else an authenticator or authorizer of the API server put there.
    pub extra: BTreeMap<String, Vec<String>>,
}
