//! The pods of a binding.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use podward_registries::ServiceKey;

use super::super::registry_watch::RegistryWatch;
use super::super::tracked::{SyncState, TrackedPod};
use super::BindingTask;
use crate::model::{Binding, BoundPod, Demand, Presence};
use crate::sync::RegistryAccess;

impl BindingTask {
    /// Takes the pods that have changed, or all of them if the binding has.
    pub(super) fn observe(&mut self, binding: &Binding, access: &RegistryAccess) {
        let mut changed = self.pod_changes.take();
        let respecified = self.spec_changed(binding);
        if respecified {
            changed.extend(self.shared.index.pod_uids(&self.key.namespace));
            changed.extend(self.tracked.keys().cloned());
        }
        self.services_due |= !changed.is_empty();
        for uid in changed {
            let pod = self.shared.index.pod(&self.key.namespace, &uid);
            match (pod, self.tracked.get_mut(&uid)) {
                (Some(pod), tracked) if binding.selects(&pod) => {
                    self.gone.remove(&uid);
                    match tracked {
                        Some(tracked) if !respecified && Arc::ptr_eq(&tracked.pod, &pod) => {}
                        Some(tracked) => tracked.update(Some(pod), binding, access),
                        None => drop(self.tracked.insert(uid, TrackedPod::new(pod, binding, access))),
                    }
                }
                (Some(_), Some(_)) => {
                    // It is not selected any more. Its instance is an orphan now.
                    self.tracked.remove(&uid);
                    self.comparison_due = Duration::ZERO;
                }
                (None, Some(tracked)) => {
                    self.gone.insert(uid);
                    let is_known = tracked.pod.demand == Demand::Gone;
                    let pod = BoundPod { demand: Demand::Gone, ..(*tracked.pod).clone() };
                    if respecified || !is_known {
                        tracked.update(Some(Arc::new(pod)), binding, access);
                    }
                }
                (_, None) => {}
            }
        }
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

    /// Forgets the pods that were deleted and that the registry does not have any more.
    pub(super) fn forget_the_gone(&mut self) {
        self.gone.retain(|uid| {
            let Some(tracked) = self.tracked.get(uid) else { return false };
            let is_clean = tracked.presence == Presence::Unchanged
                || tracked.service.is_err()
                || matches!(tracked.state, SyncState::Shown { .. });
            if is_clean {
                self.tracked.remove(uid);
            }
            !is_clean
        });
        let (index, namespace) = (&self.shared.index, &self.key.namespace);
        self.released.retain(|uid, _| {
            index.pod(namespace, uid).is_some() || self.orphans.iter().any(|orphan| orphan.uid == *uid)
        });
    }

    /// Returns whether the binding has changed since the last call.
    fn spec_changed(&mut self, binding: &Binding) -> bool {
        let known = Some((binding.generation, binding.deleting));
        let changed = self.known != known;
        self.known = known;
        changed
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
