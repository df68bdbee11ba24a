//! The full comparison of a registry with the pods of a binding.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::OnceLock;
use std::time::Duration;

use podward_api::discovery_binding::BindingMode;
use podward_registries::{Instance, Listed, ServiceKey, Unreadable};

use super::renewal::Heartbeats;
use super::tracked::{SyncState, TrackedPod};
use crate::model::{Binding, Decision, Desired, Orphan, Presence, Suspect, Whose, decide, marked_uid};
use crate::sync::{Place, RegistryAccess, read_services};

/// The number of entries that cannot be read, and of which the text is kept.
const MAX_UNREADABLE: usize = 20;

/// What a comparison has found.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// The addresses that could not be read, with the reason.
    pub(crate) unreachable: Vec<String>,
    /// Instances of this binding that belong to none of its pods, or that their pods have left for others, of all addresses.
    pub(crate) orphans: Vec<Orphan>,
    /// Entries that cannot be read, and that may be instances of this binding beside those that its pods should have.
    pub(crate) suspects: Vec<Suspect>,
    /// What cannot be read: some of the entries.
    pub(crate) unreadable: BTreeSet<String>,
    /// The UIDs of pods that have moved, and of which no address shows an instance that they have left.
    pub(crate) settled: Vec<String>,
    /// The number of instances of this binding in each service.
    pub(crate) totals: HashMap<ServiceKey, usize>,
}

/// Lists every address, and reopens the pods of which an address does not show what it should. An address that cannot be
/// read shows nothing, so nothing follows from it. `services` are those of pods so far, for registries that cannot list
/// services: those without pods stay until no address shows an instance of the binding in them. Heartbeats are sent
/// meanwhile.
pub(crate) async fn compare(
    access: &RegistryAccess,
    binding: &Binding,
    pods: &mut HashMap<String, TrackedPod>,
    services: &mut HashSet<ServiceKey>,
    now: Duration,
    heartbeats: &mut Heartbeats<'_>,
) -> Comparison {
    let mut comparison = Comparison::default();
    let mut of_services: HashMap<ServiceKey, Vec<&String>> = HashMap::new();
    let without_pods = binding.service_without_pods().map(|service| access.registry.canonical(service));
    let mut current: HashSet<ServiceKey> = without_pods.into_iter().collect();
    for (uid, tracked) in &*pods {
        if let Ok(service) = &tracked.service {
            let service = access.registry.canonical(service.clone());
            of_services.entry(access.places.service(&service)).or_default().push(uid);
            current.insert(service);
        }
    }
    services.extend(current.iter().cloned());
    let view = PodsView { access, binding, pods, of_services, services, moved: OnceLock::new(), now };
    let (mut changed, mut in_service, mut marked) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (address, name) in access.addresses().iter().enumerate() {
        let mut shown = Shown::default();
        let visit = |service: ServiceKey, listed: Listed| view.look(service, listed, &mut shown);
        let read = read_services(access, address, services, visit);
        if let Err(error) = heartbeats.during(read, view.pods).await {
            access.note(&error);
            comparison.unreachable.push(error.to_string());
            continue;
        }
        for uid in shown.changed {
            let pod = view.pods.get(&uid).map(|tracked| &*tracked.pod.name);
            tracing::info!(
                binding = %binding.key, pod, address = name,
                "the registry does not show the pod as it should; it is repaired"
            );
            changed.insert(uid);
        }
        in_service.extend(shown.in_service);
        marked.extend(shown.marked);
        for (service, total) in shown.totals {
            let most = comparison.totals.entry(service).or_default();
            *most = total.max(*most);
        }
        add_new(access, &mut comparison.orphans, shown.orphans);
        comparison.suspects.extend(shown.suspects);
        comparison.unreadable.extend(shown.unreadable);
    }
    let mut unclear = view.unclear(&comparison.suspects);
    for uid in in_service {
        pods.entry(uid).and_modify(|tracked| tracked.is_in_service = true);
    }
    for uid in changed {
        pods.entry(uid).and_modify(TrackedPod::reopen);
    }
    for orphan in &comparison.orphans {
        if let Some(tracked) = pods.get_mut(&orphan.uid) {
            tracked.moved.get_or_insert(now);
        }
    }
    for (uid, tracked) in &mut *pods {
        tracked.unreadable = unclear.remove(uid);
        if tracked.unreadable.is_some() {
            tracked.moved.get_or_insert(now);
        }
    }
    if comparison.unreachable.is_empty() {
        let shown: HashSet<&String> = comparison.orphans.iter().map(|orphan| &orphan.uid).collect();
        let moved = pods.iter().filter_map(|(uid, tracked)| Some((uid, tracked.moved?, &tracked.unreadable)));
        let (settled, open): (Vec<_>, Vec<_>) = moved.partition(|(uid, from, unreadable)| {
            *from <= now && unreadable.is_none() && !shown.contains(*uid)
        });
        // A list may be older than a move: its service is read again.
        if open.is_empty() {
            services.retain(|service| current.contains(service) || marked.contains(service));
        }
        comparison.settled = settled.into_iter().map(|(uid, ..)| uid.clone()).collect();
    }
    comparison
}

