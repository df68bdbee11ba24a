//! Nodes.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use podward_core::UnixNanos;
use serde::Deserialize;

use super::object::{WatchedObject, kept_metadata, or_default};

/// A Node object as the API server sends it.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = corev1::Node)]
pub(crate) struct NodeObject {
    #[serde(deserialize_with = "kept_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    status: NodeStatusObject,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeStatusObject {
    #[serde(default, deserialize_with = "or_default")]
    addresses: Vec<TypedEntry>,
    #[serde(default, deserialize_with = "or_default")]
    conditions: Vec<TypedEntry>,
}

/// An element of `addresses` or of `conditions`.
#[derive(Clone, Debug, Deserialize)]
struct TypedEntry {
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    status: String,
    #[serde(rename = "lastTransitionTime", default, deserialize_with = "or_default")]
    last_transition_time: String,
}

impl WatchedObject for NodeObject {
    const KIND: &'static str = <corev1::Node as k8s_openapi::Resource>::KIND;
}

/// The indexed fields of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedNode {
    /// The first address of type InternalIP.
    pub(crate) address: Option<IpAddr>,
    /// When the condition Ready stopped being True, by the clock of the API server. 0 if this is not known, `None` if
    /// the condition is True.
    pub(crate) not_ready_since: Option<UnixNanos>,
}

impl NodeObject {
    /// Returns the indexed fields.
    pub(crate) fn node(&self) -> IndexedNode {
        let since = |ready: &TypedEntry| UnixNanos::parse(&ready.last_transition_time).unwrap_or_default();
        let internal = self.status.addresses.iter().filter(|typed| typed.type_ == "InternalIP");
        let ready = self.status.conditions.iter().find(|typed| typed.type_ == "Ready");
        let since = ready.map_or(UnixNanos(0), since);
        IndexedNode {
            address: internal.filter_map(|typed| typed.address.parse().ok()).next(),
            not_ready_since: ready.is_none_or(|ready| ready.status != "True").then_some(since),
        }
    }
}
