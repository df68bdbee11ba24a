//! A LifecycleHook as the watch returned it last.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::error_boundary::InvalidObject;
use podward_api::{HookStatus, LifecycleHook, MAX_DEADLINE_SECONDS};
use podward_core::PostCheckRejection;
use podward_core::hooks::{DeadlinePolicy, FailurePolicy, GateTiming, Hook, Selector};

use crate::questions::request::PHASES;
use crate::registration::registered::{HookConnection, RegisteredHook, compile};

/// A LifecycleHook as the watch returned it last.
#[derive(Clone, Debug)]
pub(crate) struct HookRecord {
    pub(crate) uid: String,
    pub(crate) resource_version: Option<String>,
    pub(crate) generation: Option<i64>,
    /// The reason why its spec is invalid; `None` if it is valid.
    pub(crate) refused: Option<String>,
    pub(crate) registered: RegisteredHook,
    /// Its stored status.
    pub(crate) status: HookStatus,
}

impl HookRecord {
    /// Compiles `object`. If its spec is invalid, the hook stays what it was `before`. If there is no valid one, the
    /// hook matches no new pod and never answers. It still holds its pods until the spec is fixed or the hook is
    /// deleted, because a mistake in a spec must not release pods.
    pub(crate) fn new(object: Result<LifecycleHook, InvalidObject>, before: Option<&HookRecord>) -> Self {
        let (metadata, status, compiled) = match object {
            Ok(hook) => {
                let compiled = compile(&hook);
                (hook.metadata, hook.status.unwrap_or_default(), compiled)
            }
            Err(invalid) => (invalid.metadata, HookStatus::default(), Err(invalid.error)),
        };
        let uid = metadata.uid.unwrap_or_default();
        let was_valid = |before: &&HookRecord| {
            before.uid == uid && !matches!(before.registered.connection, HookConnection::Invalid(_))
        };
        let before = before.filter(was_valid);
        let (registered, refused) = match (compiled, before) {
            (Ok(registered), _) => (registered, None),
            (Err(problem), Some(before)) => {
                let refused = format!("{problem}; what was valid before is in force still");
                (before.registered.clone(), Some(refused))
            }
            (Err(problem), None) => {
                let name = metadata.name.clone().unwrap_or_default();
                (stand_in(name, &problem), Some(problem))
            }
        };
        HookRecord {
            uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            refused,
            registered,
            status,
        }
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

/// Returns a hook for an invalid spec, see [`HookRecord::new`].
fn stand_in(name: String, problem: &str) -> RegisteredHook {
    RegisteredHook {
        hook: Hook {
            name,
            pod_selector: nothing(),
            namespace_selector: Selector::everything(),
            phases: PHASES.to_vec(),
            operation_types: Vec::new(),
            order: 0,
            deadline_nanoseconds: i64::from(MAX_DEADLINE_SECONDS) * 1_000_000_000,
            deadline_policy: DeadlinePolicy::Hold,
            failure_policy: FailurePolicy::Fail,
            post_check_rejection: PostCheckRejection::Hold,
            prepare_timing: GateTiming::AfterGate,
            complete_timing: GateTiming::BeforeGate,
        },
        connection: HookConnection::Invalid(problem.to_owned()),
        max_concurrent_calls: 1,
        call_timeout: Duration::from_secs(1),
    }
}

/// Returns a selector that matches no pod: it requires a label with an invalid key.
fn nothing() -> Selector {
    let impossible = ("/".to_owned(), "Exists".to_owned(), Vec::new());
    Selector::new(BTreeMap::new(), [impossible]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use serde_json::{Value, json};

    use super::*;

    fn object(spec: Value) -> DeserializeGuard<LifecycleHook> {
        let value = json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook",
            "metadata": {"name": "lb", "uid": "u", "generation": 3}, "spec": spec,
        });
        serde_json::from_value(value).unwrap()
    }

    fn problem(change: Value) -> String {
        let mut spec = json!({"phases": ["Prepare"], "endpoint": {"url": "https://lb.example:8443"}});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        HookRecord::new(object(spec).0, None).refused.unwrap_or_default()
    }

    #[test]
    fn a_hook_that_is_right_is_compiled() {
        let url = "https://[::1]:8443";
        let record =
            HookRecord::new(object(json!({"phases": ["Prepare"], "endpoint": {"url": url}})).0, None);
        assert_eq!((record.refused, record.generation), (None, Some(3)));
        assert_eq!(record.registered.max_concurrent_calls, 64);
        let HookConnection::Endpoint(endpoint) = record.registered.connection else { panic!("no endpoint") };
        assert_eq!((endpoint.server_name.as_str(), endpoint.url.as_str()), ("::1", url));
    }

    #[test]
    fn a_hook_that_can_not_be_right_is_told_why() {
        for (change, words) in [
            (json!({}), ""),
            (json!({"phases": []}), "spec.phases"),
            (json!({"phases": ["Sometimes"]}), "Sometimes"),
            (json!({"endpoint": null}), "exactly one"),
            (json!({"attachment": {}}), "exactly one"),
            (json!({"endpoint": {"url": "http://lb:1"}}), "scheme is not https"),
            (json!({"endpoint": {"url": "https://lb:1/path"}}), "contains more than a host and a port"),
            (
                json!({"endpoint": {"url": "https://user:secret@lb:1"}}),
                "contains more than a host and a port",
            ),
            (json!({"endpoint": {"url": "https://lb:99999"}}), "from 1 to 65535"),
            (
                json!({"endpoint": {"url": "https://lb:1", "serverName": "a b"}}),
                "neither a DNS name nor an IP address",
            ),
            (json!({"endpoint": {"url": "https://lb:1", "caCertificates": "x"}}), "contains no certificate"),
            (json!({"maxConcurrentCalls": 0}), "between 1 and 1000"),
            (json!({"callTimeoutMilliseconds": 5}), "between 100 ms and 60 s"),
            (json!({"order": 1001}), "between -1000 and 1000"),
            (json!({"deadlineSeconds": 0}), "between 1 s and 86400 s"),
            (
                json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
                "spec.podSelector",
            ),
        ] {
            let problem = problem(change.clone());
            assert!(
                problem.contains(words) && problem.is_empty() == words.is_empty(),
                "{change}: {problem:?}"
            );
        }
    }

    #[test]
    fn an_invalid_spec_releases_no_pod() {
        let valid = HookRecord::new(object(json!({"phases": ["Prepare"], "attachment": {}})).0, None);
        let slip = || object(json!({"phases": [], "attachment": {}}));
        let after = HookRecord::new(slip().0, Some(&valid));
        assert_eq!(after.registered, valid.registered);
        assert!(after.refused.unwrap().contains("in force still"));

        let alone = HookRecord::new(slip().0, None);
        let hook = alone.registered.hook;
        assert!(hook.is_consumer(), "its finalizers have an owner");
        assert!(!hook.pod_selector.matches(&BTreeMap::new()), "but it gets no new pods");
        assert!(matches!(alone.registered.connection, HookConnection::Invalid(_)));
        let other = HookRecord { uid: "another".to_owned(), ..valid };
        let replaced = HookRecord::new(slip().0, Some(&other));
        assert!(matches!(replaced.registered.connection, HookConnection::Invalid(_)), "not the same object");
    }
}
