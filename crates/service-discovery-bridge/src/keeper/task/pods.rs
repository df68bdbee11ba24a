//! The pods of a binding.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::super::tracked::{SyncState, TrackedPod};
use super::BindingTask;
use crate::model::{Binding, BoundPod, Demand, Presence};
use crate::sync::RegistryAccess;

impl BindingTask {
    /// Takes what the index knows about the pods.
    pub(super) fn observe(&mut self, binding: &Binding, access: &RegistryAccess) {
        let mut present = HashSet::new();
        let mut left = false;
        for pod in self.shared.index.pods(&self.key.namespace) {
            if !binding.selects(&pod) {
                continue;
            }
            present.insert(pod.uid.clone());
            match self.tracked.get_mut(&pod.uid) {
                Some(tracked) if Arc::ptr_eq(&tracked.pod, &pod) => {}
                Some(tracked) => tracked.update(Some(pod), binding, access),
                None => {
                    let uid = pod.uid.clone();
                    self.tracked.insert(uid, TrackedPod::new(pod, binding, access));
                }
            }
        }
        let gone: Vec<String> = self.tracked.keys().filter(|uid| !present.contains(*uid)).cloned().collect();
        for uid in gone {
            let still_exists = self.shared.index.pods(&self.key.namespace).iter().any(|pod| pod.uid == uid);
            let Some(tracked) = self.tracked.get_mut(&uid) else { continue };
            if still_exists {
                // It is not selected any more. Its instance is an orphan now.
                self.tracked.remove(&uid);
                left = true;
            } else if tracked.pod.demand != Demand::Gone {
                let pod = BoundPod { demand: Demand::Gone, ..(*tracked.pod).clone() };
                tracked.update(Some(Arc::new(pod)), binding, access);
            }
        }
        if left {
            self.comparison_due = Duration::ZERO;
        }
        if self.spec_changed(binding) {
            for tracked in self.tracked.values_mut() {
                tracked.update(None, binding, access);
            }
        }
    }

    /// Forgets the pods that were deleted and that the registry does not have any more.
    pub(super) fn forget_the_gone(&mut self, binding: &Binding) {
        let index = &self.shared.index;
        let present: HashSet<String> =
            index.pods(&self.key.namespace).into_iter().map(|pod| pod.uid.clone()).collect();
        self.tracked.retain(|uid, tracked| {
            let is_clean = tracked.presence == Presence::Unchanged
                || tracked.desired.is_err()
                || matches!(tracked.state, SyncState::Shown { .. });
            present.contains(uid) || !is_clean
        });
        self.released
            .retain(|uid| present.contains(uid) || self.orphans.iter().any(|orphan| orphan.uid == *uid));
        let _ = binding;
    }

    /// Returns whether the binding has changed since the last call.
    fn spec_changed(&mut self, binding: &Binding) -> bool {
        let changed = self.generation != binding.generation;
        self.generation = binding.generation;
        changed
    }

    /// Checks that the ClusterRegistry of the binding allows the service of a pod.
    pub(super) fn allowed(&self, binding: &Binding, uid: &str) -> Result<(), String> {
        let Some(name) = &binding.spec.registry.cluster_registry else { return Ok(()) };
        let registry = self.shared.index.registry(name);
        let registry = registry.ok_or_else(|| format!("ClusterRegistry {name} does not exist"))?;
        let Some(tracked) = self.tracked.get(uid) else { return Ok(()) };
        let Ok(desired) = &tracked.desired else { return Ok(()) };
        // What was registered before may always be removed.
        if tracked.presence != Presence::InService {
            return Ok(());
        }
        registry.check_use(&self.key.namespace, &desired.service.name).map_err(|error| error.to_string())
    }
}
