//! What the index knows about one pod.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use podward_core::UnixNanos;

use super::address_family::AddressFamily;
use super::change::EndpointChange;
use super::endpoint_index::EndpointIndex;
use super::object::ObjectKey;
use super::service::{LocalPolicy, ServiceKind};
use super::slice::{DataPath, EndpointOwner, IndexedSlice};

/// The pod that a question is about.
#[derive(Clone, Debug)]
pub(crate) struct TargetPod {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: String,
    pub(crate) uid: Arc<str>,
    pub(crate) addresses: Vec<IpAddr>,
    /// The TCP ports that the pod declares.
    pub(crate) ports: Vec<u16>,
    pub(crate) labels: BTreeMap<String, String>,
    /// The node of the pod. Empty if it is not known.
    pub(crate) node: String,
    /// True if the pod was never Ready.
    pub(crate) never_ready: bool,
}

impl TargetPod {
    /// Returns what endpoints of the pod may belong to.
    fn owners(&self) -> impl Iterator<Item = EndpointOwner> {
        let by_address = self
            .addresses
            .iter()
            .map(|address| EndpointOwner::Address(Arc::clone(&self.namespace), *address));
        std::iter::once(EndpointOwner::Pod(Arc::clone(&self.namespace), Arc::clone(&self.uid)))
            .chain(by_address)
    }
}

/// The Services and the endpoint changes of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodEndpoints {
    /// The Services that select the pod or whose slices list it, sorted by name.
    pub(crate) services: Vec<ServiceMembership>,
    /// The last change of its endpoints in each address family.
    pub(crate) changed: [Option<EndpointChange>; AddressFamily::COUNT],
    /// The last change in slices that no longer list the pod, for each data path. This happens when the labels of the
    /// pod or the selector of a Service change, and when a Service is deleted.
    pub(crate) left: [Option<EndpointChange>; DataPath::COUNT],
    /// Who sent traffic past kube-proxy to the Services that the pod has left, or may have done so.
    pub(crate) left_bypass: Option<String>,
    /// When all slices were first listed, if one of them listed the pod. When they were last listed, if no slice has
    /// listed it since this process started. The pod may have left a slice just before.
    pub(crate) may_have_left_since: Option<UnixNanos>,
    /// True if a Service whose slices list or listed the pod was deleted or changed its type not long ago.
    pub(crate) service_changed: bool,
    /// A slice that may list the pod: it has the address of the pod's node, and only ports that the pod does not declare.
    pub(crate) may_be_listed_in: Option<Arc<ObjectKey>>,
    /// A slice that sends traffic to the address of the pod, but is in another namespace or names another object. Nobody
    /// waits for it: otherwise its writer could hold the pods of others.
    pub(crate) also_sent_by: Option<Arc<ObjectKey>>,
    /// Who sends traffic to the pod whatever its readiness gate says.
    pub(crate) ignores_gate: Option<String>,
    /// True if somebody may do so who is not known, because not all objects that say it are listed.
    pub(crate) may_ignore_gate: bool,
    /// True if the pod was never Ready, and no slice has shown it as ready or serving since it was first listed.
    pub(crate) never_sent: bool,
    /// A kind whose watch is interrupted, so that all this may be out of date.
    pub(crate) interrupted: Option<&'static str>,
}

/// The relation of a Service to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceMembership {
    /// Namespace and name of the Service.
    pub(crate) key: ObjectKey,
    pub(crate) kind: ServiceKind,
    /// True if the Service exists and does not have the type ExternalName. Slices that people write remain when the
    /// Service is deleted, and all slices remain when it gets that type, but nothing uses them.
    pub(crate) exists: bool,
    /// True if the selector matches the pod.
    pub(crate) selects: bool,
    /// True if the Service has a selector. Kubernetes writes no slices for a Service without one.
    pub(crate) has_selector: bool,
    /// True if the Service publishes the addresses of pods that are not ready.
    pub(crate) publishes_not_ready: bool,
    /// The number of its slices that list the pod.
    pub(crate) slices: usize,
    /// The name of a slice that shows the pod as ready.
    pub(crate) ready: Option<Arc<str>>,
    /// The address families that the Service and the pod have in common, and in which no slice shows the pod as ready.
    pub(crate) missing: [bool; AddressFamily::COUNT],
    /// The name of a slice that shows the pod as serving.
    pub(crate) serving: Option<Arc<str>>,
    /// Who sends traffic to the pods of the Service past kube-proxy, or may do so.
    pub(crate) bypass: Option<String>,
}

