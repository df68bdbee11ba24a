//! Objects that name Services to which a load balancer or a proxy other than kube-proxy sends traffic.

use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde_json::Value;

use super::object::{ObjectKey, WatchedObject, kept_metadata};

/// A kind of object that names Services in its `spec`.
pub(crate) trait RouteKind: Clone + Debug + Send + Sync + 'static {
    const KIND: &'static str;
    const GROUP: &'static str;
    const VERSION: &'static str;
    const PLURAL: &'static str;
    /// True if Kubernetes does not have the kind itself.
    const OPTIONAL: bool;
    /// Its index among all such kinds.
    const INDEX: usize;

    /// Returns the Services that `spec` of an object in `namespace` names. Skips what it does not understand.
    fn services(spec: &Value, namespace: &str) -> Vec<ObjectKey>;
}

/// The number of types that implement [`RouteKind`].
pub(super) const ROUTE_KINDS: usize = 4;
/// Their names by [`RouteKind::INDEX`].
pub(super) const ROUTE_KIND_NAMES: [&str; ROUTE_KINDS] =
    [Ingress::KIND, HttpRoute::KIND, GrpcRoute::KIND, TargetGroupBinding::KIND];

/// An object of the kind `K` as the API server sends it. It is not kept.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "")]
pub(crate) struct RouteObject<K> {
    #[serde(deserialize_with = "kept_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(skip)]
    kind: PhantomData<K>,
}

impl<K: RouteKind> RouteObject<K> {
    /// Returns the Services that the object names.
    pub(crate) fn services(&self) -> Vec<ObjectKey> {
        K::services(&self.spec, self.metadata.namespace.as_deref().unwrap_or_default())
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
    const INDEX: usize = 0;

    fn services(spec: &Value, namespace: &str) -> Vec<ObjectKey> {
        let paths = elements(spec, "/rules").flat_map(|rule| elements(rule, "/http/paths"));
        let backends = paths.filter_map(|path| path.get("backend")).chain(spec.get("defaultBackend"));
        backends.filter_map(|backend| named(namespace, backend.pointer("/service/name"))).collect()
    }
}

/// Routes of the Gateway API.
#[derive(Clone, Debug)]
pub(crate) struct HttpRoute;

impl RouteKind for HttpRoute {
    const KIND: &'static str = "HTTPRoute";
    const GROUP: &'static str = "gateway.networking.k8s.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "httproutes";
    const OPTIONAL: bool = true;
    const INDEX: usize = 1;

    fn services(spec: &Value, namespace: &str) -> Vec<ObjectKey> {
        backend_refs(spec, namespace)
    }
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
    const INDEX: usize = 2;

    fn services(spec: &Value, namespace: &str) -> Vec<ObjectKey> {
        backend_refs(spec, namespace)
    }
}

/// Target groups of AWS load balancers. With `targetType: instance` they lead to NodePorts, which are kube-proxy's.
#[derive(Clone, Debug)]
pub(crate) struct TargetGroupBinding;

impl RouteKind for TargetGroupBinding {
    const KIND: &'static str = "TargetGroupBinding";
    const GROUP: &'static str = "elbv2.k8s.aws";
    const VERSION: &'static str = "v1beta1";
    const PLURAL: &'static str = "targetgroupbindings";
    const OPTIONAL: bool = true;
    const INDEX: usize = 3;

    fn services(spec: &Value, namespace: &str) -> Vec<ObjectKey> {
        let uses_nodes = spec.get("targetType").and_then(Value::as_str) == Some("instance");
        let service = named(namespace, spec.pointer("/serviceRef/name"));
        service.filter(|_| !uses_nodes).into_iter().collect()
    }
}

/// Returns the Services in `backendRefs` of the rules of a route, and those that requests are mirrored to.
fn backend_refs(spec: &Value, namespace: &str) -> Vec<ObjectKey> {
    let rules = || elements(spec, "/rules");
    let refs = rules().flat_map(|rule| elements(rule, "/backendRefs"));
    let mirrors = rules()
        .flat_map(|rule| elements(rule, "/filters"))
        .filter_map(|filter| filter.pointer("/requestMirror/backendRef"));
    let text = |backend: &Value, field: &str| Some(backend.get(field)?.as_str()?.to_owned());
    refs.chain(mirrors)
        .filter(|backend| text(backend, "kind").is_none_or(|kind| kind == "Service"))
        .filter_map(|backend| {
            let namespace = text(backend, "namespace").unwrap_or_else(|| namespace.to_owned());
            named(&namespace, backend.get("name"))
        })
        .collect()
}

fn elements<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn named(namespace: &str, name: Option<&Value>) -> Option<ObjectKey> {
    name?.as_str().map(|name| ObjectKey::new(namespace, name))
}
