//! Services.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::address_family::AddressFamily;
use super::mesh::mesh_key;
use super::object::{WatchedObject, kept_metadata, or_default};

const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// A Service object as the API server sends it. Traffic distribution is omitted on purpose: it selects among the rules of
/// a node, and the answers wait for the rules of all nodes.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = corev1::Service)]
pub(crate) struct ServiceObject {
    #[serde(deserialize_with = "kept_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: ServiceSpecObject,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceSpecObject {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    type_: String,
    #[serde(default, rename = "clusterIP", deserialize_with = "or_default")]
    cluster_ip: String,
    #[serde(default, deserialize_with = "or_default")]
    selector: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_default")]
    publish_not_ready_addresses: bool,
    #[serde(default, deserialize_with = "or_default")]
    ip_families: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    external_traffic_policy: String,
    #[serde(default, deserialize_with = "or_default")]
    internal_traffic_policy: String,
}

impl WatchedObject for ServiceObject {
    const KIND: &'static str = <corev1::Service as k8s_openapi::Resource>::KIND;
}

/// The way in which a Service sends traffic to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceKind {
    /// Through kube-proxy.
    Proxied,
    /// By DNS answers with the pods' addresses.
    Headless,
    /// Not at all: the Service is an alias for a DNS name.
    ExternalName,
    /// Through a proxy other than kube-proxy.
    OtherProxy,
}

/// A policy by which a node sends traffic only to its own endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalPolicy {
    /// `externalTrafficPolicy: Local`, and perhaps the other policy too.
    External,
    /// `internalTrafficPolicy: Local`.
    Internal,
}

impl LocalPolicy {
    /// Returns the field of the Service with its value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            LocalPolicy::External => "externalTrafficPolicy: Local",
            LocalPolicy::Internal => "internalTrafficPolicy: Local",
        }
    }
}

/// The indexed fields of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedService {
    pub(crate) kind: ServiceKind,
    pub(crate) selector: BTreeMap<String, String>,
    /// True if its endpoints are ready regardless of the readiness of the pods.
    pub(crate) publishes_not_ready: bool,
    /// The address families in which it has endpoints.
    pub(crate) families: [bool; AddressFamily::COUNT],
    /// The policy by which a node uses only its own endpoints.
    pub(crate) local: Option<LocalPolicy>,
    /// The label or annotation by which the Service is in a mesh.
    pub(crate) mesh: Option<&'static str>,
}

impl IndexedService {
    /// Returns true if the selector matches `labels`. A Service without a selector matches no pod.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.kind != ServiceKind::ExternalName
            && !self.selector.is_empty()
            && self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

impl ServiceObject {
    /// Returns the indexed fields.
    pub(crate) fn service(&self) -> IndexedService {
        let other = self.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(PROXY_NAME));
        let kind = match (self.spec.type_.as_str(), self.spec.cluster_ip.as_str()) {
            ("ExternalName", _) => ServiceKind::ExternalName,
            (_, "None") => ServiceKind::Headless,
            _ if other => ServiceKind::OtherProxy,
            _ => ServiceKind::Proxied,
        };
        IndexedService {
            kind,
            selector: self.spec.selector.clone(),
            publishes_not_ready: self.spec.publish_not_ready_addresses,
            families: AddressFamily::ALL
                .map(|family| self.spec.ip_families.iter().any(|name| name == family.as_str())),
            mesh: mesh_key(&self.metadata),
            local: match (
                kind,
                self.spec.external_traffic_policy.as_str(),
                self.spec.internal_traffic_policy.as_str(),
            ) {
                (ServiceKind::Proxied, "Local", _) => Some(LocalPolicy::External),
                (ServiceKind::Proxied, _, "Local") => Some(LocalPolicy::Internal),
                _ => None,
            },
        }
    }
}
