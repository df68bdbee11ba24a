//! The pods of a binding.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use podward_api::discovery_binding::BindingMode;
use podward_registries::{Instance, ServiceKey};

use super::super::registry_watch::RegistryWatch;
use super::super::tracked::{SyncState, TrackedPod};
use super::BindingTask;
use crate::model::{Binding, BoundPod, Demand, Desired, Orphan, Presence};
use crate::sync::RegistryAccess;

/// The pause before the registry is searched for instances that pods have left: many pods move together.
const MOVE_PAUSE: Duration = Duration::from_millis(200);

impl BindingTask {
    /// Takes the pods that have changed, or all of them if the binding has.
    pub(super) fn observe(&mut self, binding: &Arc<Binding>, access: &RegistryAccess) {
        let mut changed = self.pod_changes.take();
        let known = self.known.replace(Arc::clone(binding));
        let as_before = |known: &Arc<Binding>| {
            (known.generation, known.deleting) == (binding.generation, binding.deleting)
        };
        let respecified = !known.as_ref().is_some_and(as_before);
        let missed = std::mem::take(&mut self.missed_pods);
        let is_first = known.is_none();
        let before = known.unwrap_or_else(|| Arc::clone(binding));
        if respecified || missed {
            changed.extend(self.shared.index.pod_uids(&self.key.namespace));
            changed.extend(self.tracked.keys().chain(&self.left).cloned());
        }
        if respecified && binding.deleting {
            // Instances that are not renewed are forgotten.
            let lag = access.capabilities.renewal.map_or(access.capabilities.list_lag, |_| Duration::ZERO);
            self.finish_from = self.shared.index.now() + lag;
            self.search();
        }
        self.services_due |= !changed.is_empty();
        for uid in changed {
            let pod = self.shared.index.pod(&self.key.namespace, &uid);
            let next = match (pod, self.tracked.get(&uid)) {
                (Some(pod), tracked) if binding.selects(&pod) => {
                    self.gone.remove(&uid);
                    self.left.remove(&uid);
                    if !respecified && tracked.is_some_and(|tracked| Arc::ptr_eq(&tracked.pod, &pod)) {
                        continue;
                    }
                    pod
                }
                (Some(pod), tracked) if self.has_to_put_back(binding, &pod, is_first) => {
                    self.gone.insert(uid.clone());
                    let known = tracked.map_or(&pod, |tracked| &tracked.pod);
                    // Neither the hook nor OpenKruise asks about it any more.
                    let demand = pod.demand;
                    Arc::new(BoundPod { demand, controlled: false, kruise: None, ..(**known).clone() })
                }
                (Some(pod), tracked) if !access.registry.can_read() => {
                    // Nobody could find its instance later, so it is deregistered. Another replica may have registered it.
                    let had = tracked.filter(|tracked| tracked.service.is_ok()).map(|it| Arc::clone(&it.pod));
                    let may_have = tracked.is_none() && binding.deleting && binding.is_about(&pod);
                    let Some(had) = had.or_else(|| may_have.then(|| Arc::clone(&pod))) else {
                        self.tracked.remove(&uid);
                        continue;
                    };
                    self.gone.insert(uid.clone());
                    let is_gone = [&had, &pod].iter().any(|pod| pod.demand == Demand::Gone);
                    with_demand(&had, if is_gone { Demand::Gone } else { Demand::Left })
                }
                (Some(_), Some(tracked)) => {
                    // It is not selected any more. Its instance is an orphan now, and found in its service.
                    self.services
                        .extend(tracked.service.clone().ok().map(|it| access.registry.canonical(it)));
                    // A list may be older than its last registration. Then the service is read again.
                    let lag = if access.registry.can_list() {
                        Duration::ZERO
                    } else {
                        access.capabilities.list_lag
                    };
                    let until = tracked.in_doubt_until.max(self.shared.index.now() + lag);
                    self.in_doubt_until = self.in_doubt_until.max(until);
                    if tracked.service.is_ok() {
                        self.left.insert(uid.clone());
                    }
                    self.tracked.remove(&uid);
                    self.search();
                    continue;
                }
                (Some(pod), None) if binding.deleting && binding.is_about(&pod) => {
                    // Another replica may have registered it.
                    let service = binding.desired(&pod, &access.cluster).ok().map(|desired| desired.service);
                    self.services.extend(service.map(|service| access.registry.canonical(service)));
                    continue;
                }
                (None, Some(tracked)) => {
                    let next = with_demand(&tracked.pod, Demand::Gone);
                    self.gone.insert(uid.clone());
                    next
                }
                (Some(_), None) => continue,
                (None, None) => {
                    self.left.remove(&uid);
                    continue;
                }
            };
            let Some(tracked) = self.tracked.get_mut(&uid) else {
                let mut tracked = TrackedPod::new(next, binding, access);
                // Another replica may have registered it somewhere else.
                let is_unknown = self.compared.is_none() && binding.mode == BindingMode::Own;
                let now = self.shared.index.now();
                tracked.moved = (is_unknown && access.registry.can_read()).then_some(now);
                // No read shows what another replica has registered.
                tracked.is_in_service =
                    is_first && binding.mode == BindingMode::Own && !access.registry.can_read();
                self.tracked.insert(uid, tracked);
                continue;
            };
            if (respecified || *tracked.pod != *next)
                && let Some(left) = tracked.update(Some(next), &before, binding, access)
            {
                self.leave(uid, left, access);
            }
        }
        self.note_taken_out(binding);
        if !access.registry.can_read() {
            self.leave_to_others(binding, access);
        }
    }

