//! A LifecycleHook, compiled: whom it concerns, and how it is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::core::error_boundary::InvalidObject;
use podward_api::{HookStatus, LifecycleHook, LifecycleHookSpec, MAX_DEADLINE_SECONDS};
use podward_core::PostCheckRejection;
use podward_core::hooks::{DeadlinePolicy, FailurePolicy, GateTiming, Hook, Phase, Selector};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tonic::transport::Uri;

/// A hook that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registered {
    pub(super) hook: Hook,
    pub(super) connection: Connection,
    /// Calls at the same time.
    pub(super) max_concurrent_calls: usize,
    /// Time for one.
    pub(super) call_timeout: Duration,
}

/// How a hook is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    Endpoint(Endpoint),
    /// It connects to Podward.
    Attachment,
    /// Not at all, and why.
    Invalid(String),
}

/// A hook server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// `https://<host>:<port>`.
    pub(super) url: String,
    /// What its certificate is checked against, PEM; the system's roots when empty.
    pub(super) ca_certificates: String,
    /// The name that its certificate is checked for.
    pub(super) server_name: String,
}

/// A LifecycleHook as it was last seen.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) uid: String,
    pub(super) resource_version: Option<String>,
    pub(super) generation: Option<i64>,
    /// Why its spec can't be right, if it can't.
    pub(super) refused: Option<String>,
    pub(super) registered: Registered,
    /// What stands in its status.
    pub(super) status: HookStatus,
}

impl Record {
    /// Compiles `object`. When it can't be right the hook stays what it was `before`. If nothing was, it stands for itself as one that
    /// concerns no new pod and never answers: pods that it holds are held on until somebody mends or removes it, for a slip in a
    /// spec must not let go of them.
    pub(super) fn new(object: Result<LifecycleHook, InvalidObject>, before: Option<&Record>) -> Self {
        let (metadata, status, compiled) = match object {
            Ok(hook) => {
                let compiled = compile(&hook);
                (hook.metadata, hook.status.unwrap_or_default(), compiled)
            }
            Err(invalid) => (invalid.metadata, HookStatus::default(), Err(invalid.error)),
        };
        let uid = metadata.uid.unwrap_or_default();
        let was_valid = |before: &&Record| {
            before.uid == uid && !matches!(before.registered.connection, Connection::Invalid(_))
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
        Record {
            uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            refused,
            registered,
            status,
        }
    }

    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

/// The hook, or what is wrong with it.
pub(super) fn compile(object: &LifecycleHook) -> Result<Registered, String> {
    let hook = object.to_hook().map_err(|error| error.to_string())?;
    let spec = &object.spec;
    Ok(Registered {
        hook: Hook { name: object.name_any(), ..hook },
        connection: connection(spec)?,
        max_concurrent_calls: usize::try_from(spec.max_concurrent_calls).unwrap_or(1),
        call_timeout: Duration::from_millis(u64::from(spec.call_timeout_milliseconds)),
    })
}

fn connection(spec: &LifecycleHookSpec) -> Result<Connection, String> {
    match (&spec.endpoint, &spec.attachment) {
        (Some(given), None) => endpoint(given).map(Connection::Endpoint),
        (None, Some(_)) => Ok(Connection::Attachment),
        _ => Err("spec: exactly one of endpoint and attachment must be set".to_owned()),
    }
}

/// `given` as it is asked. That it is right was checked before, except that its certificates can be trusted.
fn endpoint(given: &podward_api::Endpoint) -> Result<Endpoint, String> {
    let uri: Uri = given
        .url
        .parse()
        .map_err(|error| format!("spec.endpoint.url: {:?} is no URL: {error}", given.url))?;
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    for certificate in CertificateDer::pem_slice_iter(given.ca_certificates.as_bytes()).flatten() {
        rustls::RootCertStore::empty()
            .add(certificate)
            .map_err(|error| format!("spec.endpoint.caCertificates: one can't be used: {error}"))?;
    }
    Ok(Endpoint {
        url: given.url.clone(),
        ca_certificates: given.ca_certificates.clone(),
        server_name: given.server_name.as_deref().unwrap_or(host).to_owned(),
    })
}

/// See [`Record::new`].
fn stand_in(name: String, problem: &str) -> Registered {
    Registered {
        hook: Hook {
            name,
            pod_selector: nothing(),
            namespace_selector: Selector::everything(),
            phases: vec![Phase::PreCheck, Phase::Prepare, Phase::PostCheck, Phase::Complete, Phase::Release],
            operation_types: Vec::new(),
            order: 0,
            deadline_nanoseconds: i64::from(MAX_DEADLINE_SECONDS) * 1_000_000_000,
            deadline_policy: DeadlinePolicy::Hold,
            failure_policy: FailurePolicy::Fail,
            post_check_rejection: PostCheckRejection::Hold,
            prepare_timing: GateTiming::AfterGate,
            complete_timing: GateTiming::BeforeGate,
        },
        connection: Connection::Invalid(problem.to_owned()),
        max_concurrent_calls: 1,
        call_timeout: Duration::from_secs(1),
    }
}

/// Wants a label that can't be: its key is none.
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
        Record::new(object(spec).0, None).refused.unwrap_or_default()
    }

    #[test]
    fn a_hook_that_is_right_is_compiled() {
        let url = "https://[::1]:8443";
        let record = Record::new(object(json!({"phases": ["Prepare"], "endpoint": {"url": url}})).0, None);
        assert_eq!((record.refused, record.generation), (None, Some(3)));
        assert_eq!(record.registered.max_concurrent_calls, 64);
        let Connection::Endpoint(endpoint) = record.registered.connection else { panic!("no endpoint") };
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
            (json!({"endpoint": {"url": "http://lb:1"}}), "no other way than TLS"),
            (json!({"endpoint": {"url": "https://lb:1/path"}}), "more in it than host and port"),
            (json!({"endpoint": {"url": "https://user:secret@lb:1"}}), "more in it than host and port"),
            (json!({"endpoint": {"url": "https://lb:99999"}}), "from 1 to 65535"),
            (
                json!({"endpoint": {"url": "https://lb:1", "serverName": "a b"}}),
                "neither a DNS name nor an IP address",
            ),
            (json!({"endpoint": {"url": "https://lb:1", "caCertificates": "x"}}), "no certificate in it"),
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
    fn a_slip_lets_go_of_nothing() {
        let valid = Record::new(object(json!({"phases": ["Prepare"], "attachment": {}})).0, None);
        let slip = || object(json!({"phases": [], "attachment": {}}));
        let after = Record::new(slip().0, Some(&valid));
        assert_eq!(after.registered, valid.registered);
        assert!(after.refused.unwrap().contains("in force still"));

        let alone = Record::new(slip().0, None);
        let hook = alone.registered.hook;
        assert!(hook.is_consumer(), "its finalizers have an owner");
        assert!(!hook.pod_selector.matches(&BTreeMap::new()), "but it gets no new pods");
        assert!(matches!(alone.registered.connection, Connection::Invalid(_)));
        let other = Record { uid: "another".to_owned(), ..valid };
        let replaced = Record::new(slip().0, Some(&other));
        assert!(matches!(replaced.registered.connection, Connection::Invalid(_)), "not the same object");
    }
}
