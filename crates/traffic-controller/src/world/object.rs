//! Objects of which only a little is kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// Namespace and name; the namespace of a node is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Key {
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

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object that is watched.
pub(crate) trait Slim:
    kube::Resource<DynamicType = ()> + Clone + Debug + for<'de> Deserialize<'de> + Send + 'static
{
    /// Its kind, for the log and the metrics.
    const KIND: &'static str;
}

/// Labels and annotations that anybody here reads.
const KEPT: [&str; 4] = [
    "kubernetes.io/service-name",
    "service.kubernetes.io/headless",
    "service.kubernetes.io/service-proxy-name",
    "endpoints.kubernetes.io/last-change-trigger-time",
];

/// Reads metadata and keeps names, version, and the labels and annotations of [`KEPT`].
pub(super) fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
        #[serde(default)]
        labels: Kept,
        #[serde(default)]
        annotations: Kept,
    }

    let slim = Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        resource_version: slim.resource_version,
        labels: slim.labels.0,
        annotations: slim.annotations.0,
        ..ObjectMeta::default()
    })
}

#[derive(Default)]
struct Kept(Option<BTreeMap<String, String>>);

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all =
            Option::<BTreeMap<Cow<'de, str>, Cow<'de, str>>>::deserialize(deserializer)?.unwrap_or_default();
        let kept: BTreeMap<String, String> = all
            .into_iter()
            .filter(|(key, _)| KEPT.contains(&key.as_ref()))
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect();
        Ok(Kept((!kept.is_empty()).then_some(kept)))
    }
}

/// Null and missing are the default.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Makes `$object`, which has a field `metadata`, the resource `$of` to the client.
macro_rules! resource {
    ($object:ty, $of:ty, $scope:ty) => {
        impl kube::Resource for $object {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$of as kube::Resource>::kind(&())
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$of as kube::Resource>::group(&())
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$of as kube::Resource>::version(&())
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$of as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl crate::world::object::Slim for $object {
            const KIND: &'static str = <$of as k8s_openapi::Resource>::KIND;
        }
    };
}
pub(super) use resource;