/// The endpoints of a Service other than a pod, without those that are being drained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherEndpoints {
    /// The number of endpoints that are ready.
    pub(crate) ready: usize,
    /// The number of endpoints that are neither ready nor terminating, and so may become ready.
    pub(crate) starting: usize,
    /// The same for the node of the pod, if the Service makes a node use only its own endpoints.
    pub(crate) local: Option<LocalEndpoints>,
}

/// The endpoints on the node of a pod other than the pod, in a Service that makes a node use only its own endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalEndpoints {
    /// The policy of the Service.
    pub(crate) policy: LocalPolicy,
    /// The name of the node.
    pub(crate) node: Arc<str>,
    /// The number of endpoints on the node that are ready.
    pub(crate) ready: usize,
    /// The number of endpoints on the node that are neither ready nor terminating.
    pub(crate) starting: usize,
}

/// Whether a slice lists a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Yes,
    No,
    /// It has the address of the pod's node. What a pod declares does not limit the ports on which it listens.
    Possible,
}

impl EndpointIndex {
    /// Returns the Services and the endpoint changes of `pod`.
    pub(crate) fn pod_endpoints(&self, pod: &TargetPod) -> PodEndpoints {
        let mut found: BTreeMap<Arc<str>, ServiceMembership> = BTreeMap::new();
        let services = self.services.get(&pod.namespace);
        for (name, service) in
            services.into_iter().flatten().filter(|(_, service)| service.selects(&pod.labels))
        {
            let mut missing = [false; AddressFamily::COUNT];
            for address in &pod.addresses {
                let family = AddressFamily::of(*address).index();
                missing[family] = service.families[family];
            }
            // Kubernetes adds a pod to no slice of a Service that has other address families.
            if !pod.addresses.is_empty() && service.families.contains(&true) && !missing.contains(&true) {
                continue;
            }
            found.insert(
                Arc::clone(name),
                ServiceMembership {
                    key: ObjectKey { namespace: Arc::clone(&pod.namespace), name: Arc::clone(name) },
                    kind: service.kind,
                    exists: true,
                    selects: true,
                    has_selector: true,
                    publishes_not_ready: service.publishes_not_ready,
                    slices: 0,
                    ready: None,
                    missing,
                    serving: None,
                    bypass: None,
                },
            );
        }
        let (mut changed, mut left) = ([None; AddressFamily::COUNT], [None; DataPath::COUNT]);
        let (mut never_sent, mut may_be_listed_in, mut may_have_left_since) = (pod.never_ready, None, None);
        let mut service_changed = false;
        for owner in pod.owners() {
            let Some(entry) = self.owners.get(&owner) else { continue };
            never_sent &= !entry.may_have_been_sent;
            may_have_left_since = may_have_left_since.or(entry.first_listed_at);
            service_changed |= entry.service_changed_at.is_some();
            for (ours, theirs) in changed.iter_mut().zip(entry.changed) {
                *ours = later_change(*ours, theirs);
            }
            for (ours, theirs) in left.iter_mut().zip(entry.left) {
                *ours = later_change(*ours, theirs);
            }
            for id in &entry.slices {
                if self.add_slice(id, &owner, pod, &mut found) == Listing::Possible {
                    may_be_listed_in = Some(Arc::clone(id));
                }
            }
        }
        if let Some(time) = self.slices_listed_again_at {
            for change in changed.iter_mut().chain(&mut left).flatten() {
                *change = change.or_until(time);
            }
        }
        if changed == [None; AddressFamily::COUNT] {
            may_have_left_since = self.slices_listed_at;
            for address in &pod.addresses {
                changed[AddressFamily::of(*address).index()] =
                    self.slices_listed_at.map(EndpointChange::undated);
            }
        }
        let mut ignores_gate = None;
        for (name, membership) in &mut found {
            let mesh = services.and_then(|services| services.get(name)?.mesh);
            membership.bypass = self.bypass.of_service(&membership.key, mesh);
            ignores_gate = ignores_gate.or_else(|| self.bypass.ignoring_gates(&membership.key, mesh));
        }
        let left_bypass = left[DataPath::KubeProxy.index()].and_then(|_| {
            let meshes = services.into_iter().flatten();
            let mesh = meshes.filter_map(|(name, service)| Some((&**name, service.mesh?))).min();
            self.bypass.of_namespace(&pod.namespace, mesh)
        });
        let may_ignore_gate = !found.is_empty() && !self.bypass.knows_ignoring_gates();
        PodEndpoints {
            services: found.into_values().collect(),
            changed,
            left,
            left_bypass,
            may_have_left_since,
            service_changed,
            may_be_listed_in,
            also_sent_by: self.also_sent_by(pod),
            ignores_gate,
            may_ignore_gate,
            never_sent,
            interrupted: self.interrupted(),
        }
    }

