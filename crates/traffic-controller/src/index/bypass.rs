//! What sends traffic to the pods of a Service past kube-proxy.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use podward_core::UnixNanos;
use serde::Deserialize;

use super::mesh::{ignores_gates, mesh_key, sender};
use super::object::{ObjectKey, WatchedObject, kept_metadata};
use super::route::{ROUTE_KIND_NAMES, ROUTE_KINDS, TargetGroupBinding};
use super::route_kind::RouteKind;

/// A namespace as the API server sends it.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = corev1::Namespace)]
pub(crate) struct NamespaceObject {
    #[serde(deserialize_with = "kept_metadata")]
    pub(crate) metadata: ObjectMeta,
}

impl WatchedObject for NamespaceObject {
    const KIND: &'static str = <corev1::Namespace as k8s_openapi::Resource>::KIND;
}

impl NamespaceObject {
    /// Returns the label or annotation by which the pods of the namespace are in a mesh.
    pub(crate) fn mesh(&self) -> Option<&'static str> {
        mesh_key(&self.metadata)
    }
}

/// The maximum number of Services of which it is remembered that an object named them.
const MAX_FORMER: usize = 10_000;
/// The maximum number of Services of one object. An object that names more counts for all Services of its namespace,
/// and for all Services of the cluster if it names those of other namespaces.
const MAX_OF_ROUTE: usize = 1_000;
/// The maximum number of Services of all objects together. Objects that exceed it count for all Services, too, except
/// those with at most [`FEW`]: others may have used up the number.
const MAX_NAMED: usize = 50_000;
/// The number of Services that any object may name.
const FEW: usize = 10;
/// The name that stands for all Services of a namespace. With an empty namespace, for all Services of the cluster.
const ALL: &str = "";

/// A kind, and an object of this kind.
type RouteId = (usize, ObjectKey);

/// The objects because of which a Service has clients that do not use kube-proxy.
#[derive(Debug, Default)]
pub(super) struct BypassIndex {
    routes: HashMap<RouteId, Vec<ObjectKey>>,
    /// The same by Service, so that those of a namespace are one range.
    by_service: BTreeSet<(ObjectKey, RouteId)>,
    /// Services that objects named until recently: one of these objects, and when that ended. Its proxies may not have
    /// observed it yet.
    former: BTreeMap<ObjectKey, (RouteId, UnixNanos)>,
    /// The last such object when there were more than [`MAX_FORMER`] Services. It counts for all Services.
    other_former: Option<(RouteId, UnixNanos)>,
    /// The kinds whose objects are known.
    listed: [bool; ROUTE_KINDS],
    /// The namespaces that are in a mesh or were, with the label or annotation that says or said so. Pods have their
    /// proxies until they end.
    meshes: BTreeMap<Arc<str>, &'static str>,
    namespaces_listed: bool,
    /// The last Service of each namespace that was deleted while it was in a mesh, with its label, and when that was.
    former_meshes: HashMap<Arc<str>, (Arc<str>, &'static str, UnixNanos)>,
}

impl BypassIndex {
    /// Adds or replaces an object that names `services`, each once. Returns true if the index changes.
    pub(super) fn put_route<K: RouteKind>(
        &mut self,
        key: &ObjectKey,
        mut services: Vec<ObjectKey>,
        now: UnixNanos,
    ) -> bool {
        let id = (K::INDEX, key.clone());
        let others = self.by_service.len().saturating_sub(self.routes.get(&id).map_or(0, Vec::len));
        let is_full = services.len() > FEW && others + services.len() > MAX_NAMED;
        if services.len() > MAX_OF_ROUTE || is_full {
            services = all_services(&key.namespace, &services);
        }
        if self.routes.get(&id).map_or(services.is_empty(), |old| *old == services) {
            return false;
        }
        self.remove(&id, &services, now);
        self.by_service.extend(services.iter().map(|service| (service.clone(), id.clone())));
        if !services.is_empty() {
            self.routes.insert(id, services);
        }
        true
    }

    /// Removes an object.
    pub(super) fn remove_route<K: RouteKind>(&mut self, key: &ObjectKey, now: UnixNanos) {
        self.remove(&(K::INDEX, key.clone()), &[], now);
    }

