//! The next step for one instance at one address.

use podward_api::discovery_binding::{BindingMode, ForeignChanges};
use podward_registries::{Capabilities, Change, Instance, Owner};

use super::binding::Desired;
use super::presence::Presence;

/// The next step for one instance at one address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// The address shows what it should.
    Shown,
    /// The address shows the instance in the wanted state, with changes of others that are only reported.
    Drifted,
    /// The change is to be written.
    Write(Change),
    /// Nothing can be done until somebody else acts. The text says who and what.
    Wait(String),
}

/// Returns the next step, where an address shows `found` as the instance of the pod.
///
/// # Guarantees
/// - Own: an instance without the mark of this binding is never changed, and one that is marked for another pod only while
///   its address belongs to this pod.
/// - Steer: an instance is never registered or deregistered.
pub(crate) fn decide(
    mode: BindingMode,
    policy: ForeignChanges,
    presence: Presence,
    desired: &Desired,
    capabilities: &Capabilities,
    found: Option<&Instance>,
) -> Decision {
    match mode {
        BindingMode::Own => own(policy, presence, desired, capabilities, found),
        BindingMode::Steer => steer(presence, desired, found),
    }
}

/// As [`decide`], where an address shows several instances of the pod: an application that has started again may have
/// registered itself once more, by another id.
pub(crate) fn decide_all(
    mode: BindingMode,
    policy: ForeignChanges,
    presence: Presence,
    desired: &Desired,
    capabilities: &Capabilities,
    found: &[Instance],
) -> Vec<Decision> {
    let next = |found| decide(mode, policy, presence, desired, capabilities, found);
    if found.is_empty() {
        return vec![next(None)];
    }
    // Nobody waits for one that is not healthy beside another one, which is in service or put into it.
    let is_served = presence == Presence::InService && found.iter().any(|found| !found.may_return);
    found.iter().filter(|found| !(is_served && found.may_return)).map(|found| next(Some(found))).collect()
}

fn own(
    policy: ForeignChanges,
    presence: Presence,
    desired: &Desired,
    capabilities: &Capabilities,
    found: Option<&Instance>,
) -> Decision {
    let Desired { service, instance, owner } = desired;
    let whose = found.map(|found| whose(owner, found));
    match (presence, found, whose) {
        (Presence::Unchanged, ..)
        | (Presence::OutOfService | Presence::Absent | Presence::Released, None, _)
        | (Presence::Released, Some(_), Some(Whose::OtherPod | Whose::Foreign)) => Decision::Shown,
        (Presence::InService, Some(found), Some(Whose::Foreign)) => Decision::Wait(format!(
            "{}:{} of service {} is registered by somebody else{}; deregister it there, or change the binding",
            found.host,
            found.port,
            service.name,
            found.owner().map(|owner| of_other(&owner)).unwrap_or_default()
        )),
        // The address belongs to the pod, so requests would still reach it.
        (Presence::OutOfService | Presence::Absent, Some(found), Some(Whose::Foreign))
            if capabilities.by_address && !found.is_held_out() =>
        {
            Decision::Wait(format!(
                "{}:{} of service {} is registered by somebody else{}, so requests still arrive; deregister it there",
                found.host,
                found.port,
                service.name,
                found.owner().map(|owner| of_other(&owner)).unwrap_or_default()
            ))
        }
        (Presence::OutOfService | Presence::Absent, Some(_), Some(Whose::Foreign)) => Decision::Shown,
        (Presence::InService, None, _) => {
            Decision::Write(Change::Register(service.clone(), instance.clone()))
        }
        (Presence::InService, Some(found), Some(Whose::OtherPod)) => {
            Decision::Write(Change::Register(service.clone(), replacing(instance, found)))
        }
        (Presence::InService, Some(found), _) => match (is_as(instance, found, capabilities), policy) {
            (true, _) if found.in_service => Decision::Shown,
            (true, _) => Decision::Write(Change::SetInService(service.clone(), with_service(found, true))),
            (false, ForeignChanges::Report) if found.in_service => Decision::Drifted,
            (false, _) => Decision::Write(Change::Register(service.clone(), replacing(instance, found))),
        },
        // The pod of another mark runs at this address no more, because the address belongs to this pod.
        (Presence::Absent | Presence::Released, Some(found), _) => {
            Decision::Write(Change::Deregister(service.clone(), found.clone()))
        }
        (Presence::OutOfService, Some(found), _) if !found.is_held_out() => {
            Decision::Write(Change::SetInService(service.clone(), with_service(found, false)))
        }
        (Presence::OutOfService, Some(_), _) => Decision::Shown,
    }
}

fn steer(presence: Presence, desired: &Desired, found: Option<&Instance>) -> Decision {
    let Desired { service, instance, .. } = desired;
    let wanted = match presence {
        Presence::Unchanged => return Decision::Shown,
        Presence::InService => true,
        Presence::OutOfService | Presence::Absent | Presence::Released => false,
    };
    match found {
        Some(found) if wanted && found.in_service => Decision::Shown,
        // One that is only not healthy gets requests again when its health returns, during the operation.
        Some(found) if !wanted && found.is_held_out() => Decision::Shown,
        Some(found) if wanted && found.may_return => Decision::Wait(format!(
            "{}:{} is registered, but not healthy, as an instance of service {}; it is in service when its health returns",
            found.host, found.port, service.name
        )),
        Some(found) => Decision::Write(Change::SetInService(service.clone(), with_service(found, wanted))),
        None if wanted => Decision::Wait(format!(
            "the application has not registered {}:{} as an instance of service {} yet",
            instance.host, instance.port, service.name
        )),
        None => Decision::Shown,
    }
}

/// For whom an instance is registered.
enum Whose {
    ThisPod,
    /// Another pod, by this binding.
    OtherPod,
    Foreign,
}

fn whose(owner: &Owner, found: &Instance) -> Whose {
    if owner.is_in(&found.metadata) {
        return Whose::ThisPod;
    }
    match Owner::marks(&found.metadata) {
        Some([cluster, namespace, binding, ..])
            if (cluster, namespace, binding) == (&owner.cluster, &owner.namespace, &owner.binding) =>
        {
            Whose::OtherPod
        }
        _ => Whose::Foreign,
    }
}

fn of_other(owner: &Owner) -> String {
    format!(
        " (cluster {}, DiscoveryBinding {}/{}, pod {})",
        owner.cluster, owner.namespace, owner.binding, owner.pod
    )
}

/// Returns whether an instance has what the binding states. Others may add metadata: servers do.
fn is_as(wanted: &Instance, found: &Instance, capabilities: &Capabilities) -> bool {
    (&wanted.host, wanted.port) == (&found.host, found.port)
        && (wanted.cluster.is_empty() || wanted.cluster == found.cluster)
        && (!capabilities.weights || (wanted.weight - found.weight).abs() < 1e-6)
        && wanted.metadata.iter().all(|(key, value)| found.metadata.get(key) == Some(value))
}

fn replacing(wanted: &Instance, found: &Instance) -> Instance {
    Instance { version: found.version, ..wanted.clone() }
}

fn with_service(found: &Instance, in_service: bool) -> Instance {
    Instance { in_service, ..found.clone() }
}

#[cfg(test)]
mod tests;