    /// Returns the TCP ports that `pod` declares, and those on which clients of Services reach it, or have reached it before.
    pub(crate) fn ports_of(&self, pod: &TargetPod) -> BTreeSet<u16> {
        let entries = pod.owners().filter_map(|owner| self.owners.get(&owner));
        entries.flat_map(|entry| &entry.ports).chain(&pod.ports).copied().collect()
    }

    /// Returns whether `slice`, which has endpoints of `owner`, lists `pod`. All pods that use the network of their node
    /// have its address. For them the ports decide, unless the pod or the slice has none.
    fn lists(&self, slice: &IndexedSlice, id: &ObjectKey, owner: &EndpointOwner, pod: &TargetPod) -> Listing {
        let EndpointOwner::Address(_, address) = owner else { return Listing::Yes };
        if &*id.namespace == "default" && slice.service.as_deref() == Some("kubernetes") {
            // These are the addresses of the API servers.
            return Listing::No;
        }
        let is_listed = !self.node_addresses(&pod.node).contains(address)
            || pod.ports.is_empty()
            || slice.ports.is_empty()
            || slice.ports.iter().any(|port| pod.ports.contains(port));
        if is_listed { Listing::Yes } else { Listing::Possible }
    }

    /// Returns a slice that shows an address of `pod` as ready or serving, but is in another namespace or names another
    /// object. `None` if the pod uses the network of its node, whose address belongs to many pods.
    fn also_sent_by(&self, pod: &TargetPod) -> Option<Arc<ObjectKey>> {
        let of_node = self.node_addresses(&pod.node);
        if pod.addresses.iter().any(|address| of_node.contains(address)) {
            return None;
        }
        let owners: Vec<EndpointOwner> = pod.owners().collect();
        let sends = |id: &Arc<ObjectKey>| {
            let slice = self.slices.get(id)?;
            let service = self.services.get(&id.namespace)?.get(slice.service.as_ref()?)?;
            let is_sent = slice.endpoints.iter().any(|endpoint| {
                (endpoint.ready || endpoint.serving)
                    && endpoint.addresses.iter().any(|address| pod.addresses.contains(address))
                    && !owners.contains(&endpoint.owner)
            });
            (is_sent && service.kind != ServiceKind::ExternalName).then(|| Arc::clone(id))
        };
        let slices = pod.addresses.iter().filter_map(|address| self.by_address.get(address));
        slices.flatten().find_map(sends)
    }

