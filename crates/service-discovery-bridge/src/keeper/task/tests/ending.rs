//! Pods that leave a binding, and bindings that are deleted.

use podward_proto::v1::{EvidenceLevel, Phase};

use super::*;

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
    let other = json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
        "metadata": {"namespace": "shop", "name": "other"}, "spec": fixture.binding.spec,
    });
    let key = BindingKey { name: "other".to_owned(), ..fixture.binding.key.clone() };
    fixture.task.shared.index.put_binding(key, serde_json::from_value(other).unwrap());
    fixture.delete();
    assert!(fixture.finishes().await);
    assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
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