/// The pods that a registry is compared with.
struct PodsView<'a> {
    access: &'a RegistryAccess,
    binding: &'a Binding,
    pods: &'a HashMap<String, TrackedPod>,
    /// The UIDs of the pods, by service. Names of the same service have one key.
    of_services: HashMap<ServiceKey, Vec<&'a String>>,
    /// The services that pods of the binding have or had.
    services: &'a HashSet<ServiceKey>,
    /// The addresses of the pods that may have left an instance, in any service. They are needed rarely.
    moved: OnceLock<HashSet<(String, u16)>>,
    now: Duration,
}

/// What follows from what one address shows. Instances are not kept: there may be many.
#[derive(Debug, Default)]
struct Shown {
    /// The UIDs of pods that it does not show as it should.
    changed: Vec<String>,
    /// The UIDs of pods that it shows in service, of which that was not known.
    in_service: Vec<String>,
    totals: HashMap<ServiceKey, usize>,
    /// The services with instances of this binding.
    marked: Vec<ServiceKey>,
    orphans: Vec<Orphan>,
    suspects: Vec<Suspect>,
    unreadable: BTreeSet<String>,
}

impl PodsView<'_> {
    /// Looks at all entries of a service.
    fn look(&self, service: ServiceKey, listed: Listed, shown: &mut Shown) {
        let Listed { instances, unreadable } = listed;
        let places = &self.access.places;
        let spoiled: HashMap<Place<'_>, usize> = unreadable
            .iter()
            .enumerate()
            .map(|(index, entry)| (places.place_of_unreadable(entry), index))
            .collect();
        // Those where pods should be.
        let mut own: HashSet<usize> = HashSet::new();
        let by_place: HashMap<Place<'_>, &Instance> =
            instances.iter().map(|instance| (places.place(instance), instance)).collect();
        // Where the pods should be, and are.
        let mut wanted: HashMap<&str, Place<'_>> = HashMap::new();
        for uid in self.of_services.get(&places.service(&service)).into_iter().flatten() {
            let Some(tracked) = self.pods.get(*uid) else { continue };
            let Some(desired) = tracked.desired(self.binding, self.access) else { continue };
            let found = by_place.get(&places.place(&desired.instance)).copied();
            wanted.extend(found.map(|found| (uid.as_str(), places.place(found))));
            let is_in_service =
                found.is_some_and(|found| found.in_service && desired.owner.is_in(&found.metadata));
            if is_in_service && !tracked.is_in_service {
                shown.in_service.push((*uid).clone());
            }
            let entry = spoiled.get(&places.place(&desired.instance)).copied();
            own.extend(entry);
            if self.is_changed(tracked, &desired, found) || (entry.is_some() && self.may_repair(tracked)) {
                shown.changed.push((*uid).clone());
            }
        }
        let (mut total, mut is_marked) = (0, false);
        for instance in &instances {
            let Some(uid) = marked_uid(&self.access.cluster, &self.binding.key, instance) else { continue };
            is_marked = true;
            total += usize::from(instance.in_service);
            let belongs = self.pods.get(uid).is_some_and(|tracked| {
                // If the pod cannot have an instance, it keeps the one that it has.
                tracked.service.is_err() || wanted.get(uid) == Some(&places.place(instance))
            });
            if !belongs {
                shown.orphans.push(Orphan::new(service.clone(), instance.clone(), uid.to_owned()));
            }
        }
        for (index, entry) in unreadable.into_iter().enumerate() {
            let text = entry.error.to_string();
            is_marked |= self.suspect(&service, entry, own.contains(&index), shown);
            shown.unreadable.insert(text);
            if shown.unreadable.len() > MAX_UNREADABLE {
                shown.unreadable.pop_last();
            }
        }
        if is_marked {
            shown.marked.push(service.clone());
        }
        if total > 0 {
            shown.totals.insert(service, total);
        }
    }

    /// Notes an entry that cannot be read if it may be an instance of the binding, and returns whether it may. The one that a pod
    /// should have is read for itself.
    fn suspect(&self, service: &ServiceKey, entry: Unreadable, is_own: bool, shown: &mut Shown) -> bool {
        let Self { access, binding, services, .. } = *self;
        if binding.mode == BindingMode::Steer || is_own {
            return false;
        }
        let of = (service, services.contains(service));
        let found = Suspect::new(&access.cluster, &binding.key, &access.capabilities, of, entry);
        let is_near = found.as_ref().is_some_and(|found| found.is_near);
        shown.suspects.extend(found.filter(|found| found.is_near || self.may_be_left(found)));
        is_near
    }

    /// Returns whether a pod may have left an entry in a service that is not known. Without a UID it has the address of the pod.
    fn may_be_left(&self, suspect: &Suspect) -> bool {
        let (Whose::Host(host), Some(port)) = (&suspect.whose, suspect.port) else {
            return matches!(suspect.whose, Whose::Uid(_));
        };
        let moved = self.moved.get_or_init(|| {
            let moved = self.pods.values().filter(|tracked| tracked.moved.is_some());
            let desired = moved.filter_map(|tracked| tracked.desired(self.binding, self.access));
            desired.map(|Desired { instance, .. }| (instance.host, instance.port)).collect()
        });
        moved.contains(&(host.clone(), port))
    }

    /// Returns what cannot be read and may be an instance that a pod has left, by the UID of the pod.
    fn unclear(&self, suspects: &[Suspect]) -> HashMap<String, String> {
        let mut unclear = HashMap::new();
        let mut of_hosts: HashMap<&str, Vec<&Suspect>> = HashMap::new();
        for suspect in suspects {
            match &suspect.whose {
                Whose::Uid(uid) => _ = unclear.insert(uid.clone(), suspect.problem.clone()),
                Whose::Host(host) => of_hosts.entry(host).or_default().push(suspect),
            }
        }
        if !of_hosts.is_empty() {
            // Of the others it is known that the registry has nothing else. Their applications may have registered further ports.
            for (uid, tracked) in self.pods.iter().filter(|(_, tracked)| tracked.moved.is_some()) {
                let Some(Desired { instance, .. }) = tracked.desired(self.binding, self.access) else {
                    continue;
                };
                let mut found = of_hosts.get(&*instance.host).into_iter().flatten();
                let found = found.find(|found| found.is_near || found.port == Some(instance.port));
                unclear.extend(found.map(|found| (uid.clone(), found.problem.clone())));
            }
        }
        unclear
    }

    /// Returns whether the registry has shown a pod as it should, and now shows `found`, which has to be repaired.
    fn is_changed(&self, tracked: &TrackedPod, desired: &Desired, found: Option<&Instance>) -> bool {
        let Self { access, binding, .. } = *self;
        if !self.may_repair(tracked) {
            return false;
        }
        let policy = binding.foreign_changes;
        match decide(binding.mode, policy, tracked.presence, desired, &access.capabilities, found) {
            Decision::Shown | Decision::Drifted => false,
            Decision::Write(_) | Decision::Wait(_) => true,
        }
    }

    /// Returns whether the registry has shown a pod as it should, and what it shows in a list now may have to be repaired.
    fn may_repair(&self, tracked: &TrackedPod) -> bool {
        let SyncState::Shown { at, .. } = &tracked.state else { return false };
        // The list may be older than the change.
        let lag = self.access.capabilities.list_lag;
        let is_old = !lag.is_zero() && self.now < at.since + 2 * lag;
        tracked.presence != Presence::Unchanged && !is_old && self.binding.mode == BindingMode::Own
    }
}

/// Adds the instances that are not among `known` yet.
fn add_new(access: &RegistryAccess, known: &mut Vec<Orphan>, found: Vec<Orphan>) {
    let new: Vec<Orphan> = {
        let key = |orphan: &'_ Orphan| (orphan.service.clone(), orphan.uid.clone());
        let seen: HashSet<_> = known.iter().map(|it| (key(it), access.places.place(&it.instance))).collect();
        let is_new = |it: &&Orphan| !seen.contains(&(key(it), access.places.place(&it.instance)));
        found.iter().filter(is_new).cloned().collect()
    };
    known.extend(new);
}
