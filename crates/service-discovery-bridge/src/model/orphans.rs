//! Instances of a binding that no pod should have any more, and entries that may be such ones.

use std::collections::HashSet;

use podward_registries::{Capabilities, Instance, Owner, ServiceKey, Unreadable};

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

/// An entry that cannot be read, and that may be an instance of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) service: ServiceKey,
    pub(crate) whose: Whose,
    /// Its port, if that is known.
    pub(crate) port: Option<u16>,
    /// True if it has the mark of the binding, or is in a service that pods of the binding have or had.
    pub(crate) is_near: bool,
    /// What cannot be read, and what to do.
    pub(crate) problem: String,
}

/// By what the pod of a [`Suspect`] is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Uid(String),
    Host(String),
}

impl Suspect {
    /// Returns what an entry of a service may be that cannot be read. `None` if it is no instance of the binding: it has another
    /// mark, or neither a mark nor what Podward writes into a key. `is_known`: pods of the binding have or had the service. Pods may
    /// have had others before this replica was responsible.
    pub(crate) fn new(
        cluster: &str,
        binding: &BindingKey,
        capabilities: &Capabilities,
        (service, is_known): (&ServiceKey, bool),
        entry: Unreadable,
    ) -> Option<Self> {
        let Unreadable { id, host, port, owner, is_marked, error } = entry;
        let is_ours = owner.map(|owner| {
            let of = (&*owner.cluster, &owner.namespace, &owner.binding);
            (of == (cluster, &binding.namespace, &binding.name)).then_some(owner.uid)
        });
        let (whose, is_near) = match is_ours {
            Some(uid) => (Whose::Uid(uid?), true),
            // Applications have entries with addresses too.
            None if capabilities.by_address => {
                (Whose::Host(host.filter(|_| is_known || is_marked)?), is_known)
            }
            None => {
                let (namespace, uid) = Owner::pod_in_id(&id)?;
                (namespace == binding.namespace).then(|| (Whose::Uid(uid.to_owned()), is_known))?
            }
        };
        Some(Self { service: service.clone(), whose, port, is_near, problem: error.to_string() })
    }

    /// Returns whether it may be an instance of the pod with this UID and address. Others have entries at the address too, so it
    /// counts only in services of the binding.
    pub(crate) fn may_be_of(&self, uid: &str, host: &str) -> bool {
        match &self.whose {
            Whose::Uid(own) => own == uid,
            Whose::Host(own) => self.is_near && own == host,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::binding::tests::{binding, pod};
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_is_suspected_only_where_it_may_be_ours() {
        let (binding, uid) = (binding(json!({})), "0f1c7a52-6d0e-4d5c-9a53-1f6a1f0c9c11");
        let owner = |name: &str| {
            let [cluster, namespace, pod] = ["c1", "shop", "web-0"].map(str::to_owned);
            Owner { cluster, namespace, binding: name.to_owned(), pod, uid: uid.to_owned() }
        };
        let error = podward_registries::RegistryError {
            doing: "read".to_owned(),
            address: "a".to_owned(),
            reason: "no instance".to_owned(),
            kind: podward_registries::RegistryErrorKind::Invalid,
        };
        let suspect_with = |by_address, id: String, owner, is_known, is_marked| {
            let capabilities = Capabilities {
                own: true,
                steer: true,
                by_address,
                weights: true,
                renewal: None,
                batch: 1,
                list_lag: Default::default(),
                cache: Default::default(),
            };
            let host = Some("10.0.0.7".to_owned());
            let entry = Unreadable { id, host, port: None, owner, is_marked, error: error.clone() };
            let service = ServiceKey::default();
            let found = Suspect::new("c1", &binding.key, &capabilities, (&service, is_known), entry);
            found.map(|found| (found.whose, found.is_near))
        };
        let suspect = |by_address, id, owner, is_known| suspect_with(by_address, id, owner, is_known, true);
        let of_uid = |is_near| Some((Whose::Uid(uid.to_owned()), is_near));
        let ours = owner("web").instance_id(80);
        for is_known in [false, true] {
            assert_eq!(suspect(false, ours.clone(), None, is_known), of_uid(is_known));
            assert_eq!(suspect(false, format!("other.web-0.{uid}.80"), None, is_known), None);
            assert_eq!(suspect(false, "10.0.0.7:80".to_owned(), None, is_known), None);
            let host = Some((Whose::Host("10.0.0.7".to_owned()), is_known));
            assert_eq!(suspect(true, "10.0.0.7:80".to_owned(), None, is_known), host);
            let unmarked = suspect_with(true, "10.0.0.7:80".to_owned(), None, is_known, false);
            assert_eq!(unmarked, host.filter(|_| is_known));
            for by_address in [false, true] {
                assert_eq!(suspect(by_address, "x".to_owned(), Some(owner("web")), is_known), of_uid(true));
                assert_eq!(suspect(by_address, ours.clone(), Some(owner("api")), is_known), None);
            }
        }
    }

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