    /// Drops the changes of pods while the binding cannot be used: there may be many. All pods are looked at afterwards.
    pub(super) fn miss_pods(&mut self) {
        self.pod_changes.take();
        self.missed_pods = true;
    }

    /// Notes that a pod has left an instance, which is removed when it has the other one.
    fn leave(&mut self, uid: String, left: Desired, access: &RegistryAccess) {
        let now = self.shared.index.now();
        let mut from = now;
        if access.registry.can_read() {
            from += access.capabilities.list_lag;
            self.services.insert(access.registry.canonical(left.service));
            self.comparison_due = self.comparison_due.min(from + MOVE_PAUSE);
        } else {
            self.orphans.push(Orphan::new(left.service, left.instance, uid.clone()));
        }
        let moved = |tracked: &mut TrackedPod| tracked.moved = Some(from.max(tracked.in_doubt_until));
        self.tracked.entry(uid).and_modify(moved);
    }

    /// Drops the removals of instances that another binding registers, or that another pod has by now because it has got the
    /// address: a registry that cannot be read does not show whose they are.
    fn leave_to_others(&mut self, binding: &Binding, access: &RegistryAccess) {
        let of_pod = |(uid, tracked): (&String, &TrackedPod)| {
            let is_open = matches!(tracked.state, SyncState::Open { .. });
            let wanted = (is_open && tracked.presence == Presence::Released).then_some(tracked)?;
            Some((uid.clone(), wanted.desired(binding, access)?))
        };
        let removals: Vec<(String, Desired)> = self.tracked.iter().filter_map(of_pod).collect();
        if removals.is_empty() && self.orphans.is_empty() {
            return;
        }
        let left = self.orphans.iter().map(|orphan| &orphan.instance.host);
        let hosts = removals.iter().map(|(_, desired)| &desired.instance.host).chain(left).cloned().collect();
        let near = if access.places.may_share() { self.shared.index.pods_at(&hosts) } else { HashMap::new() };
        let (index, namespace, tracked) = (&self.shared.index, &self.key.namespace, &self.tracked);
        let is_of_other = |uid: &str, target: (&ServiceKey, &Instance)| {
            let is_same = |there: Desired| access.is_same(there.target(), target);
            let in_other_binding = |pod: &BoundPod| {
                index.bindings_of(pod).into_iter().any(|other| {
                    (other.key != binding.key && other.mode == BindingMode::Own)
                        && other.spec.registry == binding.spec.registry
                        && other.desired(pod, &access.cluster).is_ok_and(is_same)
                })
            };
            // A pod that is not to be in service yet does not inherit what is registered at its address.
            let in_this_binding = |pod: &BoundPod| {
                let has = |it: &&TrackedPod| !matches!(it.presence, Presence::Released | Presence::Unchanged);
                let found = tracked.get(&pod.uid).filter(has);
                found.and_then(|tracked| tracked.desired(binding, access)).is_some_and(is_same)
            };
            let is_out =
                |pod: &BoundPod| matches!(pod.demand, Demand::Gone | Demand::Lost | Demand::Unchanged);
            let mut others = near.get(&target.1.host).into_iter().flatten().filter(|pod| pod.uid != uid);
            index.pod(namespace, uid).is_some_and(|pod| in_other_binding(&pod))
                || others.any(|pod| in_this_binding(pod) || (!is_out(pod) && in_other_binding(pod)))
        };
        self.orphans.retain(|orphan| !is_of_other(&orphan.uid, (&orphan.service, &orphan.instance)));
        let settled = removals.into_iter().filter(|(uid, desired)| is_of_other(uid, desired.target()));
        for (uid, _) in settled.collect::<Vec<_>>() {
            let now = self.shared.index.now();
            self.tracked.entry(uid).and_modify(|tracked| tracked.leave_to_other(now));
        }
    }

