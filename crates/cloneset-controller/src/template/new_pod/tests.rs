//! Pods of templates.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::template::test_pods::{any_json, set};

fn pod_of(template: &Value, claim_templates: &[Value]) -> Result<Value, String> {
    new_pod(&NewPod {
        set: &set(),
        template,
        revision: "web-5d4f",
        id: "abcde",
        claim_templates,
        readiness_gates: &["KruisePodReady"],
        now: Timestamp::UNIX_EPOCH,
    })
}

#[test]
fn a_pod_has_everything_of_its_template() {
    let template = json!({
        "metadata": {
            "name": "ignored", "labels": {"app": "web", INSTANCE_ID: "zzzzz"}, "annotations": {"a": "b"},
            "finalizers": ["example.com/a"],
        },
        "spec": {
            "newField": {"a": null}, "containers": [{"name": "app", "image": "app:1", "newField": 1}],
            "readinessGates": [{"conditionType": "KruisePodReady"}],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
        },
    });
    let claims = [json!({"metadata": {"name": "data"}}), json!({"metadata": {"name": "log"}})];
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-abcde", "namespace": "test",
            "labels": {
                "app": "web", "apps.kruise.io/cloneset-instance-id": "abcde",
                "lifecycle.apps.kruise.io/state": "PreparingNormal",
                "controller-revision-hash": "web-5d4f", "pod-template-hash": "5d4f",
            },
            "annotations": {"a": "b", "lifecycle.apps.kruise.io/timestamp": "1970-01-01T00:00:00Z"},
            "finalizers": ["example.com/a"],
            "ownerReferences": [{
                "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "set-uid",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "newField": {"a": null}, "containers": [{"name": "app", "image": "app:1", "newField": 1}],
            "readinessGates": [{"conditionType": "KruisePodReady"}, {"conditionType": "InPlaceUpdateReady"}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-abcde"}},
                {"name": "log", "persistentVolumeClaim": {"claimName": "log-web-abcde"}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    });
    assert_eq!(pod_of(&template, &claims), Ok(expected));
}

#[test]
fn an_invalid_template_makes_no_pod() {
    for template in [json!(null), json!({"spec": []}), json!({"spec": {}, "metadata": {"labels": {"a": 1}}})]
    {
        pod_of(&template, &[]).unwrap_err();
    }
    pod_of(&json!({"spec": {}}), &[json!({})]).unwrap_err();
    pod_of(&json!({"spec": {}}), &[]).unwrap();
}

proptest! {
    #[test]
    fn no_template_panics(metadata in any_json(), spec in any_json(), gates in any_json(), claim in any_json()) {
        let _ = pod_of(&json!({"metadata": metadata, "spec": spec}), std::slice::from_ref(&claim));
        let _ = pod_of(&json!({"spec": {"readinessGates": gates, "volumes": spec}}), &[json!({"metadata": claim})]);
    }
}
