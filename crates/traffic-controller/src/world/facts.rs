//! What is known of one pod.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use podward_core::UnixNanos;

use super::{Carrier, Change, Family, Key, Owner, ServiceKind, World};

/// The pod that is asked about.
#[derive(Clone, Debug)]
pub(crate) struct PodId {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: String,
    pub(crate) uid: Arc<str>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// What is known of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The Services that select it, or whose slices name it, by name.
    pub(crate) services: Vec<ServiceFacts>,
    /// When its endpoints last changed, for each address family that they are of.
    pub(crate) changed: [Option<Change>; Family::COUNT],
    /// When it last changed in slices that don't name it any more, for each way in which they led traffic to it: its labels or a
    /// Service's selector have changed, or the Service is gone.
    pub(crate) left: [Option<Change>; Carrier::COUNT],
    /// Since when slices are known, if none has named it since: it may have left one just before.
    pub(crate) unseen: Option<UnixNanos>,
}

/// How a Service stands to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceFacts {
    /// Its key.
    pub(crate) key: Key,
    pub(crate) kind: ServiceKind,
    /// Whether it is there. Slices that people write outlive their Service; nobody reads them then.
    pub(crate) exists: bool,
    /// Whether its selector matches the pod.
    pub(crate) selects: bool,
    /// Whether it has a selector at all; without one somebody else writes its slices.
    pub(crate) has_selector: bool,
    pub(crate) publishes_not_ready: bool,
    /// How many of its slices name the pod.
    pub(crate) slices: usize,
    /// A slice that shows the pod ready.
    pub(crate) ready: Option<Arc<str>>,
    /// A slice that shows it serving.
    pub(crate) serving: Option<Arc<str>>,
}

/// The other endpoints of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// Ready, and not being taken out.
    pub(crate) ready: usize,
    /// Not ready, not terminating and not being taken out: on their way in.
    pub(crate) coming: usize,
}

impl World {
    /// What is known of `pod`.
    pub(crate) fn facts(&self, pod: &PodId) -> Facts {
        let mut found: BTreeMap<Arc<str>, ServiceFacts> = BTreeMap::new();
        let services = self.services.get(&pod.namespace);
        for (name, service) in
            services.into_iter().flatten().filter(|(_, service)| service.selects(&pod.labels))
        {
            found.insert(
                Arc::clone(name),
                ServiceFacts {
                    key: Key { namespace: Arc::clone(&pod.namespace), name: Arc::clone(name) },
                    kind: service.kind,
                    exists: true,
                    selects: true,
                    has_selector: true,
                    publishes_not_ready: service.publishes_not_ready,
                    slices: 0,
                    ready: None,
                    serving: None,
                },
            );
        }
        let (mut changed, mut left) = ([None; Family::COUNT], [None; Carrier::COUNT]);
        let by_address =
            pod.addresses.iter().map(|address| Owner::Address(Arc::clone(&pod.namespace), *address));
        for owner in std::iter::once(Owner::Pod(Arc::clone(&pod.uid))).chain(by_address) {
            let Some(indexed) = self.owners.get(&owner) else { continue };
            for (ours, theirs) in changed.iter_mut().zip(indexed.changed) {
                *ours = later(*ours, theirs);
            }
            for (ours, theirs) in left.iter_mut().zip(indexed.left) {
                *ours = later(*ours, theirs);
            }
            for id in &indexed.slices {
                self.add_slice(id, &owner, &mut found);
            }
        }
        let mut unseen = None;
        if changed == [None; Family::COUNT] {
            unseen = self.filled;
            for address in &pod.addresses {
                changed[Family::of(*address).index()] =
                    self.filled.map(|seen| Change { seen, not_before: None });
            }
        }
        Facts { services: found.into_values().collect(), changed, left, unseen }
    }

    fn add_slice(&self, id: &Arc<Key>, owner: &Owner, found: &mut BTreeMap<Arc<str>, ServiceFacts>) {
        let Some(slice) = self.slices.get(id) else { return };
        // Without its label a slice belongs to no Service, and no proxy reads it.
        let Some(name) = &slice.service else { return };
        let facts = found.entry(Arc::clone(name)).or_insert_with(|| {
            let service = self.services.get(&id.namespace).and_then(|services| services.get(name));
            let kind = match slice.carrier {
                Carrier::KubeProxy => ServiceKind::Proxied,
                Carrier::Dns => ServiceKind::Headless,
                Carrier::Other => ServiceKind::OtherProxy,
            };
            ServiceFacts {
                key: Key { namespace: Arc::clone(&id.namespace), name: Arc::clone(name) },
                kind,
                exists: service.is_some(),
                selects: false,
                has_selector: service.is_none_or(|service| !service.selector.is_empty()),
                publishes_not_ready: service.is_some_and(|service| service.publishes_not_ready),
                slices: 0,
                ready: None,
                serving: None,
            }
        });
        facts.slices += 1;
        for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.owner == *owner) {
            if endpoint.ready {
                facts.ready = Some(Arc::clone(&id.name));
            }
            if endpoint.serving {
                facts.serving = Some(Arc::clone(&id.name));
            }
        }
    }

    /// The other endpoints of `service` than `pod`. Those that `leaves` says are being taken out don't count.
    pub(crate) fn others(&self, service: &Key, pod: &PodId, leaves: impl Fn(&Owner) -> bool) -> Others {
        let mut owners: HashMap<&Owner, (bool, bool)> = HashMap::new();
        for id in self.by_service.get(service).into_iter().flatten() {
            for endpoint in self.slices.get(id).into_iter().flat_map(|slice| &slice.endpoints) {
                // Of a pod with two addresses it is enough that one is ready.
                let (ready, coming) = owners.entry(&endpoint.owner).or_default();
                *ready |= endpoint.ready && !endpoint.terminating;
                *coming |= !endpoint.ready && !endpoint.terminating;
            }
        }
        let is_pod = |owner: &Owner| match owner {
            Owner::Pod(uid) => *uid == pod.uid,
            Owner::Address(_, address) => pod.addresses.contains(address),
        };
        let mut others = Others::default();
        for (owner, (ready, coming)) in owners {
            if is_pod(owner) || leaves(owner) {
                continue;
            }
            others.ready += usize::from(ready);
            others.coming += usize::from(!ready && coming);
        }
        others
    }
}

fn later(one: Option<Change>, other: Option<Change>) -> Option<Change> {
    [one, other].into_iter().flatten().max_by_key(|change| change.seen)
}
