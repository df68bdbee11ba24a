//! Services.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;

use super::object::{or_default, resource, slim_metadata};

const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// A Service on the wire. Traffic policies and distribution are left out on purpose: they choose among a node's rules, and the rules
/// of all nodes are waited for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ServiceObject {
    #[serde(deserialize_with = "slim_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: SpecObject,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecObject {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    type_: String,
    #[serde(default, rename = "clusterIP", deserialize_with = "or_default")]
    cluster_ip: String,
    #[serde(default, deserialize_with = "or_default")]
    selector: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_default")]
    publish_not_ready_addresses: bool,
}

resource!(ServiceObject, corev1::Service, NamespaceResourceScope);

/// How a Service leads traffic to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceKind {
    /// Through kube-proxy.
    Proxied,
    /// By DNS answers with the pods' addresses.
    Headless,
    /// Not at all: it is another name for something.
    ExternalName,
    /// Through a proxy that isn't kube-proxy.
    OtherProxy,
}

/// A Service, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) kind: ServiceKind,
    pub(crate) selector: BTreeMap<String, String>,
    /// Its endpoints are ready whatever the pods say.
    pub(crate) publishes_not_ready: bool,
}

impl Service {
    /// Whether it selects pods with `labels`; one without a selector selects none.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.kind != ServiceKind::ExternalName
            && !self.selector.is_empty()
            && self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

impl ServiceObject {
    /// What is kept of it.
    pub(crate) fn service(&self) -> Service {
        let other = self.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(PROXY_NAME));
        let kind = match (self.spec.type_.as_str(), self.spec.cluster_ip.as_str()) {
            ("ExternalName", _) => ServiceKind::ExternalName,
            (_, "None") => ServiceKind::Headless,
            _ if other => ServiceKind::OtherProxy,
            _ => ServiceKind::Proxied,
        };
        Service {
            kind,
            selector: self.spec.selector.clone(),
            publishes_not_ready: self.spec.publish_not_ready_addresses,
        }
    }
}
