//! NodeProxies.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ClusterResourceScope;
use serde::Deserialize;

use super::object::{kept_metadata, or_default, resource};

/// A Node object as the API server sends it.
#[derive(Clone, Debug, Deserialize)]
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
}

resource!(NodeObject, corev1::Node, ClusterResourceScope);

/// The indexed fields of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedNode {
    /// The first address of type InternalIP.
    pub(crate) address: Option<IpAddr>,
    /// True if the condition Ready is True.
    pub(crate) ready: bool,
}

impl NodeObject {
    /// Returns the indexed fields.
    pub(crate) fn node(&self) -> IndexedNode {
        let internal = self.status.addresses.iter().filter(|typed| typed.type_ == "InternalIP");
        let ready = |typed: &TypedEntry| typed.type_ == "Ready" && typed.status == "True";
        IndexedNode {
            address: internal.filter_map(|typed| typed.address.parse().ok()).next(),
            ready: self.status.conditions.iter().any(ready),
        }
    }
}
