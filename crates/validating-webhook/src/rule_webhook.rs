//! The webhook for PodTransitionRules. It denies invalid rules with the field, and warns about rules that are probably
//! wrong.
//!
//! It also warns about a rule's webhook that cannot be reached, because the webhook may be started later. It tries
//! connections only to hosts that the write adds, for at most a second and within the time of the review.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{RuleFinding, WebhookUrl};
use podward_runtime::admission::{
    AdmissionDecision, AdmissionOperation, AdmissionRequest, AdmissionResponse, Webhook, WebhookRoute,
};
use serde::{Deserialize, Deserializer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

static ROUTES: [WebhookRoute; 1] = [WebhookRoute {
    path: "/rules",
    api: ("apps.kusionstack.io", "v1alpha1"),
    resources: &[("podtransitionrules", "")],
    operations: &[AdmissionOperation::Create, AdmissionOperation::Update],
}];

/// The timeout of connection attempts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The part of the review's time that is reserved for the response.
const RESPONSE_RESERVE: Duration = Duration::from_millis(100);
/// The maximum number of hosts that are tried for one review.
const MAX_HOSTS: usize = 8;
/// The maximum number of concurrent connection attempts. Further hosts are not tried.
const MAX_CONCURRENT_DIALS: usize = 64;
/// The maximum number of errors in a response.
const MAX_ERRORS: usize = 16;

/// Reviews writes to PodTransitionRules.
#[derive(Debug)]
pub struct RuleWebhook {
    dials: Semaphore,
}

impl Default for RuleWebhook {
    fn default() -> Self {
        Self { dials: Semaphore::new(MAX_CONCURRENT_DIALS) }
    }
}

/// A PodTransitionRule, or the error of parsing it. An invalid old object must not prevent the write that corrects it.
#[derive(Debug)]
pub struct ParsedRule(Result<Box<PodTransitionRule>, String>);

impl<'de> Deserialize<'de> for ParsedRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(serde_json::from_value(value).map(Box::new).map_err(|error| error.to_string())))
    }
}

impl Webhook for RuleWebhook {
    type Object = ParsedRule;

    fn routes(&self) -> &'static [WebhookRoute] {
        &ROUTES
    }

    fn decide<'a>(
        &'a self,
        _route: &'static WebhookRoute,
        request: &'a AdmissionRequest<'a, ParsedRule>,
    ) -> AdmissionDecision<'a> {
        let new = match &request.object {
            Some(ParsedRule(Ok(new))) => new,
            Some(ParsedRule(Err(error))) => {
                return AdmissionResponse::bad_request(format!("not a PodTransitionRule: {error}")).into();
            }
            None => {
                let text = format!("the review of {} has no object", request.operation);
                return AdmissionResponse::bad_request(text).into();
            }
        };
        // Only the finalizers of a terminating object change.
        if new.metadata.deletion_timestamp.is_some() {
            return AdmissionResponse::allow().into();
        }
        let old = request.old_object.as_ref().and_then(|old| old.0.as_deref().ok());
        let (errors, warnings) = check(old, new);
        if !errors.is_empty() {
            return AdmissionResponse::forbid(error_text(&errors)).warn(warnings).into();
        }
        let hosts = new_hosts(old, new);
        if hosts.is_empty() {
            return AdmissionResponse::allow().warn(warnings).into();
        }
        AdmissionDecision::defer(move |deadline| async move {
            let unreachable = self.try_hosts(hosts, deadline).await;
            AdmissionResponse::allow().warn(warnings).warn(unreachable)
        })
    }
}

/// Returns the errors and the warnings. An error that the old object has too is a warning.
fn check(old: Option<&PodTransitionRule>, new: &PodTransitionRule) -> (Vec<RuleFinding>, Vec<String>) {
    let found = new.check();
    let before: BTreeSet<RuleFinding> = old
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

fn error_text(errors: &[RuleFinding]) -> String {
    let shown: Vec<String> = errors.iter().take(MAX_ERRORS).map(ToString::to_string).collect();
    match errors.len().checked_sub(MAX_ERRORS) {
        Some(more @ 1..) => format!("{}; and {more} more", shown.join("; ")),
        _ => shown.join("; "),
    }
}

type HostAndPort = (String, u16);

/// Returns the hosts that the write adds.
fn new_hosts(old: Option<&PodTransitionRule>, new: &PodTransitionRule) -> Vec<HostAndPort> {
    let before: BTreeSet<HostAndPort> = old.into_iter().flat_map(hosts).map(|(host, _)| host).collect();
    let mut seen = before;
    hosts(new)
        .filter(|(host, is_called)| *is_called && seen.insert(host.clone()))
        .map(|(host, _)| host)
        .collect()
}

/// Returns the hosts of all URLs. The value is true if the rule is enabled.
fn hosts(object: &PodTransitionRule) -> impl Iterator<Item = (HostAndPort, bool)> {
    object.spec.rules.iter().flat_map(|rule| {
        let client = rule.webhook.as_ref().map(|webhook| &webhook.client_config);
        let poll = client.and_then(|client| client.poll.as_ref()).map(|poll| &poll.url);
        let urls = client.map(|client| &client.url).into_iter().chain(poll);
        urls.filter_map(|url| WebhookUrl::parse(url).ok())
            .map(|url| ((url.host().to_owned(), url.port()), !rule.disabled))
    })
}

impl RuleWebhook {
    /// Returns a warning for each host that cannot be reached.
    async fn try_hosts(&self, hosts: Vec<HostAndPort>, deadline: Instant) -> Vec<String> {
        let until = (Instant::now() + CONNECT_TIMEOUT)
            .min(deadline.checked_sub(RESPONSE_RESERVE).unwrap_or(deadline));
        join_all(hosts.into_iter().take(MAX_HOSTS).map(|host| self.try_host(host, until)))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    async fn try_host(&self, (host, port): HostAndPort, until: Instant) -> Option<String> {
        let _permit = self.dials.try_acquire().ok()?;
        let problem =
            match tokio::time::timeout_at(until.into(), TcpStream::connect((host.as_str(), port))).await {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no response in time".to_owned(),
            };
        Some(format!(
            "the validating-webhook cannot reach {host}:{port} now ({problem}); the rule is accepted nevertheless"
        ))
    }
}
