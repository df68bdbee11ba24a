//! EndpointSlices.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use podward_core::UnixNanos;
use serde::Deserialize;

use super::address_family::AddressFamily;
use super::change::ChangeOrigin;
use super::object::{WatchedObject, kept_metadata, or_default};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// An EndpointSlice object as the API server sends it.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = EndpointSlice)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceObject {
    #[serde(deserialize_with = "kept_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    address_type: String,
    #[serde(default, deserialize_with = "or_default")]
    endpoints: Vec<EndpointObject>,
    #[serde(default, deserialize_with = "or_default")]
    ports: Vec<PortObject>,
}

#[derive(Clone, Debug, Deserialize)]
struct PortObject {
    port: Option<i32>,
    protocol: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointObject {
    #[serde(default, deserialize_with = "or_default")]
    addresses: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    conditions: EndpointConditionsObject,
    #[serde(default)]
    target_ref: Option<TargetRefObject>,
    #[serde(default)]
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct EndpointConditionsObject {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct TargetRefObject {
    #[serde(default, deserialize_with = "or_default")]
    uid: String,
}

impl WatchedObject for SliceObject {
    const KIND: &'static str = <EndpointSlice as k8s_openapi::Resource>::KIND;
}

/// The component through which traffic reaches the endpoints of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPath {
    /// kube-proxy.
    KubeProxy,
    /// The cluster's DNS: the Service is headless, and clients connect to the pods directly.
    Dns,
    /// Another proxy, named by the label `service.kubernetes.io/service-proxy-name`. kube-proxy ignores such Services.
    OtherProxy,
}

impl DataPath {
    pub(crate) const COUNT: usize = 3;

    /// Returns the index of the data path in arrays with one element for each data path.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The pod that an endpoint belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EndpointOwner {
    /// Namespace of the slice, and the UID in the `targetRef` of the endpoint. A slice of another namespace may name
    /// any UID.
    Pod(Arc<str>, Arc<str>),
    /// Namespace and first address of an endpoint without a `targetRef`, as in slices that people write.
    Address(Arc<str>, IpAddr),
}

/// The indexed fields of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceEndpoint {
    pub(crate) owner: EndpointOwner,
    /// Its addresses. kube-proxy uses only the first one, DNS servers and others use all.
    pub(crate) addresses: Box<[IpAddr]>,
    /// The node of the endpoint, if the slice names one.
    pub(crate) node: Option<Arc<str>>,
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) terminating: bool,
}

/// The indexed fields of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedSlice {
    /// The name of the Service. `None` when the slice has no such label.
    pub(crate) service: Option<Arc<str>>,
    pub(crate) family: AddressFamily,
    pub(crate) data_path: DataPath,
    pub(crate) endpoints: Vec<SliceEndpoint>,
    /// The TCP ports of the endpoints.
    pub(crate) ports: Vec<u16>,
}

impl SliceObject {
    /// Returns the indexed fields. `None` for slices of DNS names, because they refer to no pod.
    pub(crate) fn slice(&self) -> Option<IndexedSlice> {
        let family = AddressFamily::ALL.into_iter().find(|family| family.as_str() == self.address_type)?;
        let label = |key: &str| self.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let data_path = match (label(PROXY_NAME), label(HEADLESS)) {
            (Some(_), _) => DataPath::OtherProxy,
            (None, Some(_)) => DataPath::Dns,
            (None, None) => DataPath::KubeProxy,
        };
        let namespace: Arc<str> = self.metadata.namespace.as_deref().unwrap_or_default().into();
        let endpoints = self.endpoints.iter().filter_map(|endpoint| endpoint.indexed(&namespace)).collect();
        let service = label(SERVICE_NAME).filter(|name| !name.is_empty()).map(|name| name.as_str().into());
        let ports = self.ports.iter().filter_map(PortObject::tcp).collect();
        Some(IndexedSlice { service, family, data_path, endpoints, ports })
    }

    /// Returns the origin of the slice when it was received in a list.
    pub(crate) fn listed_origin(&self) -> ChangeOrigin {
        let text = self.metadata.annotations.as_ref().and_then(|annotations| annotations.get(TRIGGER_TIME));
        ChangeOrigin::Listed(text.and_then(|text| UnixNanos::parse(text)))
    }
}

impl PortObject {
    /// Returns the port if it is one of TCP, which is the default.
    fn tcp(&self) -> Option<u16> {
        let is_tcp = self.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
        self.port.filter(|_| is_tcp).and_then(|port| u16::try_from(port).ok())
    }
}

impl EndpointObject {
    fn indexed(&self, namespace: &Arc<str>) -> Option<SliceEndpoint> {
        let addresses: Box<[IpAddr]> =
            self.addresses.iter().filter_map(|address| address.parse().ok()).collect();
        let owner = match self.target_ref.as_ref().filter(|target| !target.uid.is_empty()) {
            Some(target) => EndpointOwner::Pod(Arc::clone(namespace), target.uid.as_str().into()),
            None => EndpointOwner::Address(Arc::clone(namespace), *addresses.first()?),
        };
        // The API reference of EndpointConditions defines unset conditions: an endpoint without `ready` counts as
        // ready, and `serving` defaults to `ready`.
        let ready = self.conditions.ready.unwrap_or(true);
        let serving = self.conditions.serving.unwrap_or(ready);
        Some(SliceEndpoint {
            owner,
            addresses,
            node: self.node_name.as_deref().map(Arc::from),
            ready,
            serving,
            terminating: self.conditions.terminating.unwrap_or(false),
        })
    }
}