    /// Adds `id`, a slice with endpoints of `owner`, to the Services of `pod`. Returns whether it lists the pod.
    fn add_slice(
        &self,
        id: &Arc<ObjectKey>,
        owner: &EndpointOwner,
        pod: &TargetPod,
        found: &mut BTreeMap<Arc<str>, ServiceMembership>,
    ) -> Listing {
        let Some(slice) = self.slices.get(id) else { return Listing::No };
        // A slice without the label belongs to no Service, and no proxy uses it.
        let Some(name) = &slice.service else { return Listing::No };
        let listing = self.lists(slice, id, owner, pod);
        if listing != Listing::Yes {
            return listing;
        }
        let membership = found.entry(Arc::clone(name)).or_insert_with(|| {
            let service = self.services.get(&id.namespace).and_then(|services| services.get(name));
            let kind = match self.data_path(&id.namespace, slice) {
                DataPath::KubeProxy => ServiceKind::Proxied,
                DataPath::Dns => ServiceKind::Headless,
                DataPath::OtherProxy => ServiceKind::OtherProxy,
            };
            ServiceMembership {
                key: ObjectKey { namespace: Arc::clone(&id.namespace), name: Arc::clone(name) },
                kind,
                exists: service.is_some_and(|service| service.kind != ServiceKind::ExternalName),
                selects: false,
                has_selector: service.is_none_or(|service| !service.selector.is_empty()),
                publishes_not_ready: service.is_some_and(|service| service.publishes_not_ready),
                slices: 0,
                ready: None,
                missing: [false; AddressFamily::COUNT],
                serving: None,
                bypass: None,
            }
        });
        membership.slices += 1;
        for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.owner == *owner) {
            if endpoint.ready {
                membership.ready = Some(Arc::clone(&id.name));
                membership.missing[slice.family.index()] = false;
            }
            if endpoint.serving {
                membership.serving = Some(Arc::clone(&id.name));
            }
        }
        listing
    }

    /// Counts the endpoints of `service` other than `pod`. Endpoints for which `is_draining` returns true do not count.
    /// Its second argument says whether the slices show the endpoint as ready.
    pub(crate) fn other_endpoints(
        &self,
        service: &ObjectKey,
        pod: &TargetPod,
        is_draining: impl Fn(&EndpointOwner, bool) -> bool,
    ) -> OtherEndpoints {
        #[derive(Default)]
        struct Owner<'a> {
            ready: bool,
            starting: bool,
            node: Option<&'a Arc<str>>,
        }
        let mut owners: HashMap<&EndpointOwner, Owner<'_>> = HashMap::new();
        for id in self.by_service.get(service).into_iter().flatten() {
            for endpoint in self.slices.get(id).into_iter().flat_map(|slice| &slice.endpoints) {
                // A pod with several endpoints counts as ready if one of them is.
                let owner = owners.entry(&endpoint.owner).or_default();
                owner.ready |= endpoint.ready && !endpoint.terminating;
                owner.starting |= !endpoint.ready && !endpoint.terminating;
                owner.node = owner.node.or(endpoint.node.as_ref());
            }
        }
        let is_pod = |owner: &EndpointOwner| match owner {
            EndpointOwner::Pod(_, uid) => *uid == pod.uid,
            EndpointOwner::Address(_, address) => pod.addresses.contains(address),
        };
        let policy =
            self.services.get(&service.namespace).and_then(|services| services.get(&service.name)?.local);
        let node = owners.iter().find_map(|(owner, state)| state.node.filter(|_| is_pod(owner)));
        let mut others = OtherEndpoints {
            local: policy.zip(node).map(|(policy, node)| LocalEndpoints {
                policy,
                node: Arc::clone(node),
                ready: 0,
                starting: 0,
            }),
            ..OtherEndpoints::default()
        };
        for (owner, state) in owners {
            if is_pod(owner) || is_draining(owner, state.ready) {
                continue;
            }
            let (ready, starting) = (usize::from(state.ready), usize::from(!state.ready && state.starting));
            others.ready += ready;
            others.starting += starting;
            if let Some(local) = others.local.as_mut().filter(|local| state.node == Some(&local.node)) {
                local.ready += ready;
                local.starting += starting;
            }
        }
        others
    }
}

fn later_change(one: Option<EndpointChange>, other: Option<EndpointChange>) -> Option<EndpointChange> {
    [one, other].into_iter().flatten().max_by_key(|change| change.seen)
}
