//! Objects that name Services to which a load balancer or a proxy other than kube-proxy sends traffic.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;

use super::object::{ObjectKey, WatchedObject, kept_metadata};
use super::references::References;
use super::route_kind::RouteKind;

/// The number of types that implement [`RouteKind`].
pub(super) const ROUTE_KINDS: usize = 4;
/// Their names by [`RouteKind::INDEX`].
pub(super) const ROUTE_KIND_NAMES: [&str; ROUTE_KINDS] =
    [Ingress::KIND, HttpRoute::KIND, GrpcRoute::KIND, TargetGroupBinding::KIND];

/// An object of the kind `K` as the API server sends it. It is not kept.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "K: RouteKind")]
pub(crate) struct RouteObject<K> {
    #[serde(deserialize_with = "kept_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: References<K>,
}

impl<K: RouteKind> RouteObject<K> {
    /// Returns the Services that the object names, sorted and each once. Skips what it does not understand.
    pub(crate) fn services(&self) -> Vec<ObjectKey> {
        if !K::leads_to_pods(self.spec.target_type.as_deref()) {
            return Vec::new();
        }
        let own: Arc<str> = self.metadata.namespace.as_deref().unwrap_or_default().into();
        let key = |(namespace, name): &(Option<String>, String)| ObjectKey {
            namespace: namespace.as_deref().map_or_else(|| Arc::clone(&own), Arc::from),
            name: name.as_str().into(),
        };
        let services: BTreeSet<ObjectKey> = self.spec.services.iter().map(key).collect();
        services.into_iter().collect()
    }
}

impl<K: RouteKind> kube::Resource for RouteObject<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        K::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        K::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        K::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K: RouteKind> WatchedObject for RouteObject<K> {
    const KIND: &'static str = K::KIND;
    const OPTIONAL: bool = K::OPTIONAL;
}

/// Ingresses. Most Ingress controllers send requests to the addresses in the EndpointSlices themselves.
#[derive(Clone, Debug)]
pub(crate) struct Ingress;

impl RouteKind for Ingress {
    const KIND: &'static str = "Ingress";
    const GROUP: &'static str = "networking.k8s.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "ingresses";
    const OPTIONAL: bool = false;
    const PAGE_SIZE: u32 = 20;
    const INDEX: usize = 0;
    const PATHS: &'static [&'static [&'static str]] =
        &[&["rules", "http", "paths", "backend", "service"], &["defaultBackend", "service"]];
}

/// The Services in `backendRefs` of the rules of a route, those that requests are mirrored to, and those
/// that authorize them.
const BACKEND_REFS: &[&[&str]] = &[
    &["rules", "backendRefs"],
    &["rules", "filters", "requestMirror", "backendRef"],
    &["rules", "backendRefs", "filters", "requestMirror", "backendRef"],
    &["rules", "filters", "externalAuth", "backendRef"],
    &["rules", "backendRefs", "filters", "externalAuth", "backendRef"],
];

/// Routes of the Gateway API.
#[derive(Clone, Debug)]
pub(crate) struct HttpRoute;

impl RouteKind for HttpRoute {
    const KIND: &'static str = "HTTPRoute";
    const GROUP: &'static str = "gateway.networking.k8s.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "httproutes";
    const OPTIONAL: bool = true;
    const PAGE_SIZE: u32 = 100;
    const INDEX: usize = 1;
    const PATHS: &'static [&'static [&'static str]] = BACKEND_REFS;
}

/// Routes of the Gateway API.
#[derive(Clone, Debug)]
pub(crate) struct GrpcRoute;

impl RouteKind for GrpcRoute {
    const KIND: &'static str = "GRPCRoute";
    const GROUP: &'static str = "gateway.networking.k8s.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "grpcroutes";
    const OPTIONAL: bool = true;
    const PAGE_SIZE: u32 = 100;
    const INDEX: usize = 2;
    const PATHS: &'static [&'static [&'static str]] = BACKEND_REFS;
}

/// Target groups of AWS load balancers. With `targetType: instance` they lead to NodePorts, which are kube-proxy's.
/// Otherwise, also without a type, they may lead to pods.
#[derive(Clone, Debug)]
pub(crate) struct TargetGroupBinding;

impl RouteKind for TargetGroupBinding {
    const KIND: &'static str = "TargetGroupBinding";
    const GROUP: &'static str = "elbv2.k8s.aws";
    const VERSION: &'static str = "v1beta1";
    const PLURAL: &'static str = "targetgroupbindings";
    const OPTIONAL: bool = true;
    const PAGE_SIZE: u32 = 500;
    const INDEX: usize = 3;
    const PATHS: &'static [&'static [&'static str]] = &[&["serviceRef"]];

    fn leads_to_pods(target_type: Option<&str>) -> bool {
        target_type != Some("instance")
    }
}
