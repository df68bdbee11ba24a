//! Pods that leave a binding, and bindings that are deleted.

use podward_proto::v1::{EvidenceLevel, Phase};

use super::*;
use crate::model::Demand;

fn blind() -> Memory {
    Memory { reads: false, ..Memory::default() }
}

impl Fixture {
    fn delete(&mut self) {
        Arc::make_mut(&mut self.binding).deleting = true;
    }

    /// Does what is due, and returns whether the finalizer of a deleted binding would be removed.
    async fn finishes(&mut self) -> bool {
        self.round().await;
        self.task.is_finished(&self.binding)
    }

    /// Adds another binding with the same spec.
    fn put_other(&self, namespace: &str) {
        let other = json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
            "metadata": {"namespace": namespace, "name": "other"}, "spec": self.binding.spec,
        });
        let key = BindingKey { namespace: namespace.to_owned(), name: "other".to_owned() };
        self.task.shared.index.put_binding(key, serde_json::from_value(other).unwrap());
    }

    fn is_empty(&self) -> bool {
        self.registry.shown("web").is_empty()
    }
}

fn unselected(number: u8) -> BoundPod {
    let mut pod = pod(number);
    pod.labels.insert("app".to_owned(), "debug".to_owned());
    pod
}

#[tokio::test]
async fn the_finalizer_stays_until_a_read_shows_no_instance() {
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.registry.refuse(Some("deregister"));
    fixture.delete();
    for _ in 0..3 {
        assert!(!fixture.finishes().await);
    }
    let problem = fixture.task.removal_problem.clone().unwrap();
    assert!(problem.contains("it is read-only"), "{problem}");

    fixture.registry.refuse(None);
    assert!(!fixture.finishes().await, "it was written, and not read");
    assert!(fixture.is_empty());
    let why = fixture.task.remainder(&fixture.binding).unwrap();
    assert!(why.contains("and 1 are left"), "{why}");
    assert!(fixture.finishes().await);
    assert_eq!(fixture.task.remainder(&fixture.binding), None);
}

#[tokio::test]
async fn the_finalizer_stays_for_a_pod_that_is_gone() {
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.registry.refuse(Some("deregister"));
    fixture.task.shared.index.remove_pod("shop", &pod(1).uid);
    fixture.round().await;
    fixture.delete();
    assert!(!fixture.finishes().await);
    fixture.registry.refuse(None);
    fixture.rounds().await;
    assert!(fixture.finishes().await && fixture.is_empty());
}

