//! The mark of an instance: for which pod and binding of which cluster it was registered.

use std::collections::BTreeMap;

/// The length of the UIDs of Kubernetes.
const UID_LENGTH: usize = 36;

/// For which pod and binding an instance was registered. Instances without this mark belong to others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The id of the Kubernetes cluster. Several clusters may share a registry.
    pub cluster: String,
    /// The namespace of the pod and of the binding.
    pub namespace: String,
    /// The name of the binding.
    pub binding: String,
    /// The name of the pod. StatefulSets give one name to many pods, one after the other.
    pub pod: String,
    /// The UID of the pod.
    pub uid: String,
}

impl Owner {
    /// The keys in the metadata, in the order of the fields. All registries accept these characters.
    pub const KEYS: [&'static str; 5] =
        ["podward-cluster", "podward-namespace", "podward-binding", "podward-pod", "podward-uid"];

    /// Returns the owner in the metadata of an instance, or `None` if a key is missing.
    pub fn of(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let [cluster, namespace, binding, pod, uid] = Self::marks(metadata)?.map(ToOwned::to_owned);
        Some(Self { cluster, namespace, binding, pod, uid })
    }

    /// Returns the values of [`KEYS`](Self::KEYS) in the metadata of an instance, or `None` if one is missing.
    pub fn marks(metadata: &BTreeMap<String, String>) -> Option<[&str; 5]> {
        let [cluster, namespace, binding, pod, uid] =
            Self::KEYS.map(|key| metadata.get(key).map(String::as_str));
        Some([cluster?, namespace?, binding?, pod?, uid?])
    }

    /// Returns whether the metadata of an instance has this mark.
    pub fn is_in(&self, metadata: &BTreeMap<String, String>) -> bool {
        let Self { cluster, namespace, binding, pod, uid } = self;
        Self::marks(metadata) == Some([cluster, namespace, binding, pod, uid])
    }

    /// Returns the id of the instance of the pod with this port. No other pod has one like it.
    pub fn instance_id(&self, port: u16) -> String {
        let Self { namespace, pod, uid, .. } = self;
        format!("{namespace}.{pod}.{uid}.{port}")
    }

    /// Returns the namespace and the UID of the pod in an id with the form of [`instance_id`](Self::instance_id). `None` if it
    /// has another form.
    pub fn pod_in_id(id: &str) -> Option<(&str, &str)> {
        let mut parts = id.rsplit('.');
        let (port, uid) = (parts.next()?, parts.next()?);
        let has_form = port.parse::<u16>().is_ok() && uid.len() == UID_LENGTH && parts.count() >= 2;
        has_form.then(|| (id.split('.').next().unwrap_or_default(), uid))
    }

    /// Returns whether both are marks of one binding.
    pub(crate) fn is_of_binding_of(&self, other: &Self) -> bool {
        (&self.cluster, &self.namespace, &self.binding) == (&other.cluster, &other.namespace, &other.binding)
    }

    /// Writes the owner into the metadata of an instance.
    pub fn mark(&self, metadata: &mut BTreeMap<String, String>) {
        let values = [&self.cluster, &self.namespace, &self.binding, &self.pod, &self.uid];
        metadata
            .extend(Self::KEYS.into_iter().zip(values).map(|(key, value)| (key.to_owned(), value.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_found_in_the_metadata() {
        let owner = Owner {
            cluster: "c1".to_owned(),
            namespace: "shop".to_owned(),
            binding: "web".to_owned(),
            pod: "web-0".to_owned(),
            uid: "1-2-3".to_owned(),
        };
        let mut metadata = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        owner.mark(&mut metadata);
        assert_eq!(Owner::of(&metadata).as_ref(), Some(&owner));
        assert!(owner.is_in(&metadata));
        assert!(!Owner { uid: "1-2-4".to_owned(), ..owner.clone() }.is_in(&metadata));
        assert_eq!(metadata.len(), 6);
        metadata.remove("podward-uid");
        assert_eq!(Owner::of(&metadata), None);
        assert!(!owner.is_in(&metadata));
    }

    #[test]
    fn the_id_of_an_instance_is_recognized() {
        let owner = Owner {
            cluster: "c1".to_owned(),
            namespace: "shop".to_owned(),
            binding: "web".to_owned(),
            pod: "web.0".to_owned(),
            uid: "0f1c7a52-6d0e-4d5c-9a53-1f6a1f0c9c11".to_owned(),
        };
        let id = owner.instance_id(8080);
        assert_eq!(Owner::pod_in_id(&id), Some(("shop", &*owner.uid)));
        for other in ["", "config", "10.0.0.9", "10.0.0.9:80", &owner.uid, &id[5..], &format!("{id}x")] {
            assert_eq!(Owner::pod_in_id(other).is_some(), other == &id[5..], "{other}");
        }
    }
}