    /// Removes the objects that are not in `listed`, the keys of a complete list.
    pub(super) fn retain_routes<K: RouteKind>(&mut self, listed: &HashSet<ObjectKey>, now: UnixNanos) {
        let is_gone = |id: &&RouteId| id.0 == K::INDEX && !listed.contains(&id.1);
        let gone: Vec<RouteId> = self.routes.keys().filter(is_gone).cloned().collect();
        for id in gone {
            self.remove(&id, &[], now);
        }
        self.listed[K::INDEX] = true;
    }

    /// Records that the objects of the kind are not known, because their watch is interrupted.
    pub(super) fn forget_routes<K: RouteKind>(&mut self) {
        self.listed[K::INDEX] = false;
    }

    /// Removes an object. Remembers the Services that it named, without those in `kept`.
    fn remove(&mut self, id: &RouteId, kept: &[ObjectKey], now: UnixNanos) {
        let kept: HashSet<&ObjectKey> = kept.iter().collect();
        for service in self.routes.remove(id).unwrap_or_default() {
            if !kept.contains(&service) {
                let former = (id.clone(), now);
                if self.former.len() < MAX_FORMER || self.former.contains_key(&service) {
                    self.former.insert(service.clone(), former);
                } else {
                    self.other_former = Some(former);
                }
            }
            self.by_service.remove(&(service, id.clone()));
        }
    }

    /// Forgets the objects that have not named a Service since `limit`.
    pub(super) fn sweep(&mut self, limit: UnixNanos) {
        self.former.retain(|_, (_, ended)| *ended > limit);
        self.other_former.take_if(|(_, ended)| *ended <= limit);
        self.former_meshes.retain(|_, (_, _, ended)| *ended > limit);
    }

    /// Remembers that a Service was deleted whose label `mesh` says that it is in a mesh.
    pub(super) fn remove_mesh(&mut self, service: &ObjectKey, mesh: &'static str, now: UnixNanos) {
        let former = (Arc::clone(&service.name), mesh, now);
        self.former_meshes.insert(Arc::clone(&service.namespace), former);
    }

    /// Adds or replaces a namespace. Returns true if the index changes.
    pub(super) fn put_namespace(&mut self, name: &Arc<str>, mesh: Option<&'static str>) -> bool {
        mesh.is_some_and(|key| self.meshes.insert(Arc::clone(name), key) != Some(key))
    }

    /// Removes a namespace, which has no pods any more. Returns true if the index changes.
    pub(super) fn remove_namespace(&mut self, name: &str) -> bool {
        self.meshes.remove(name).is_some()
    }

    /// Removes the namespaces that are not in `listed`, the keys of a complete list.
    pub(super) fn retain_namespaces(&mut self, listed: &HashSet<ObjectKey>) {
        let names: HashSet<&str> = listed.iter().map(|key| &*key.name).collect();
        self.meshes.retain(|name, _| names.contains(&**name));
        self.namespaces_listed = true;
    }

    /// Records that the namespaces are not known, because their watch is interrupted.
    pub(super) fn forget_namespaces(&mut self) {
        self.namespaces_listed = false;
    }

    /// Returns who may send traffic to the pods of `service` past kube-proxy. `mesh` is the label of the Service itself.
    pub(super) fn of_service(&self, service: &ObjectKey, mesh: Option<&str>) -> Option<String> {
        let former = keys_of(service).iter().find_map(|key| self.former.get(key));
        self.describe(
            self.route_to(service, 0),
            former.or(self.other_former.as_ref()),
            &service.namespace,
            mesh.map(|key| format!("{} of Service {service} ({key})", sender(key))),
        )
    }

    /// Returns who sends traffic to the pods of `service` whatever their readiness gates say. `mesh` is the label of
    /// the Service itself.
    pub(super) fn ignoring_gates(&self, service: &ObjectKey, mesh: Option<&str>) -> Option<String> {
        let route = self.route_to(service, TargetGroupBinding::INDEX);
        if let Some((_, key)) = route.filter(|(kind, _)| *kind == TargetGroupBinding::INDEX) {
            return Some(format!("the load balancer of TargetGroupBinding {key}"));
        }
        if let Some(key) = mesh.filter(|key| ignores_gates(key)) {
            return Some(format!("the {} of Service {service} ({key})", sender(key)));
        }
        let namespace = &service.namespace;
        let key = self.meshes.get(namespace).filter(|key| ignores_gates(key))?;
        Some(format!("the {} of namespace {namespace} ({key})", sender(key)))
    }

