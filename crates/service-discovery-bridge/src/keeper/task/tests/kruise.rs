//! Pods of OpenKruise's workloads.

use podward_api::DiscoveryBinding;

use super::*;
use crate::model::KruiseWorkload;

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
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    let mut object = DiscoveryBinding::new("web", fixture.binding.spec.clone());
    object.metadata.namespace = Some("shop".to_owned());
    let index = &fixture.task.shared.index;
    index.put_binding(fixture.binding.key.clone(), object);
    let hooks = json!({"preDelete": {"finalizersHandler": ["example.com/registry"]}});
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
