//! Partial deserialization of objects: only the fields that the index needs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::mesh::MESH_KEYS;

/// Namespace and name of an object. The namespace of a node is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A kind of object that the traffic-controller watches.
pub(crate) trait WatchedObject:
    kube::Resource<DynamicType = ()> + Clone + Debug + for<'de> Deserialize<'de> + Send + 'static
{
    /// The name of the kind, for the log and the metrics.
    const KIND: &'static str;
    /// True if clusters without the kind are normal.
    const OPTIONAL: bool = false;
}

/// The labels and annotations that the index uses.
const KEPT_KEYS: [&str; 4] = [
    "kubernetes.io/service-name",
    "service.kubernetes.io/headless",
    "service.kubernetes.io/service-proxy-name",
    "endpoints.kubernetes.io/last-change-trigger-time",
];

/// Deserializes metadata. Keeps the name, the namespace, the resource version, and the labels and annotations in
/// [`KEPT_KEYS`] and [`MESH_KEYS`].
pub(super) fn kept_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct KeptMetadata {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
        #[serde(default)]
        labels: KeptPairs,
        #[serde(default)]
        annotations: KeptPairs,
    }

    let kept = KeptMetadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: kept.name,
        namespace: kept.namespace,
        resource_version: kept.resource_version,
        labels: kept.labels.0,
        annotations: kept.annotations.0,
        ..ObjectMeta::default()
    })
}

#[derive(Default)]
struct KeptPairs(Option<BTreeMap<String, String>>);

impl<'de> Deserialize<'de> for KeptPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all =
            Option::<BTreeMap<Cow<'de, str>, Cow<'de, str>>>::deserialize(deserializer)?.unwrap_or_default();
        let kept: BTreeMap<String, String> = all
            .into_iter()
            .filter(|(key, _)| KEPT_KEYS.contains(&key.as_ref()) || MESH_KEYS.contains(&key.as_ref()))
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect();
        Ok(KeptPairs((!kept.is_empty()).then_some(kept)))
    }
}

/// Deserializes null as the default value.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
