//! Pods of OpenKruise's workloads.

use podward_api::DiscoveryBinding;
use podward_core::cloneset::State;

use super::*;
use crate::model::{Demand, KruiseWorkload};

/// Returns a pod in the state `Normal`, with the finalizer that the hook of its set names.
fn kruise_pod(is_terminating: bool, ip: &str) -> BoundPod {
    let mut pod = json!({
        "metadata": {
            "name": "web-1", "namespace": "shop", "uid": "web-1", "finalizers": ["example.com/registry"],
            "labels": {"app": "web", "lifecycle.apps.kruise.io/state": "Normal"},
            "ownerReferences": [{
                "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "w",
                "controller": true,
            }],
        },
        "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    if is_terminating {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    BoundPod::new(serde_json::from_value(pod).unwrap())
}

fn set() -> KruiseWorkload {
    KruiseWorkload { namespace: "shop".to_owned(), kind: "CloneSet".to_owned(), name: "web".to_owned() }
}

/// Returns a fixture with a set that has a hook, and the pod of the set.
async fn fixture(pod: BoundPod) -> Fixture {
    fixture_with(Memory::default(), json!({}), pod).await
}

async fn fixture_with(registry: Memory, spec: Value, pod: BoundPod) -> Fixture {
    let mut fixture = Fixture::new(registry, spec);
    let mut object = DiscoveryBinding::new("web", fixture.binding.spec.clone());
    object.metadata.namespace = Some("shop".to_owned());
    let index = &fixture.task.shared.index;
    index.put_binding(fixture.binding.key.clone(), object);
    let markers = json!({"finalizersHandler": ["example.com/registry"]});
    let hooks = json!({"preDelete": markers, "inPlaceUpdate": markers});
    index.put_lifecycle(set(), serde_json::from_value(hooks).unwrap());
    fixture.put(pod);
    fixture.rounds().await;
    fixture
}

/// Returns whether a patch of the pod was tried: without an API server it fails, and is due again.
fn is_patched(fixture: &Fixture) -> bool {
    fixture.task.kruise.due.is_some()
}

#[tokio::test]
async fn a_pod_that_ends_with_its_set_loses_its_finalizers_when_the_registry_does_not_have_it() {
    let mut fixture = fixture(kruise_pod(false, "10.0.0.1")).await;
    assert_eq!(
        (fixture.registry.shown("web"), is_patched(&fixture)),
        (vec!["10.0.0.1:8080".to_owned()], false)
    );
    fixture.task.shared.index.remove_lifecycle(&set());
    fixture.registry.refuse(Some("10.0.0.1"));
    fixture.put(kruise_pod(true, "10.0.0.1"));
    fixture.rounds().await;
    assert!(!is_patched(&fixture), "the registry has it still");
    fixture.registry.refuse(None);
    fixture.rounds().await;
    assert_eq!((fixture.registry.shown("web"), is_patched(&fixture)), (Vec::new(), true));
}

#[tokio::test]
async fn a_pod_that_ends_before_it_had_an_address_loses_its_finalizers() {
    assert!(is_patched(&fixture(kruise_pod(true, "")).await));
}

/// A patch would fail again and again: its state is not that of the pod any more.
#[tokio::test]
async fn a_pod_that_is_only_put_back_into_service_is_not_patched() {
    let mut updated = BoundPod { demand: Demand::OutForUpdate, ..kruise_pod(false, "10.0.0.1") };
    updated.kruise.as_mut().unwrap().state = State::PreparingUpdate;
    let registry = Memory { by_address: true, ..Memory::default() };
    let mut fixture = fixture_with(registry, json!({"mode": "Steer"}), updated.clone()).await;
    assert!(is_patched(&fixture));
    fixture.put(BoundPod { labels: Default::default(), ..updated });
    fixture.rounds().await;
    assert!(fixture.task.tracked.len() == 1 && !is_patched(&fixture));
}