#[tokio::test]
async fn a_binding_of_a_registry_that_cannot_be_read_is_deleted_after_its_instances() {
    let mut fixture = Fixture::new(blind(), json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    assert!(!fixture.is_empty());
    fixture.registry.refuse(Some("deregister"));
    fixture.delete();
    for _ in 0..3 {
        assert!(!fixture.finishes().await);
    }
    fixture.registry.refuse(None);
    assert!(fixture.finishes().await && fixture.is_empty());
}

#[tokio::test]
async fn another_replica_deletes_a_binding_of_a_registry_that_cannot_be_read() {
    let mut fixture = Fixture::new(blind(), json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    let index = Arc::clone(&fixture.task.shared.index);
    fixture.replace_task(Shared { index, ..shared() });
    fixture.delete();
    assert!(fixture.finishes().await && fixture.is_empty());
}

#[tokio::test]
async fn a_pod_that_leaves_is_deregistered_from_a_registry_that_cannot_be_read() {
    let mut fixture = Fixture::new(blind(), json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.registry.refuse(Some("deregister"));
    fixture.put(unselected(1));
    assert!(fixture.ask(Phase::Release, &unselected(1)).await.is_err());
    assert!(!fixture.is_empty());
    fixture.registry.refuse(None);
    assert_eq!(fixture.ask(Phase::Release, &unselected(1)).await, Ok(EvidenceLevel::Assumed));
    assert!(fixture.is_empty() && fixture.task.tracked.is_empty());
    assert_eq!(fixture.ask(Phase::Release, &unselected(1)).await, Ok(EvidenceLevel::Assumed));
}

#[tokio::test]
async fn pods_that_leave_a_registry_that_cannot_be_read_are_limited() {
    let mut fixture = Fixture::new(blind(), json!({}));
    (1..=4).for_each(|number| fixture.put(pod(number)));
    fixture.rounds().await;
    (1..=4).for_each(|number| fixture.put(unselected(number)));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web").len(), 4);
    let held = fixture.task.held.clone().unwrap();
    assert!(held.reason.contains("belong to no pod that the binding selects"), "{}", held.reason);
    assert_eq!(fixture.ask(Phase::Release, &unselected(1)).await, Ok(EvidenceLevel::Assumed));
    assert_eq!(fixture.registry.shown("web").len(), 3, "somebody has asked for it");
    fixture.delete();
    assert!(fixture.finishes().await && fixture.is_empty());
}

#[tokio::test]
async fn an_instance_that_another_binding_registers_stays() {
    let mut fixture = Fixture::new(blind(), json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.put_other("shop");
    fixture.delete();
    assert!(fixture.finishes().await);
    assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
}

/// Returns a pod that has got the address of pod 1.
fn successor() -> BoundPod {
    BoundPod { ip: pod(1).ip, ..pod(2) }
}

/// The end of a pod does not deregister the pod that has its address by then.
#[tokio::test]
async fn an_address_that_another_pod_has_got_stays_registered_where_nothing_can_be_read() {
    for (is_deleted, is_other_replica) in [(false, false), (true, false), (false, true)] {
        let mut fixture = Fixture::new(Memory { by_address: true, ..blind() }, json!({}));
        fixture.put(pod(1));
        fixture.rounds().await;
        fixture.registry.refuse(Some("deregister"));
        fixture.put(BoundPod { demand: Demand::Gone, ..pod(1) });
        if is_deleted {
            fixture.task.shared.index.remove_pod("shop", &pod(1).uid);
        }
        fixture.rounds().await;
        fixture.put(successor());
        if is_other_replica {
            let index = Arc::clone(&fixture.task.shared.index);
            fixture.replace_task(Shared { index, ..shared() });
        }
        fixture.rounds().await;
        fixture.registry.refuse(None);
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"], "{is_deleted} {is_other_replica}");
        assert_eq!(fixture.task.tracked.contains_key(&pod(1).uid), !is_deleted);
        fixture.put(BoundPod { demand: Demand::Gone, ..successor() });
        fixture.rounds().await;
        assert!(fixture.is_empty());
    }
}

/// What a pod that is gone has left at an address is no instance of a pod that is not to be in service yet.
#[tokio::test]
async fn an_address_that_a_pod_has_got_without_being_registered_is_deregistered() {
    let mut fixture = Fixture::new(Memory { by_address: true, ..blind() }, json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.put(BoundPod { demand: Demand::Gone, ..pod(1) });
    fixture.put(BoundPod { controlled: true, ..successor() });
    fixture.rounds().await;
    assert!(fixture.is_empty());
}

/// The other pod has moved, is not selected any more, or belongs to another binding.
#[tokio::test]
async fn an_address_that_a_pod_has_left_stays_registered_for_the_pod_that_has_got_it() {
    let unselected = BoundPod { ip: "10.0.0.9".to_owned(), ..unselected(1) };
    for next in [BoundPod { ip: "10.0.0.9".to_owned(), ..pod(1) }, unselected] {
        let mut fixture = Fixture::new(Memory { by_address: true, ..blind() }, json!({}));
        fixture.put(pod(1));
        fixture.rounds().await;
        fixture.registry.refuse(Some("deregister"));
        fixture.put(next);
        fixture.rounds().await;
        fixture.put(successor());
        fixture.rounds().await;
        fixture.registry.refuse(None);
        fixture.rounds().await;
        let shown = fixture.registry.shown("web");
        assert!(shown.contains(&"10.0.0.1:8080".to_owned()), "{shown:?}");
    }
}

#[tokio::test]
async fn an_address_that_a_pod_of_another_namespace_has_got_stays_registered() {
    let mut fixture = Fixture::new(Memory { by_address: true, ..blind() }, json!({}));
    fixture.put_other("bank");
    fixture.put(BoundPod { demand: Demand::Gone, ..pod(1) });
    fixture.put(BoundPod { namespace: "bank".to_owned(), ..successor() });
    fixture.rounds().await;
    assert_eq!(fixture.registry.written(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_is_not_released_while_its_instance_cannot_be_removed() {
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.registry.refuse(Some("deregister"));
    fixture.put(unselected(1));
    let answer = fixture.ask(Phase::Release, &unselected(1)).await;
    assert!(answer.is_err() && !fixture.is_empty(), "{answer:?}");
    fixture.registry.refuse(None);
    assert_eq!(fixture.ask(Phase::Release, &unselected(1)).await, Ok(EvidenceLevel::Proven));
    assert!(fixture.is_empty());
}

#[tokio::test]
async fn every_service_of_a_deleted_binding_is_read() {
    let spec = json!({"service": {"name": "${pod.name}"}});
    for is_other_replica in [false, true] {
        let mut fixture = Fixture::new(Memory::default(), spec.clone());
        fixture.rounds().await;
        fixture.put(pod(1));
        fixture.task.comparison_due = Duration::MAX;
        fixture.task.observe(&fixture.binding, &fixture.access);
        fixture.task.work(&fixture.binding, &fixture.access).await;
        assert_eq!(fixture.registry.shown("web-1"), ["10.0.0.1:8080"], "no comparison has found it");
        if is_other_replica {
            let index = Arc::clone(&fixture.task.shared.index);
            fixture.replace_task(Shared { index, ..shared() });
        }
        fixture.delete();
        assert!(!fixture.finishes().await);
        assert!(fixture.finishes().await);
        assert_eq!(fixture.registry.shown("web-1"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_removal_that_is_tried_again_counts_once() {
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    (1..=4).for_each(|number| fixture.put(pod(number)));
    fixture.rounds().await;
    fixture.registry.refuse(Some("deregister"));
    fixture.put(unselected(1));
    fixture.rounds().await;
    assert_eq!(fixture.task.held, None);
    fixture.registry.refuse(None);
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web").len(), 3);
}

/// The server stores it after the client has given up, when the pod is not tracked any more.
#[tokio::test]
async fn a_registration_whose_result_is_not_known_is_waited_for_after_its_pod_has_left() {
    let selected = BoundPod { labels: [("track".to_owned(), "a".to_owned())].into(), ..pod(1) };
    let spec = json!({
        "selector": {"matchExpressions": [{"key": "track", "operator": "Exists"}]},
        "service": {"name": "${pod.labels['track']}"},
    });
    for is_deleted in [false, true] {
        let mut fixture = Fixture::new(Memory::default(), spec.clone());
        fixture.registry.delay();
        fixture.put(selected.clone());
        fixture.round().await;
        match is_deleted {
            true => fixture.delete(),
            false => fixture.put(unselected(1)),
        }
        let why = fixture.ask(Phase::Release, &unselected(1)).await.unwrap_err();
        assert!(why.contains("may still take effect"), "{is_deleted}: {why}");
        assert!(!fixture.task.is_finished(&fixture.binding));
        let due = fixture.task.comparison_due.saturating_sub(fixture.task.shared.index.now());
        assert!(due > Duration::from_secs(5) && due < Duration::from_secs(20), "{is_deleted}: {due:?}");
        fixture.task.calls.clear();
        fixture.registry.arrive();
        assert_eq!(fixture.registry.shown("a"), ["10.0.0.1:8080"]);
        fixture.task.in_doubt_until = Duration::ZERO;
        assert_eq!(fixture.ask(Phase::Release, &unselected(1)).await, Ok(EvidenceLevel::Proven));
        assert_eq!(fixture.registry.shown("a"), Vec::<String>::new());
        assert!(!is_deleted || fixture.task.is_finished(&fixture.binding));
    }
}
