//! Nodes.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use podward_core::UnixNanos;
use serde::Deserialize;

use super::object::{WatchedObject, kept_metadata, or_default};
use crate::clock::after;

/// How long a node that was not Ready counts after its Node object is deleted. It may run on, and send traffic by the
/// rules that it has.
const DELETED_NODE_WAIT: Duration = Duration::from_secs(30);

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexedNode {
    /// The addresses of type InternalIP. A node with two address families has one of each.
    pub(crate) addresses: Vec<IpAddr>,
    /// When the condition Ready stopped being True, by the clock of the API server. 0 if this is not known, `None` if
    /// the condition is True.
    pub(crate) not_ready_since: Option<UnixNanos>,
    /// When the Node object was deleted, if it was. The node was not Ready then.
    pub(crate) deleted_at: Option<UnixNanos>,
}

impl IndexedNode {
    /// Returns the address at which the services of the node are called.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.addresses.first().copied()
    }

    /// Returns true if the node may send traffic by rules that are older than a change that was observed at `seen`.
    pub(crate) fn may_send(&self, seen: UnixNanos) -> bool {
        self.deleted_at.is_none_or(|deleted| seen < after(deleted, DELETED_NODE_WAIT))
    }
}

impl NodeObject {
    /// Returns the indexed fields.
    pub(crate) fn node(&self) -> IndexedNode {
        let since = |ready: &TypedEntry| UnixNanos::parse(&ready.last_transition_time).unwrap_or_default();
        let internal = self.status.addresses.iter().filter(|typed| typed.type_ == "InternalIP");
        let ready = self.status.conditions.iter().find(|typed| typed.type_ == "Ready");
        let since = ready.map_or(UnixNanos(0), since);
        IndexedNode {
            addresses: internal.filter_map(|typed| typed.address.parse().ok()).collect(),
            not_ready_since: ready.is_none_or(|ready| ready.status != "True").then_some(since),
            deleted_at: None,
        }
    }
}
