//! The key of a pod in maps and messages.

use std::fmt;

/// Namespace and name of a pod. Displayed as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
