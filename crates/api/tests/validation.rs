//! Invalid hooks are rejected with the field and what is valid.
#![allow(missing_docs, clippy::unwrap_used)]

use podward_api::{Attachment, Endpoint, LifecycleHook, LifecycleHookSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

fn certificate() -> String {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem()
}

fn hook() -> Value {
    json!({
        "metadata": {"name": "balancer"},
        "spec": {
            "phases": ["Prepare", "Complete"],
            "endpoint": {"url": "https://hooks.example:9443", "caCertificates": certificate()},
        },
    })
}

fn changed(change: Value) -> LifecycleHook {
    let mut document = hook();
    json_patch::merge(&mut document, &change);
    serde_json::from_value(document).unwrap()
}

#[test]
fn valid_hooks_are_accepted() {
    for change in [
        json!({}),
        json!({"spec": {"endpoint": {"url": "https://[fd00::1]:1"}}}),
        json!({"spec": {"endpoint": {"caCertificates": null}}}),
        json!({"spec": {"endpoint": null, "attachment": {}}}),
        json!({"spec": {"phases": ["PreCheck"], "operationTypes": ["update", "a_b.c"]}}),
        json!({"spec": {"deadlineSeconds": 86400, "order": -1000, "maxConcurrentCalls": 1, "callTimeoutMilliseconds": 100}}),
        json!({"spec": {"podSelector": {"matchLabels": {"app": "web"}}}}),
        json!({"spec": {"phases": ["PostCheck"], "postCheckRejection": "Rollback", "deadlinePolicy": "Proceed"}}),
        json!({"spec": {"postCheckRejection": "Hold", "failurePolicy": "Ignore"}}),
    ] {
        let hook = changed(change.clone());
        assert_eq!(hook.to_hook().map(|hook| hook.name), Ok("balancer".to_owned()), "{change}");
    }
}

#[test]
fn invalid_hooks_are_rejected_with_the_field() {
    let long = "a".repeat(64);
    let contradiction = json!([{"key": "a", "operator": "Exists"}, {"key": "a", "operator": "DoesNotExist"}]);
    for (change, words) in [
        (json!({"metadata": {"name": null}}), "metadata.name"),
        (json!({"metadata": {"name": "Balancer"}}), "not a DNS label"),
        (json!({"metadata": {"name": "a.b"}}), "not a DNS label"),
        (json!({"metadata": {"name": "-a"}}), "not a DNS label"),
        (json!({"metadata": {"name": long}}), "not a DNS label"),
        (json!({"spec": {"phases": []}}), "spec.phases: must contain at least one"),
        (json!({"spec": {"phases": ["Prepare", "Prepare"]}}), "contains Prepare twice"),
        (json!({"spec": {"phases": ["PreCheck", "Release"]}}), "add Prepare or Complete"),
        (
            json!({"spec": {"phases": ["PreCheck"], "postCheckRejection": "Rollback"}}),
            "spec.postCheckRejection: Rollback requires the phase PostCheck",
        ),
        (
            json!({"spec": {"phases": ["PostCheck"], "postCheckRejection": "Rollback", "failurePolicy": "Ignore"}}),
            "spec.failurePolicy: must be Fail with postCheckRejection Rollback",
        ),
        (json!({"spec": {"operationTypes": ["a b"]}}), "is not a valid type"),
        (json!({"spec": {"operationTypes": [""]}}), "is not a valid type"),
        (json!({"spec": {"operationTypes": vec!["a"; 65]}}), "more than 64"),
        (json!({"spec": {"endpoint": null}}), "exactly one of endpoint and attachment"),
        (json!({"spec": {"attachment": {}}}), "exactly one of endpoint and attachment"),
        (json!({"spec": {"endpoint": {"url": "http://hooks.example:1"}}}), "scheme is not https"),
        (json!({"spec": {"endpoint": {"url": "https://hooks.example"}}}), "no port"),
        (json!({"spec": {"endpoint": {"url": "https://hooks.example:0"}}}), "1 to 65535"),
        (json!({"spec": {"endpoint": {"url": "https://hooks.example:+80"}}}), "1 to 65535"),
        (
            json!({"spec": {"endpoint": {"url": "https://hooks.example:1/x"}}}),
            "contains more than a host and a port",
        ),
        (
            json!({"spec": {"endpoint": {"url": "https://me@hooks.example:1"}}}),
            "contains more than a host and a port",
        ),
        (json!({"spec": {"endpoint": {"url": "https://:1"}}}), "its host is neither"),
        (json!({"spec": {"endpoint": {"url": "https://a b:1"}}}), "its host is neither"),
        (json!({"spec": {"endpoint": {"caCertificates": "rubbish"}}}), "contains no certificate"),
        (
            json!({"spec": {"endpoint": {"caCertificates": "-----BEGIN CERTIFICATE-----\nx\n"}}}),
            "not valid PEM",
        ),
        (json!({"spec": {"endpoint": {"serverName": "a b"}}}), "spec.endpoint.serverName"),
        (json!({"spec": {"deadlineSeconds": 0}}), "spec.deadlineSeconds"),
        (json!({"spec": {"deadlineSeconds": 86401}}), "spec.deadlineSeconds"),
        (json!({"spec": {"order": 1001}}), "spec.order"),
        (json!({"spec": {"maxConcurrentCalls": 0}}), "spec.maxConcurrentCalls"),
        (json!({"spec": {"callTimeoutMilliseconds": 60001}}), "spec.callTimeoutMilliseconds"),
        (
            json!({"spec": {"podSelector": {"matchExpressions": contradiction}}}),
            "spec.podSelector: nothing can match",
        ),
        (
            json!({"spec": {"namespaceSelector": {"matchExpressions": contradiction}}}),
            "spec.namespaceSelector",
        ),
    ] {
        let error = changed(change.clone()).to_hook().map(|hook| hook.name).unwrap_err().to_string();
        assert!(error.contains(words), "{change}: {error}");
        assert!(error.len() < 400, "{error}");
    }
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(name in ".*", url in "(https://)?.*", pem in ".*", server_name in ".*", types in prop::collection::vec(".*", 0..4)) {
        let endpoint = Endpoint { url, ca_certificates: pem, server_name: Some(server_name) };
        let spec = LifecycleHookSpec { operation_types: types, endpoint: Some(endpoint), ..LifecycleHookSpec::default() };
        let _ = LifecycleHook::new(&name, spec.clone()).to_hook();
        let _ = LifecycleHook::new("a", LifecycleHookSpec { endpoint: None, attachment: Some(Attachment {}), ..spec }).to_hook();
    }
}
