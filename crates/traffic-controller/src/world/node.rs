//! Nodes.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ClusterResourceScope;
use serde::Deserialize;

use super::object::{or_default, resource, slim_metadata};

/// A node on the wire.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeObject {
    #[serde(deserialize_with = "slim_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    status: StatusObject,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct StatusObject {
    #[serde(default, deserialize_with = "or_default")]
    addresses: Vec<Typed>,
    #[serde(default, deserialize_with = "or_default")]
    conditions: Vec<Typed>,
}

#[derive(Clone, Debug, Deserialize)]
struct Typed {
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    status: String,
}

resource!(NodeObject, corev1::Node, ClusterResourceScope);

/// A node, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its first address of type InternalIP.
    pub(crate) address: Option<IpAddr>,
    /// Whether its condition Ready is True.
    pub(crate) ready: bool,
}

impl NodeObject {
    /// What is kept of it.
    pub(crate) fn node(&self) -> Node {
        let internal = self.status.addresses.iter().filter(|typed| typed.type_ == "InternalIP");
        let ready = |typed: &Typed| typed.type_ == "Ready" && typed.status == "True";
        Node {
            address: internal.filter_map(|typed| typed.address.parse().ok()).next(),
            ready: self.status.conditions.iter().any(ready),
        }
    }
}
