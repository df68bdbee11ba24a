use proptest::prelude::*;
use serde_json::json;

use super::super::binding::tests::{binding, pod};
use super::*;

fn capabilities(by_address: bool) -> Capabilities {
    Capabilities {
        own: true,
        steer: true,
        by_address,
        weights: true,
        renewal: None,
        batch: 1,
        list_lag: std::time::Duration::ZERO,
        cache: std::time::Duration::ZERO,
    }
}

fn desired(uid: &str) -> Desired {
    binding(json!({})).desired(&pod(uid), "c1").unwrap()
}

/// Does what a registry does with a change.
fn apply(found: Option<Instance>, change: Change) -> Option<Instance> {
    match change {
        Change::Register(_, instance) => Some(instance),
        Change::SetInService(_, wanted) => {
            found.map(|found| Instance { in_service: wanted.in_service, may_return: false, ..found })
        }
        Change::Deregister(..) => None,
    }
}

#[test]
fn an_own_instance_is_registered_and_repaired() {
    let desired = desired("u1");
    let all = capabilities(false);
    let next = |policy, found: Option<&Instance>| {
        decide(BindingMode::Own, policy, Presence::InService, &desired, &all, found)
    };
    let repair = ForeignChanges::Repair;
    assert!(matches!(next(repair, None), Decision::Write(Change::Register(..))));
    assert_eq!(next(repair, Some(&desired.instance)), Decision::Shown);
    let edited = Instance {
        weight: 7.0,
        version: Some(podward_registries::InstanceVersion(3)),
        ..desired.instance.clone()
    };
    match next(repair, Some(&edited)) {
        Decision::Write(Change::Register(_, instance)) => {
            assert_eq!(instance, Instance { version: edited.version, ..desired.instance.clone() });
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(next(ForeignChanges::Report, Some(&edited)), Decision::Drifted);
    let out = Instance { in_service: false, ..desired.instance.clone() };
    assert!(matches!(next(ForeignChanges::Report, Some(&out)), Decision::Write(Change::SetInService(..))));
}

#[test]
fn the_address_of_a_pod_that_has_ended_may_belong_to_another_pod() {
    let (old, new) = (desired("u1"), desired("u2"));
    let all = capabilities(true);
    let own = |presence, desired: &Desired, found: &Instance| {
        decide(BindingMode::Own, ForeignChanges::Repair, presence, desired, &all, Some(found))
    };
    assert_eq!(own(Presence::Released, &old, &new.instance), Decision::Shown);
    assert!(matches!(own(Presence::Released, &old, &old.instance), Decision::Write(Change::Deregister(..))));
    // The new pod takes the place of the old one.
    assert!(matches!(own(Presence::InService, &new, &old.instance), Decision::Write(Change::Register(..))));
    assert!(matches!(own(Presence::Absent, &new, &old.instance), Decision::Write(Change::Deregister(..))));
}

#[test]
fn two_clusters_leave_each_other_alone() {
    let ours = desired("u1");
    let theirs = binding(json!({})).desired(&pod("u9"), "c2").unwrap().instance;
    let all = capabilities(true);
    for presence in [Presence::InService, Presence::OutOfService, Presence::Absent] {
        let decision = decide(BindingMode::Own, ForeignChanges::Repair, presence, &ours, &all, Some(&theirs));
        assert!(matches!(&decision, Decision::Wait(why) if why.contains("cluster c2")), "{decision:?}");
    }
}

fn instances() -> impl Strategy<Value = Option<Instance>> {
    let owner = prop_oneof![Just(Some("u1")), Just(Some("u2")), Just(None)];
    let cluster = prop_oneof![Just("c1"), Just("c2")];
    (owner, cluster, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(uid, cluster, in_service, is_healthy, edited, exists)| {
            exists.then(|| {
                let of = binding(json!({})).desired(&pod(uid.unwrap_or("u1")), cluster).unwrap();
                let may_return = !in_service && !is_healthy;
                let mut instance = Instance { in_service, may_return, ..of.instance };
                if uid.is_none() {
                    instance.metadata.clear();
                }
                if edited {
                    instance.weight = 5.0;
                }
                instance
            })
        },
    )
}

proptest! {
    /// Steps lead to the wanted state in at most two writes, or wait; instances of others are never written; a steered
    /// instance is never registered or deregistered.
    #[test]
    fn steps_lead_to_the_wanted_state(
        start in instances(),
        own in any::<bool>(),
        presence in prop_oneof![
            Just(Presence::InService), Just(Presence::OutOfService), Just(Presence::Absent),
            Just(Presence::Released), Just(Presence::Unchanged),
        ],
        by_address in any::<bool>(),
    ) {
        let desired = desired("u1");
        let mode = if own { BindingMode::Own } else { BindingMode::Steer };
        let all = capabilities(by_address);
        let mut found = start.clone();
        for step in 0.. {
            prop_assert!(step < 3, "no end: {found:?}");
            match decide(mode, ForeignChanges::Repair, presence, &desired, &all, found.as_ref()) {
                Decision::Write(change) => {
                    if own {
                        let mark = found.as_ref().and_then(Instance::owner);
                        prop_assert!(found.is_none() || mark.is_some_and(|mark| mark.cluster == "c1"));
                    } else {
                        prop_assert!(matches!(change, Change::SetInService(..)));
                    }
                    found = apply(found, change);
                }
                Decision::Drifted => prop_assert!(false, "the policy is to repair"),
                Decision::Wait(why) => {
                    // Somebody else has to act: who has registered the address, or the application that has to register.
                    let is_served = match presence {
                        Presence::InService => true,
                        Presence::OutOfService | Presence::Absent => {
                            by_address && found.as_ref().is_some_and(|found| !found.is_held_out())
                        }
                        Presence::Released | Presence::Unchanged => false,
                    };
                    let is_foreign = |found: &Instance| found.owner().is_none_or(|owner| owner.cluster != "c1");
                    let waits = match own {
                        true => found.as_ref().is_some_and(is_foreign) && is_served,
                        false => presence == Presence::InService && found.as_ref().is_none_or(|it| it.may_return),
                    };
                    prop_assert!(waits, "{why}: {found:?}");
                    break;
                }
                Decision::Shown => {
                    let in_service = found.as_ref().is_some_and(|found| found.in_service);
                    let is_out = found.as_ref().is_none_or(Instance::is_held_out);
                    let ours = found.as_ref().and_then(Instance::owner) == Some(desired.owner.clone());
                    match presence {
                        Presence::InService => prop_assert!(in_service && (ours || !own)),
                        Presence::OutOfService | Presence::Absent => prop_assert!(is_out || (own && !by_address)),
                        Presence::Released => prop_assert!(!in_service || !ours),
                        Presence::Unchanged => prop_assert_eq!(&found, &start),
                    }
                    break;
                }
            }
        }
    }
}
