//! EndpointSlices.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use podward_core::UnixNanos;
use serde::Deserialize;

use super::Origin;
use super::object::{or_default, resource, slim_metadata};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// An EndpointSlice on the wire.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceObject {
    #[serde(deserialize_with = "slim_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    address_type: String,
    #[serde(default, deserialize_with = "or_default")]
    endpoints: Vec<EndpointObject>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointObject {
    #[serde(default, deserialize_with = "or_default")]
    addresses: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    conditions: ConditionsObject,
    #[serde(default)]
    target_ref: Option<TargetObject>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ConditionsObject {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct TargetObject {
    #[serde(default, deserialize_with = "or_default")]
    uid: String,
}

resource!(SliceObject, EndpointSlice, NamespaceResourceScope);

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub(crate) const COUNT: usize = 2;
    pub(crate) const ALL: [Family; Self::COUNT] = [Family::V4, Family::V6];

    /// Its place in arrays of one for each.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// As kube-proxy's metrics and the slices' `addressType` have it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// Who leads traffic to the endpoints of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// kube-proxy.
    KubeProxy,
    /// The cluster's DNS: the Service is headless, clients connect to pods themselves.
    Dns,
    /// Another proxy, named by the label `service.kubernetes.io/service-proxy-name`; kube-proxy ignores such Services.
    Other,
}

impl Carrier {
    pub(crate) const COUNT: usize = 3;

    /// Its place in arrays of one for each.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The pod that an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// By the UID that its `targetRef` has.
    Pod(Arc<str>),
    /// Without a `targetRef`, as in slices that people write: by namespace and address.
    Address(Arc<str>, IpAddr),
}

/// An endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) owner: Owner,
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) terminating: bool,
}

/// A slice, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Its Service's name.
    pub(crate) service: Option<Arc<str>>,
    pub(crate) family: Family,
    pub(crate) carrier: Carrier,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl SliceObject {
    /// What is kept of it; `None` for slices of DNS names, which lead to no pod.
    pub(crate) fn slice(&self) -> Option<Slice> {
        let family = Family::ALL.into_iter().find(|family| family.as_str() == self.address_type)?;
        let label = |key: &str| self.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let carrier = match (label(PROXY_NAME), label(HEADLESS)) {
            (Some(_), _) => Carrier::Other,
            (None, Some(_)) => Carrier::Dns,
            (None, None) => Carrier::KubeProxy,
        };
        let namespace: Arc<str> = self.metadata.namespace.as_deref().unwrap_or_default().into();
        let endpoints = self.endpoints.iter().filter_map(|endpoint| endpoint.slim(&namespace)).collect();
        let service = label(SERVICE_NAME).filter(|name| !name.is_empty()).map(|name| name.as_str().into());
        Some(Slice { service, family, carrier, endpoints })
    }

    /// How it came, in a list.
    pub(crate) fn listed(&self) -> Origin {
        let text = self.metadata.annotations.as_ref().and_then(|annotations| annotations.get(TRIGGER_TIME));
        let time = text.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        Origin::Listed(time.and_then(|time| i64::try_from(time.as_nanosecond()).ok()).map(UnixNanos))
    }
}

impl EndpointObject {
    fn slim(&self, namespace: &Arc<str>) -> Option<Endpoint> {
        let owner = match self.target_ref.as_ref().filter(|target| !target.uid.is_empty()) {
            Some(target) => Owner::Pod(target.uid.as_str().into()),
            None => Owner::Address(Arc::clone(namespace), self.addresses.first()?.parse().ok()?),
        };
        // Unset conditions as the API reference of EndpointConditions says: ready when unknown, and serving when ready.
        let ready = self.conditions.ready.unwrap_or(true);
        let serving = self.conditions.serving.unwrap_or(ready);
        Some(Endpoint { owner, ready, serving, terminating: self.conditions.terminating.unwrap_or(false) })
    }
}