    /// Returns true if the objects are listed by which [`Self::ignoring_gates`] finds somebody.
    pub(super) fn knows_ignoring_gates(&self) -> bool {
        self.listed[TargetGroupBinding::INDEX] && self.namespaces_listed
    }

    /// Returns who may send traffic to a Service in `namespace` that is not known any more past kube-proxy. `mesh` is a
    /// Service there with its label.
    pub(super) fn of_namespace(&self, namespace: &str, mesh: Option<(&str, &str)>) -> Option<String> {
        let all = ObjectKey::new(namespace, ALL);
        let lowest = (0, ObjectKey::new("", ""));
        let route = self.by_service.range((all.clone(), lowest)..).next();
        let route = route.filter(|(service, _)| *service.namespace == *namespace).map(|(_, id)| id);
        let former = self.former.range(all.clone()..).next();
        let former = former.filter(|(service, _)| *service.namespace == *namespace).map(|(_, former)| former);
        let former =
            former.or_else(|| self.former.get(&ObjectKey::new("", ALL))).or(self.other_former.as_ref());
        let gone = self.former_meshes.get(namespace).map(|(name, key, _)| (&**name, *key));
        let mesh = mesh.or(gone);
        self.describe(
            route.or_else(|| self.route_to(&all, 0)),
            former,
            namespace,
            mesh.map(|(name, key)| format!("{} of Service {namespace}/{name} ({key})", sender(key))),
        )
    }

    /// Returns the first object of the kind with the index `kind`, or of a later kind, that counts for `service`.
    fn route_to(&self, service: &ObjectKey, kind: usize) -> Option<&RouteId> {
        keys_of(service).into_iter().find_map(|key| {
            let start = (key, (kind, ObjectKey::new("", "")));
            let first = self.by_service.range(&start..).next();
            first.filter(|(found, _)| *found == start.0).map(|(_, id)| id)
        })
    }

    fn describe(
        &self,
        route: Option<&RouteId>,
        former: Option<&(RouteId, UnixNanos)>,
        namespace: &str,
        mesh: Option<String>,
    ) -> Option<String> {
        let name = |kind: usize| ROUTE_KIND_NAMES.get(kind).copied().unwrap_or_default();
        if let Some((kind, key)) = route {
            return Some(format!("the proxies behind {} {key}, which bypass kube-proxy", name(*kind)));
        }
        if let Some(((kind, key), _)) = former {
            let kind = name(*kind);
            return Some(format!(
                "the proxies behind {kind} {key}, which bypassed kube-proxy until recently"
            ));
        }
        // The proxies of the clients bypass kube-proxy, and the clients may be in any namespace.
        let of_namespace = || {
            let own = self.meshes.get_key_value(namespace);
            let (name, key) = own.or_else(|| self.meshes.first_key_value())?;
            Some(format!("{} of namespace {name} ({key})", sender(key)))
        };
        if let Some(mesh) = mesh.or_else(of_namespace) {
            return Some(format!("the {mesh}, whose proxies bypass kube-proxy"));
        }
        let unlisted = ROUTE_KIND_NAMES.into_iter().zip(self.listed).find(|(_, listed)| !listed);
        let unlisted = unlisted.map(|(kind, _)| kind).or((!self.namespaces_listed).then_some("Namespace"))?;
        Some(format!(
            "proxies that may bypass kube-proxy, because the objects of kind {unlisted} are not known (check the \
             rights of the traffic-controller, and its watches)"
        ))
    }
}

/// Returns the keys of objects that count for `service`.
fn keys_of(service: &ObjectKey) -> [ObjectKey; 3] {
    [service.clone(), ObjectKey::new(&service.namespace, ALL), ObjectKey::new("", ALL)]
}

/// Returns what stands for `services`, which an object in `namespace` names.
fn all_services(namespace: &Arc<str>, services: &[ObjectKey]) -> Vec<ObjectKey> {
    let scope = |service: &ObjectKey| match service.namespace == *namespace {
        true => Arc::clone(namespace),
        false => ALL.into(),
    };
    let scopes: BTreeSet<Arc<str>> = services.iter().map(scope).collect();
    scopes.into_iter().map(|namespace| ObjectKey { namespace, name: ALL.into() }).collect()
}
