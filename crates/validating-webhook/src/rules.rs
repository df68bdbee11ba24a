//! Judges PodTransitionRules: what can't be right is denied with its field, what can't be meant is a warning.
//!
//! A webhook of a rule that can't be reached is a warning as well: it may be there by the time that it is asked. Connections are tried
//! for a second, within the time for the review, and only to hosts that the write brings in.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{Finding, WebhookUrl};
use podward_runtime::admission::{AdmissionRequest, AdmissionResponse, Decision, Operation, Route, Webhook};
use serde::{Deserialize, Deserializer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

static ROUTES: [Route; 1] = [Route {
    path: "/rules",
    api: ("apps.kusionstack.io", "v1alpha1"),
    resources: &[("podtransitionrules", "")],
    operations: &[Operation::Create, Operation::Update],
}];

/// How long a host is tried.
const PATIENCE: Duration = Duration::from_secs(1);
/// What of the review's time is left for the answer.
const MARGIN: Duration = Duration::from_millis(100);
/// Hosts that are tried for one review.
const MOST_HOSTS: usize = 8;
/// Connections that are tried at the same time; further hosts are not tried.
const MOST_DIALS: usize = 64;
/// Errors that are told at once.
const MOST_ERRORS: usize = 16;

/// Judges PodTransitionRules.
#[derive(Debug)]
pub struct Rules {
    dials: Semaphore,
}

impl Default for Rules {
    fn default() -> Self {
        Self { dials: Semaphore::new(MOST_DIALS) }
    }
}

/// A rule object, or why it isn't one. An old one that can't be read must not stop the write that mends it.
#[derive(Debug)]
pub struct Reading(Result<Box<PodTransitionRule>, String>);

impl<'de> Deserialize<'de> for Reading {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(serde_json::from_value(value).map(Box::new).map_err(|error| error.to_string())))
    }
}

impl Webhook for Rules {
    type Object = Reading;

    fn routes(&self) -> &'static [Route] {
        &ROUTES
    }

    fn decide<'a>(
        &'a self,
        _route: &'static Route,
        request: &'a AdmissionRequest<'a, Reading>,
    ) -> Decision<'a> {
        let new = match &request.object {
            Some(Reading(Ok(new))) => new,
            Some(Reading(Err(error))) => {
                return AdmissionResponse::bad_request(format!("not a PodTransitionRule: {error}")).into();
            }
            None => {
                let text = format!("a review of {} without an object", request.operation);
                return AdmissionResponse::bad_request(text).into();
            }
        };
        // What is being deleted has only its finalizers changed.
        if new.metadata.deletion_timestamp.is_some() {
            return AdmissionResponse::allow().into();
        }
        let old = request.old_object.as_ref().and_then(|old| old.0.as_deref().ok());
        let (errors, warnings) = judge(old, new);
        if !errors.is_empty() {
            return AdmissionResponse::forbid(told(&errors)).warn(warnings).into();
        }
        let hosts = new_hosts(old, new);
        if hosts.is_empty() {
            return AdmissionResponse::allow().warn(warnings).into();
        }
        Decision::later(move |deadline| async move {
            let unreachable = self.try_hosts(hosts, deadline).await;
            AdmissionResponse::allow().warn(warnings).warn(unreachable)
        })
    }
}

/// What is wrong with a rule object. An error that it had before is not held against the write: only warned of.
fn judge(old: Option<&PodTransitionRule>, new: &PodTransitionRule) -> (Vec<Finding>, Vec<String>) {
    let found = new.check();
    let before: BTreeSet<Finding> = old
        .filter(|_| !found.errors.is_empty())
        .map(|old| old.check().errors)
        .into_iter()
        .flatten()
        .collect();
    let (known, errors): (Vec<_>, Vec<_>) =
        found.errors.into_iter().partition(|error| before.contains(error));
    let warnings = known.iter().chain(&found.warnings).map(ToString::to_string).collect();
    (errors, warnings)
}

fn told(errors: &[Finding]) -> String {
    let told: Vec<String> = errors.iter().take(MOST_ERRORS).map(ToString::to_string).collect();
    match errors.len().checked_sub(MOST_ERRORS) {
        Some(more @ 1..) => format!("{}; and {more} more", told.join("; ")),
        _ => told.join("; "),
    }
}

type Host = (String, u16);

fn new_hosts(old: Option<&PodTransitionRule>, new: &PodTransitionRule) -> Vec<Host> {
    let before: BTreeSet<Host> = old.into_iter().flat_map(hosts).map(|(host, _)| host).collect();
    let mut seen = before;
    hosts(new)
        .filter(|(host, is_asked)| *is_asked && seen.insert(host.clone()))
        .map(|(host, _)| host)
        .collect()
}

/// Hosts of all URLs, and whether they are asked at all.
fn hosts(object: &PodTransitionRule) -> impl Iterator<Item = (Host, bool)> {
    object.spec.rules.iter().flat_map(|rule| {
        let client = rule.webhook.as_ref().map(|webhook| &webhook.client_config);
        let poll = client.and_then(|client| client.poll.as_ref()).map(|poll| &poll.url);
        let urls = client.map(|client| &client.url).into_iter().chain(poll);
        urls.filter_map(|url| WebhookUrl::parse(url).ok())
            .map(|url| ((url.host().to_owned(), url.port()), !rule.disabled))
    })
}

impl Rules {
    /// A warning for each host that can't be reached now.
    async fn try_hosts(&self, hosts: Vec<Host>, deadline: Instant) -> Vec<String> {
        let until = (Instant::now() + PATIENCE).min(deadline.checked_sub(MARGIN).unwrap_or(deadline));
        join_all(hosts.into_iter().take(MOST_HOSTS).map(|host| self.try_host(host, until)))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    async fn try_host(&self, (host, port): Host, until: Instant) -> Option<String> {
        let _room = self.dials.try_acquire().ok()?;
        let problem =
            match tokio::time::timeout_at(until.into(), TcpStream::connect((host.as_str(), port))).await {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
        Some(format!(
            "{host}:{port} can't be reached from the validating-webhook now ({problem}); the rule is taken all the same"
        ))
    }
}
