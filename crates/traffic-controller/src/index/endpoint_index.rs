//! The index itself: how objects are added and removed.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;

use super::address_family::AddressFamily;
use super::bypass::BypassIndex;
use super::change::{ChangeOrigin, EndpointChange};
use super::node::{IndexedNode, NodeObject};
use super::object::{ObjectKey, WatchedObject};
use super::route_kind::RouteKind;
use super::service::{IndexedService, ServiceKind, ServiceObject};
use super::slice::{DataPath, EndpointOwner, IndexedSlice, SliceObject};
use crate::clock::before;

/// The kinds without which the index proves nothing. Nodes are the last: not all answers depend on them.
const NEEDED_KINDS: [&str; 3] = [SliceObject::KIND, ServiceObject::KIND, NodeObject::KIND];
/// How long the index remembers the last change of a pod that is in no slice any more, at least.
pub(crate) const RETENTION: Duration = Duration::from_secs(600);

/// The maximum number of ports of a pod that are sent to a node-agent. More do not fit into its largest message.
pub(crate) const MAX_PORTS: usize = 500;

/// The endpoints of one pod.
#[derive(Debug, Default)]
pub(super) struct OwnerEntry {
    /// True if a slice has shown the pod as ready or serving, or may have done so before this process last listed it.
    pub(super) may_have_been_sent: bool,
    /// When the first list of slices was received, if the pod was in it.
    pub(super) first_listed_at: Option<UnixNanos>,
    pub(super) slices: Vec<Arc<ObjectKey>>,
    /// The TCP ports of all slices that list the pod, or did so. At most one more than [`MAX_PORTS`].
    pub(super) ports: Vec<u16>,
    /// The last change in each address family.
    pub(super) changed: [Option<EndpointChange>; AddressFamily::COUNT],
    /// The last change in slices that no longer list the pod, for each data path.
    pub(super) left: [Option<EndpointChange>; DataPath::COUNT],
    /// When a Service whose slices list the pod was last deleted or changed its type.
    pub(super) service_changed_at: Option<UnixNanos>,
}

/// The EndpointSlices, Services and nodes of the cluster.
#[derive(Debug, Default)]
pub(crate) struct EndpointIndex {
    pub(super) slices: HashMap<Arc<ObjectKey>, IndexedSlice>,
    pub(super) owners: HashMap<EndpointOwner, OwnerEntry>,
    pub(super) by_service: HashMap<ObjectKey, HashSet<Arc<ObjectKey>>>,
    /// The slices in which an address is, whatever object it belongs to there.
    pub(super) by_address: HashMap<IpAddr, Vec<Arc<ObjectKey>>>,
    pub(super) services: HashMap<Arc<str>, HashMap<Arc<str>, IndexedService>>,
    /// Nodes change rarely and are copied often.
    pub(super) nodes: Arc<HashMap<Arc<str>, IndexedNode>>,
    /// The names of the Leases of API servers. `None` before the first list.
    pub(super) api_server_leases: Option<HashSet<Arc<str>>>,
    /// The number of API servers when there was last more than one, and when that was.
    pub(super) last_several_api_servers: Option<(usize, UnixNanos)>,
    /// What bypasses kube-proxy.
    pub(super) bypass: BypassIndex,
    /// When all slices were last listed.
    pub(super) slices_listed_at: Option<UnixNanos>,
    /// The same, if the watch of slices was interrupted before. All endpoints may have changed meanwhile, even those in
    /// slices that look the same as before.
    pub(super) slices_listed_again_at: Option<UnixNanos>,
    /// The kinds in [`NEEDED_KINDS`] whose watch is interrupted.
    interrupted: [bool; NEEDED_KINDS.len()],
}

impl EndpointIndex {
    /// Records whether the watch of `kind` is interrupted: the index may be out of date then.
    pub(crate) fn set_interrupted(&mut self, kind: &str, is_interrupted: bool) {
        let mut states = NEEDED_KINDS.iter().zip(&mut self.interrupted);
        if let Some((_, state)) = states.find(|(needed, _)| **needed == kind) {
            *state = is_interrupted;
        }
    }