    /// Has the registry searched for instances of this binding: earlier comparisons do not count any more.
    fn search(&mut self) {
        self.compared = None;
        self.comparison_due = Duration::ZERO;
    }

    /// Has changes of the services reported by registries that can.
    pub(super) fn watch_registry(&mut self, access: &RegistryAccess) {
        if !access.registry.can_read() {
            return;
        }
        let current = self.registry_watch.as_ref().filter(|watch| watch.uses(&access.registry));
        if !std::mem::take(&mut self.services_due) && current.is_some() {
            return;
        }
        let services: BTreeSet<&ServiceKey> =
            self.tracked.values().filter_map(|tracked| tracked.service.as_ref().ok()).collect();
        let services: Vec<ServiceKey> = services.into_iter().cloned().collect();
        if !current.is_some_and(|watch| watch.watches(&services)) {
            let watch = RegistryWatch::start(&access.registry, services, &self.registry_changed);
            self.registry_watch = Some(watch);
        }
    }

    /// Forgets the pods that were deleted, or that the binding does not select, and that the registry does not have any more.
    pub(super) fn forget_the_gone(&mut self, access: &RegistryAccess) {
        self.note_put_back();
        let mut is_unknown = false;
        self.gone.retain(|uid| {
            let Some(tracked) = self.tracked.get(uid) else { return false };
            let is_taken_out = self.taken_out.contains(uid) && tracked.pod.demand != Demand::Gone;
            let is_clean = (!is_taken_out || tracked.service.is_err())
                && tracked.moved.is_none()
                && (tracked.presence == Presence::Unchanged
                    || tracked.service.is_err()
                    || matches!(tracked.state, SyncState::Shown { .. }));
            if is_clean {
                // It may have one nevertheless, which its mark shows.
                is_unknown |= tracked.service.is_err();
                self.tracked.remove(uid);
            }
            !is_clean
        });
        if is_unknown && access.registry.can_read() {
            self.search();
        }
        let (index, namespace) = (&self.shared.index, &self.key.namespace);
        self.released.retain(|uid, _| {
            index.pod(namespace, uid).is_some() || self.orphans.iter().any(|orphan| orphan.uid == *uid)
        });
    }

    /// Checks that the ClusterRegistry of the binding allows the service of a pod.
    pub(super) fn allowed(&self, binding: &Binding, uid: &str) -> Result<(), String> {
        let Some(name) = &binding.spec.registry.cluster_registry else { return Ok(()) };
        let registry = self.shared.index.registry(name);
        let registry = registry.ok_or_else(|| format!("ClusterRegistry {name} does not exist"))?;
        let Some(tracked) = self.tracked.get(uid) else { return Ok(()) };
        let Ok(service) = &tracked.service else { return Ok(()) };
        // What was registered before may always be removed.
        if tracked.presence != Presence::InService {
            return Ok(());
        }
        registry.check_use(&self.key.namespace, &service.name).map_err(|error| error.to_string())
    }
}

/// Returns a pod that is gone, or not selected any more, with this demand. OpenKruise does not ask about it any more.
fn with_demand(pod: &BoundPod, demand: Demand) -> Arc<BoundPod> {
    Arc::new(BoundPod { demand, kruise: None, ..pod.clone() })
}
