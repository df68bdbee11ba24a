//! Instances of a binding that no pod should have any more.

use std::collections::HashSet;

use podward_registries::{Instance, Owner, ServiceKey};

use super::binding::BindingKey;

/// An instance of a binding that belongs to no pod that the binding selects, or that its pod has left for another one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Orphan {
    pub(crate) service: ServiceKey,
    pub(crate) instance: Instance,
    /// The UID of the pod in the mark.
    pub(crate) uid: String,
    pub(crate) state: OrphanState,
}

/// How far the removal of an orphan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanState {
    Found,
    /// There is a reason for it, or the removal limit allows it and has counted it.
    Allowed,
    /// The registry has accepted it, or has another state. It is read back.
    Removed,
}

impl Orphan {
    pub(crate) fn new(service: ServiceKey, instance: Instance, uid: String) -> Self {
        Self { service, instance, uid, state: OrphanState::Found }
    }

    /// Returns what it is known by.
    fn key(&self) -> (&ServiceKey, &str, (&str, &str, u16)) {
        let Instance { id, host, port, .. } = &self.instance;
        (&self.service, &self.uid, (id, host, *port))
    }
}

/// Returns the orphans `found` by a comparison. Removals of those `before` that were allowed stay so.
pub(crate) fn found_again(before: &[Orphan], mut found: Vec<Orphan>) -> Vec<Orphan> {
    let allowed = before.iter().filter(|orphan| orphan.state != OrphanState::Found);
    let allowed: HashSet<_> = allowed.map(Orphan::key).collect();
    for orphan in &mut found {
        if allowed.contains(&orphan.key()) {
            orphan.state = OrphanState::Allowed;
        }
    }
    found
}

/// Returns the UID of the pod that an instance is marked for, if it is marked for this binding of this cluster. Instances
/// with another mark, or without one, are never changed.
pub(crate) fn marked_uid<'i>(cluster: &str, binding: &BindingKey, instance: &'i Instance) -> Option<&'i str> {
    let [of_cluster, namespace, name, _, uid] = Owner::marks(&instance.metadata)?;
    ((of_cluster, namespace, name) == (cluster, &*binding.namespace, &*binding.name)).then_some(uid)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::binding::tests::{binding, pod};
    use super::*;

    #[test]
    fn only_our_own_instances_have_a_marked_pod() {
        let binding = binding(json!({}));
        let desired = binding.desired(&pod("u1"), "c1").unwrap();
        assert_eq!(marked_uid("c1", &binding.key, &desired.instance), Some("u1"));
        assert_eq!(marked_uid("c2", &binding.key, &desired.instance), None);
        let other = BindingKey { name: "api".to_owned(), ..binding.key.clone() };
        assert_eq!(marked_uid("c1", &other, &desired.instance), None);
        let other = BindingKey { namespace: "other".to_owned(), ..binding.key.clone() };
        assert_eq!(marked_uid("c1", &other, &desired.instance), None);
        for key in Owner::KEYS {
            let mut unmarked = desired.instance.clone();
            unmarked.metadata.remove(key);
            assert_eq!(marked_uid("c1", &binding.key, &unmarked), None);
        }
    }
}
