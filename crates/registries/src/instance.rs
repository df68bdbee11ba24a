//! Instances of services.

use std::collections::BTreeMap;

use crate::owner::Owner;

/// The name of a service, in the terms of a registry. A registry without groups or namespaces ignores these fields, and a
/// client returns them empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The namespace of the registry: that of Nacos, or of Consul Enterprise. Empty for the registry's default.
    pub namespace: String,
    /// The group: that of Nacos. Empty for the registry's default.
    pub group: String,
    /// The name.
    pub name: String,
}

/// One address of a service, as a registry stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// The name of the instance in its service. A registry that knows an instance by its address ignores it when it is
    /// written, and derives it from the address when it is read.
    pub id: String,
    /// The IP address, or the host name that an application registered.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The cluster: that of Nacos. Empty for the registry's default.
    pub cluster: String,
    /// The weight relative to the weights of other instances, at least 0. Registries without weights store it in the
    /// metadata or nowhere.
    pub weight: f64,
    /// What clients of the registry see. The owner is part of it, under the keys of [`Owner::KEYS`].
    pub metadata: BTreeMap<String, String>,
    /// True if clients of the registry send it requests.
    pub in_service: bool,
    /// True if it is out of service only because it is not healthy, or does not report itself ready: it is in service again
    /// when that changes, although nobody puts it into service. Ignored when it is written.
    pub may_return: bool,
    /// What a change may be conditional on. `None` if it was not read, or if the registry has none.
    pub version: Option<InstanceVersion>,
}

/// The version of a stored instance, in the registry's terms. A change with it fails with
/// [`Conflict`](crate::RegistryErrorKind::Conflict) if somebody else has changed the instance since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceVersion(pub u64);

impl Instance {
    /// Returns whether it is out of service until somebody puts it into service, whatever its health is.
    pub fn is_held_out(&self) -> bool {
        !self.in_service && !self.may_return
    }

    /// Returns the owner, or `None` if the instance has no complete mark.
    pub fn owner(&self) -> Option<Owner> {
        Owner::of(&self.metadata)
    }

    /// Returns whether this one may be registered in the place of `present`: they have the same mark, or marks of two pods of
    /// one binding. An address is inherited from a pod that has ended.
    pub(crate) fn may_replace(&self, present: &Self) -> bool {
        match (self.owner(), present.owner()) {
            (Some(own), Some(other)) => own.is_of_binding_of(&other),
            (own, other) => own == other,
        }
    }
}
