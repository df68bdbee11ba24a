//! Instances of a binding that belong to no pod any more.

use std::collections::HashSet;

use podward_registries::{Instance, ServiceKey};

use super::binding::BindingKey;

/// An instance of a binding that belongs to no pod that the binding selects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Orphan {
    pub(crate) service: ServiceKey,
    pub(crate) instance: Instance,
    /// The UID of the pod in the mark.
    pub(crate) uid: String,
}

/// Returns the instances that are marked for this binding of this cluster, and whose pod is not in `pods`. Instances with
/// another mark, or without one, are never among them.
pub(crate) fn orphans<'a>(
    cluster: &str,
    binding: &BindingKey,
    pods: &HashSet<String>,
    found: impl IntoIterator<Item = (&'a ServiceKey, &'a Instance)>,
) -> Vec<Orphan> {
    let of_binding = found.into_iter().filter_map(|(service, instance)| {
        let owner = instance.owner()?;
        let is_ours = owner.cluster == cluster
            && owner.namespace == binding.namespace
            && owner.binding == binding.name
            && !pods.contains(&owner.uid);
        is_ours.then(|| Orphan { service: service.clone(), instance: instance.clone(), uid: owner.uid })
    });
    of_binding.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::binding::tests::{binding, pod};
    use super::*;

    #[test]
    fn only_our_own_instances_are_orphans() {
        let binding = binding(json!({}));
        let desired = binding.desired(&pod("u1"), "c1").unwrap();
        let found = || [(&desired.service, &desired.instance)];
        let none = HashSet::new();
        assert_eq!(orphans("c1", &binding.key, &none, found())[0].uid, "u1");
        assert!(orphans("c2", &binding.key, &none, found()).is_empty());
        assert!(orphans("c1", &binding.key, &HashSet::from(["u1".to_owned()]), found()).is_empty());
        let other = BindingKey { name: "api".to_owned(), ..binding.key.clone() };
        assert!(orphans("c1", &other, &none, found()).is_empty());
        let mut unmarked = desired.instance.clone();
        unmarked.metadata.remove("podward-uid");
        assert!(orphans("c1", &binding.key, &none, [(&desired.service, &unmarked)]).is_empty());
    }
}
