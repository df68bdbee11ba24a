//! The key of a pod in maps and messages.

use std::fmt;

use kube::Resource;
use kube::runtime::reflector::ObjectRef;

/// Namespace and name of a pod. Displayed as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl PodKey {
    /// Returns the name of the pod for kube's stores and controllers.
    #[must_use]
    pub fn object_ref<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