    /// Returns the first kind in [`NEEDED_KINDS`] whose watch is interrupted.
    pub(crate) fn interrupted(&self) -> Option<&'static str> {
        NEEDED_KINDS
            .into_iter()
            .zip(self.interrupted)
            .find_map(|(kind, interrupted)| interrupted.then_some(kind))
    }

    /// Records that a list of all slices is complete. It is the first, or the watch was interrupted before.
    pub(crate) fn set_slices_listed(&mut self, now: UnixNanos) {
        if self.slices_listed_at.replace(now).is_some() {
            self.slices_listed_again_at = Some(now);
            self.owners.values_mut().for_each(|entry| entry.may_have_been_sent = true);
        } else {
            self.owners.values_mut().for_each(|entry| entry.first_listed_at = Some(now));
        }
    }

    /// Adds or replaces a slice. Returns true if the slice differs from the indexed one.
    pub(crate) fn put_slice(
        &mut self,
        key: ObjectKey,
        slice: IndexedSlice,
        origin: ChangeOrigin,
        now: UnixNanos,
    ) -> bool {
        if self.slices.get(&key) == Some(&slice) {
            return false;
        }
        if &*key.namespace == "default" {
            self.remember_api_servers(now);
        }
        let id = match self.slices.get_key_value(&key) {
            Some((id, _)) => Arc::clone(id),
            None => Arc::new(key),
        };
        let change = origin.change(now);
        let old = self.slices.remove(&id);
        let path = |slice: &IndexedSlice| (slice.service.clone(), slice.data_path);
        if old.as_ref().is_some_and(|old| path(old) != path(&slice)) {
            // The pods leave one Service and join another one.
            self.update_owners(&id, old.as_ref(), None, origin, change);
            self.update_owners(&id, None, Some(&slice), origin, change);
        } else {
            self.update_owners(&id, old.as_ref(), Some(&slice), origin, change);
        }
        let service = |slice: &IndexedSlice| Some(ObjectKey::new(&id.namespace, slice.service.as_deref()?));
        if old.as_ref().and_then(service) != service(&slice) {
            old.as_ref().and_then(service).inspect(|service| self.unlink(service, &id));
            if let Some(service) = service(&slice) {
                self.by_service.entry(service).or_default().insert(Arc::clone(&id));
            }
        }
        old.iter().for_each(|old| self.unlink_addresses(old, &id));
        for address in slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses) {
            let slices = self.by_address.entry(*address).or_default();
            if !slices.iter().any(|slice| Arc::ptr_eq(slice, &id)) {
                slices.push(Arc::clone(&id));
            }
        }
        self.slices.insert(id, slice);
        true
    }

    /// Removes a slice.
    pub(crate) fn remove_slice(&mut self, key: &ObjectKey, origin: ChangeOrigin, now: UnixNanos) {
        if &*key.namespace == "default" {
            self.remember_api_servers(now);
        }
        let Some((id, slice)) = self.slices.remove_entry(key) else { return };
        self.update_owners(&id, Some(&slice), None, origin, origin.change(now));
        self.unlink_addresses(&slice, &id);
        if let Some(service) = slice.service.as_deref() {
            self.unlink(&ObjectKey::new(&id.namespace, service), &id);
        }
    }

    /// Removes the slices that are not in `listed`.
    pub(crate) fn retain_slices(&mut self, listed: &HashSet<ObjectKey>, now: UnixNanos) {
        let gone: Vec<ObjectKey> =
            self.slices.keys().filter(|id| !listed.contains(&***id)).map(|id| (**id).clone()).collect();
        for key in gone {
            self.remove_slice(&key, ChangeOrigin::Listed(None), now);
        }
    }

    fn unlink(&mut self, service: &ObjectKey, id: &Arc<ObjectKey>) {
        if let Some(slices) = self.by_service.get_mut(service) {
            slices.remove(id);
            if slices.is_empty() {
                self.by_service.remove(service);
            }
        }
    }

    fn unlink_addresses(&mut self, slice: &IndexedSlice, id: &Arc<ObjectKey>) {
        for address in slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses) {
            if let Some(slices) = self.by_address.get_mut(address) {
                slices.retain(|slice| !Arc::ptr_eq(slice, id));
                if slices.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
    }

    /// Updates the entries of the pods in a slice that changes from `old` to `new`. Records `change` for each pod whose
    /// traffic is affected.
    fn update_owners(
        &mut self,
        id: &Arc<ObjectKey>,
        old: Option<&IndexedSlice>,
        new: Option<&IndexedSlice>,
        origin: ChangeOrigin,
        change: EndpointChange,
    ) {
        fn states(slice: Option<&IndexedSlice>) -> HashMap<&EndpointOwner, (bool, bool)> {
            let mut states: HashMap<&EndpointOwner, (bool, bool)> = HashMap::new();
            for endpoint in slice.into_iter().flat_map(|slice| &slice.endpoints) {
                let state = states.entry(&endpoint.owner).or_default();
                *state = (state.0 || endpoint.ready, state.1 || endpoint.serving);
            }
            states
        }

        let (before, now) = (states(old), states(new));
        let Some(family) = new.or(old).map(|slice| slice.family) else { return };
        let ports = new.map_or(&[][..], |slice| &slice.ports);
        let left = old.map(|slice| self.data_path(&id.namespace, slice));
        for (owner, state) in &now {
            let entry = self.owners.entry((*owner).clone()).or_insert_with(|| OwnerEntry {
                may_have_been_sent: matches!(origin, ChangeOrigin::Listed(_)),
                ..OwnerEntry::default()
            });
            entry.may_have_been_sent |= *state != (false, false);
            if !entry.slices.contains(id) {
                entry.slices.push(Arc::clone(id));
            }
            for port in ports {
                if entry.ports.len() <= MAX_PORTS && !entry.ports.contains(port) {
                    entry.ports.push(*port);
                }
            }
            // A pod that was in no slice received as little traffic as one that was not ready.
            if before.get(owner).copied().unwrap_or_default() != *state
                || entry.changed[family.index()].is_none()
            {
                entry.changed[family.index()] = Some(change);
            }
        }
        for (owner, state) in before.iter().filter(|(owner, _)| !now.contains_key(**owner)) {
            if let Some(entry) = self.owners.get_mut(*owner) {
                entry.slices.retain(|slice| slice != id);
                if *state != (false, false) {
                    entry.changed[family.index()] = Some(change);
                }
                if let Some(left) = left {
                    entry.left[left.index()] = entry.changed[family.index()];
                }
            }
        }
    }

    /// Adds or replaces a Service.
    pub(crate) fn put_service(
        &mut self,
        key: &ObjectKey,
        mut service: IndexedService,
        origin: ChangeOrigin,
        now: UnixNanos,
    ) {
        if let Some(old) = self.services.get(&key.namespace).and_then(|services| services.get(&key.name)) {
            // Its clients may still send traffic through the mesh.
            service.mesh = service.mesh.or(old.mesh);
            // The slices change later, if at all. Until then their clients are those of before, too.
            if old.kind != service.kind {
                self.mark_endpoints_of(key, origin.change(now));
            }
        }
        self.services.entry(Arc::clone(&key.namespace)).or_default().insert(Arc::clone(&key.name), service);
    }

    /// Returns the data path of a slice in `namespace`. Slices that Kubernetes does not write may lack the labels that
    /// say it. Then the Service counts, if it is known.
    pub(super) fn data_path(&self, namespace: &Arc<str>, slice: &IndexedSlice) -> DataPath {
        let service = || self.services.get(namespace)?.get(slice.service.as_ref()?);
        match (slice.data_path, service().map(|service| service.kind)) {
            (DataPath::KubeProxy, Some(ServiceKind::Headless)) => DataPath::Dns,
            (DataPath::KubeProxy, Some(ServiceKind::OtherProxy)) => DataPath::OtherProxy,
            (path, _) => path,
        }
    }

    /// Records `change` for all pods to which `service` sends traffic by its slices, before it is changed or removed.
    fn mark_endpoints_of(&mut self, service: &ObjectKey, change: EndpointChange) {
        for id in self.by_service.get(service).into_iter().flatten() {
            let Some(slice) = self.slices.get(id) else { continue };
            let path = self.data_path(&id.namespace, slice);
            for endpoint in &slice.endpoints {
                let Some(entry) = self.owners.get_mut(&endpoint.owner) else { continue };
                let changed = &mut entry.changed[slice.family.index()];
                if endpoint.ready || endpoint.serving {
                    *changed = Some(change);
                }
                // Soon neither the slice nor the Service says it.
                entry.left[path.index()] = *changed;
                entry.service_changed_at = Some(change.seen);
            }
        }
    }

    /// Removes a Service. Its slices may remain, but their endpoints no longer receive traffic through it.
    pub(crate) fn remove_service(&mut self, key: &ObjectKey, origin: ChangeOrigin, now: UnixNanos) {
        self.mark_endpoints_of(key, origin.change(now));
        if let Some(services) = self.services.get_mut(&key.namespace) {
            if let Some(mesh) = services.remove(&key.name).and_then(|service| service.mesh) {
                self.bypass.remove_mesh(key, mesh, now);
            }
            if services.is_empty() {
                self.services.remove(&key.namespace);
            }
        }
    }

    /// Removes the Services that are not in `listed`.
    pub(crate) fn retain_services(&mut self, listed: &HashSet<ObjectKey>, now: UnixNanos) {
        let known = self.services.iter().flat_map(|(namespace, services)| {
            services.keys().map(|name| ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) })
        });
        let gone: Vec<ObjectKey> = known.filter(|key| !listed.contains(key)).collect();
        for key in gone {
            self.remove_service(&key, ChangeOrigin::Listed(None), now);
        }
    }

    /// Adds or replaces an object that names `services`. Returns true if the index changes.
    pub(crate) fn put_route<K: RouteKind>(
        &mut self,
        key: &ObjectKey,
        services: Vec<ObjectKey>,
        now: UnixNanos,
    ) -> bool {
        self.bypass.put_route::<K>(key, services, now)
    }

    /// Removes an object that names Services.
    pub(crate) fn remove_route<K: RouteKind>(&mut self, key: &ObjectKey, now: UnixNanos) {
        self.bypass.remove_route::<K>(key, now);
    }

    /// Removes the objects of the kind that are not in `listed`.
    pub(crate) fn retain_routes<K: RouteKind>(&mut self, listed: &HashSet<ObjectKey>, now: UnixNanos) {
        self.bypass.retain_routes::<K>(listed, now);
    }

    /// Records that the watch of objects of the kind is interrupted.
    pub(crate) fn forget_routes<K: RouteKind>(&mut self) {
        self.bypass.forget_routes::<K>();
    }

    /// Adds or replaces a namespace. Returns true if the index changes.
    pub(crate) fn put_namespace(&mut self, name: &Arc<str>, mesh: Option<&'static str>) -> bool {
        self.bypass.put_namespace(name, mesh)
    }

    /// Removes a namespace. Returns true if the index changes.
    pub(crate) fn remove_namespace(&mut self, name: &str) -> bool {
        self.bypass.remove_namespace(name)
    }

    /// Removes the namespaces that are not in `listed`.
    pub(crate) fn retain_namespaces(&mut self, listed: &HashSet<ObjectKey>) {
        self.bypass.retain_namespaces(listed);
    }

    /// Records that the watch of namespaces is interrupted.
    pub(crate) fn forget_namespaces(&mut self) {
        self.bypass.forget_namespaces();
    }

    /// Removes what happened more than `retention` before `now`: the Services and routes that pods have left, the
    /// entries of pods that are in no slice, and deleted nodes.
    pub(crate) fn sweep(&mut self, now: UnixNanos, retention: Duration) {
        let limit = before(now, retention);
        self.bypass.sweep(limit);
        self.sweep_nodes(limit);
        self.owners.retain(|_, entry| {
            for left in &mut entry.left {
                *left = left.filter(|change| change.seen > limit);
            }
            entry.service_changed_at.take_if(|changed| *changed <= limit);
            !entry.slices.is_empty() || entry.changed.iter().flatten().any(|change| change.seen > limit)
        });
    }

    /// Returns the number of slices, of pods with endpoints, of Services and of nodes, for the metrics.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        let services = self.services.values().map(HashMap::len).sum();
        [self.slices.len(), self.owners.len(), services, self.nodes().count()]
    }
}
