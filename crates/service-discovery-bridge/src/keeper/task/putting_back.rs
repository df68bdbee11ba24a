//! Applications that register themselves, and that an operation has taken out of service. When their pods leave the
//! binding meanwhile, they are put back into service after the operation: nobody else would do that.

use podward_api::discovery_binding::BindingMode;

use super::super::tracked::SyncState;
use super::BindingTask;
use crate::model::{Binding, BoundPod, Demand, Presence};

impl BindingTask {
    /// Notes the pods that are taken out of service.
    pub(super) fn note_taken_out(&mut self, binding: &Binding) {
        if binding.mode != BindingMode::Steer {
            self.taken_out.clear();
            return;
        }
        let out = self.tracked.iter().filter(|(_, tracked)| tracked.presence == Presence::OutOfService);
        self.taken_out.extend(out.map(|(uid, _)| uid.clone()));
    }

    /// Forgets those that the registry shows in service again.
    pub(super) fn note_put_back(&mut self) {
        let is_back = |uid: &str| {
            self.tracked.get(uid).is_none_or(|tracked| {
                tracked.presence == Presence::InService && matches!(tracked.state, SyncState::Shown { .. })
            })
        };
        self.taken_out.retain(|uid| !is_back(uid));
    }

    /// Returns whether a pod that the binding does not select any more has to be put back into service. `is_first`:
    /// another replica may have taken it out of service.
    pub(super) fn has_to_put_back(&self, binding: &Binding, pod: &BoundPod, is_first: bool) -> bool {
        let is_out = matches!(pod.demand, Demand::OutForUpdate | Demand::OutForDelete);
        binding.mode == BindingMode::Steer
            && pod.demand != Demand::Gone
            && (self.taken_out.contains(&pod.uid) || (is_first && is_out && binding.is_about(pod)))
    }

    /// Returns whether the binding, which is being deleted, has pods that have to be put back into service.
    pub(super) fn has_taken_out(&self, binding: &Binding) -> bool {
        let (index, namespace, is_first) = (&self.shared.index, &self.key.namespace, self.known.is_none());
        let pods = index.pod_uids(namespace).into_iter().filter_map(|uid| index.pod(namespace, &uid));
        pods.into_iter().any(|pod| self.has_to_put_back(binding, &pod, is_first))
    }
}
