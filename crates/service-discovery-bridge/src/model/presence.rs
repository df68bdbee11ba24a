//! What the registry should show of a pod.

use podward_api::discovery_binding::{BindingMode, Removal};

use super::binding::Binding;
use super::bound_pod::{BoundPod, Demand};

/// What the registry should show of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The instance, in service.
    InService,
    /// No instance in service: none, or one that is out of service.
    OutOfService,
    /// No instance at the address of the pod.
    Absent,
    /// No instance of the pod. Its address may belong to another pod.
    Released,
    /// What it shows.
    Unchanged,
}

impl Presence {
    /// Returns whether the registry may show the instance in service.
    pub(crate) fn adds(self) -> bool {
        matches!(self, Presence::InService | Presence::Unchanged)
    }
}

/// Returns what the registry should show of a pod. `asked` is true if the hook was asked to add the pod to traffic.
/// `stores_out_of_service` is [`can_take_out_of_service`](podward_registries::Registry::can_take_out_of_service).
///
/// A pod that has opted in is registered only after the hook was asked to, so that no traffic reaches it before
/// somebody waits for its removal.
pub(crate) fn presence(
    binding: &Binding,
    pod: &BoundPod,
    asked: bool,
    stores_out_of_service: bool,
) -> Presence {
    let may_enter = !pod.controlled || asked || pod.finalizers.contains(&binding.finalizer);
    let wanted = match (binding.mode, pod.demand) {
        (_, Demand::Unchanged) => Presence::Unchanged,
        (_, Demand::InService) if may_enter => Presence::InService,
        (_, Demand::InService) => Presence::Unchanged,
        // An application of its own deregisters itself, and knows whether it is ready.
        (BindingMode::Steer, Demand::Gone | Demand::Lost | Demand::Left | Demand::NotReady) => {
            Presence::Unchanged
        }
        (BindingMode::Steer, Demand::OutForUpdate | Demand::OutForDelete) => Presence::OutOfService,
        (BindingMode::Own, Demand::Gone | Demand::Lost | Demand::Left) => Presence::Released,
        (BindingMode::Own, Demand::NotReady) => Presence::OutOfService,
        (BindingMode::Own, Demand::OutForUpdate) => of_removal(binding.phases.before_update),
        (BindingMode::Own, Demand::OutForDelete) => of_removal(binding.phases.before_delete),
    };
    match wanted {
        Presence::OutOfService if !stores_out_of_service && binding.mode == BindingMode::Own => {
            Presence::Absent
        }
        wanted => wanted,
    }
}

fn of_removal(removal: Removal) -> Presence {
    match removal {
        Removal::TakeOutOfService => Presence::OutOfService,
        Removal::Deregister => Presence::Absent,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::binding::tests::{binding, pod};
    use super::*;

    #[test]
    fn a_pod_enters_only_after_the_hook_was_asked() {
        let binding = binding(json!({}));
        let mut pod = pod("u");
        assert_eq!(presence(&binding, &pod, false, true), Presence::InService);
        pod.controlled = true;
        assert_eq!(presence(&binding, &pod, false, true), Presence::Unchanged);
        assert_eq!(presence(&binding, &pod, true, true), Presence::InService);
        pod.finalizers = vec![binding.finalizer.clone()];
        assert_eq!(presence(&binding, &pod, false, true), Presence::InService);
    }

    #[test]
    fn removals() {
        let (own, steer) = (binding(json!({})), binding(json!({"mode": "Steer"})));
        let at = |binding: &Binding, demand, stores| {
            presence(binding, &BoundPod { demand, ..pod("u") }, true, stores)
        };
        assert_eq!(at(&own, Demand::OutForUpdate, true), Presence::OutOfService);
        assert_eq!(at(&own, Demand::OutForUpdate, false), Presence::Absent);
        assert_eq!(at(&own, Demand::OutForDelete, true), Presence::Absent);
        assert_eq!(at(&own, Demand::NotReady, true), Presence::OutOfService);
        assert_eq!(at(&own, Demand::Gone, true), Presence::Released);
        assert_eq!(at(&own, Demand::Lost, true), Presence::Released);
        assert_eq!(at(&own, Demand::Left, true), Presence::Released);
        assert_eq!(at(&own, Demand::Unchanged, true), Presence::Unchanged);
        assert_eq!(at(&steer, Demand::OutForDelete, true), Presence::OutOfService);
        for demand in [Demand::Gone, Demand::Lost, Demand::NotReady, Demand::Unchanged] {
            assert_eq!(at(&steer, demand, true), Presence::Unchanged, "{demand:?}");
        }
    }
}
