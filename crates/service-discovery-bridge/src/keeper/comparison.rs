//! The full comparison of a registry with the pods of a binding.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use podward_registries::{Instance, ServiceKey};

use super::tracked::{SyncState, TrackedPod};
use crate::model::{Binding, Decision, Orphan, Presence, decide, orphans};
use crate::sync::{Listing, RegistryAccess, list};

/// What a comparison has found.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// The addresses that could not be read, with the reason.
    pub(crate) unreachable: Vec<String>,
    /// Instances of this binding that belong to none of its pods, of all addresses.
    pub(crate) orphans: Vec<Orphan>,
    /// The number of instances of this binding in each service.
    pub(crate) totals: HashMap<ServiceKey, usize>,
}

/// Lists every address, and reopens the pods of which an address does not show what it should. An address that cannot be
/// read shows nothing, so nothing follows from it. `services` are those of pods so far, for registries that cannot list
/// services: those without pods stay until no address shows an instance of the binding in them.
pub(crate) async fn compare(
    access: &RegistryAccess,
    binding: &Binding,
    pods: &mut HashMap<String, TrackedPod>,
    services: &mut HashSet<ServiceKey>,
    now: Duration,
) -> Comparison {
    let mut comparison = Comparison::default();
    let of_pods = pods.values().filter_map(|tracked| Some(tracked.desired.as_ref().ok()?.service.clone()));
    let current: HashSet<ServiceKey> = of_pods
        .chain(binding.service_without_pods())
        .map(|service| access.registry.canonical(service))
        .collect();
    services.extend(current.iter().cloned());
    let uids: HashSet<String> = pods.keys().cloned().collect();
    for (address, name) in access.addresses().iter().enumerate() {
        let listing = match list(access, address, services).await {
            Ok(listing) => listing,
            Err(error) => {
                access.note(&error);
                comparison.unreachable.push(error.to_string());
                continue;
            }
        };
        let shown: HashMap<(&ServiceKey, Identity<'_>), &Instance> = listing
            .instances
            .iter()
            .map(|(service, instance)| ((service, identity(access, instance)), instance))
            .collect();
        for tracked in pods.values_mut() {
            compare_pod(access, binding, tracked, &shown, now, name);
        }
        count(&mut comparison, access, binding, &uids, &listing);
    }
    if comparison.unreachable.is_empty() {
        let has_orphans =
            |service: &ServiceKey| comparison.orphans.iter().any(|orphan| orphan.service == *service);
        services.retain(|service| current.contains(service) || has_orphans(service));
    }
    comparison
}

/// What an instance is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Identity<'i> {
    Id(&'i str),
    Address(&'i str, u16),
}

fn identity<'i>(access: &RegistryAccess, instance: &'i Instance) -> Identity<'i> {
    match access.capabilities.by_address {
        true => Identity::Address(&instance.host, instance.port),
        false => Identity::Id(&instance.id),
    }
}

fn compare_pod(
    access: &RegistryAccess,
    binding: &Binding,
    tracked: &mut TrackedPod,
    shown: &HashMap<(&ServiceKey, Identity<'_>), &Instance>,
    now: Duration,
    address: &str,
) {
    let Ok(desired) = &tracked.desired else { return };
    let service = access.registry.canonical(desired.service.clone());
    let found = shown.get(&(&service, identity(access, &desired.instance))).copied();
    if found.is_some_and(|found| found.in_service && found.owner().as_ref() == Some(&desired.owner)) {
        tracked.is_in_service = true;
    }
    let SyncState::Shown { at, .. } = &tracked.state else { return };
    // The list may be older than the change.
    let lag = access.capabilities.list_lag;
    let is_steered = binding.mode == podward_api::discovery_binding::BindingMode::Steer;
    if tracked.presence == Presence::Unchanged || (!lag.is_zero() && now < at.since + 2 * lag) || is_steered {
        return;
    }
    let next =
        decide(binding.mode, binding.foreign_changes, tracked.presence, desired, &access.capabilities, found);
    match next {
        Decision::Shown | Decision::Drifted => {}
        Decision::Write(_) | Decision::Wait(_) => {
            tracing::info!(
                binding = %binding.key,
                pod = tracked.pod.name,
                service = desired.service.name,
                address,
                "the registry does not show the pod as it should; it is repaired"
            );
            tracked.reopen();
        }
    }
}

fn count(
    comparison: &mut Comparison,
    access: &RegistryAccess,
    binding: &Binding,
    uids: &HashSet<String>,
    listing: &Listing,
) {
    let found = || listing.instances.iter().map(|(service, instance)| (service, instance));
    for orphan in orphans(&access.cluster, &binding.key, uids, found()) {
        let is_known =
            comparison.orphans.iter().any(|known| known.uid == orphan.uid && known.service == orphan.service);
        if !is_known {
            comparison.orphans.push(orphan);
        }
    }
    let mut totals: HashMap<ServiceKey, usize> = HashMap::new();
    let none = HashSet::new();
    for ours in orphans(&access.cluster, &binding.key, &none, found()) {
        if ours.instance.in_service {
            *totals.entry(ours.service).or_default() += 1;
        }
    }
    for (service, total) in totals {
        let known = comparison.totals.entry(service).or_default();
        *known = total.max(*known);
    }
}
