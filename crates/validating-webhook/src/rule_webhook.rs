//! The webhook for PodTransitionRules. It denies invalid rules with the field, and warns about rules that are probably
//! wrong.
//!
//! It opens no connections to the webhooks of rules and resolves no names: its answers would tell the author of the
//! rule which addresses and ports are in use. It warns about an address in a URL that the lifecycle-controller refuses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{RuleFinding, WebhookUrl};
use podward_runtime::address_policy::AddressPolicy;
use podward_runtime::admission::{
    AdmissionDecision, AdmissionOperation, AdmissionRequest, AdmissionResponse, Webhook, WebhookRoute,
};
use serde::{Deserialize, Deserializer};

static ROUTES: [WebhookRoute; 1] = [WebhookRoute {
    path: "/rules",
    api: ("apps.kusionstack.io", "v1alpha1"),
    resources: &[("podtransitionrules", "")],
    operations: &[AdmissionOperation::Create, AdmissionOperation::Update],
}];

/// The maximum number of errors in a response.
const MAX_ERRORS: usize = 16;

/// Reviews writes to PodTransitionRules.
#[derive(Debug)]
pub struct RuleWebhook {
    addresses: AddressPolicy,
}

impl RuleWebhook {
    /// Returns the webhook. `addresses` is the policy of the lifecycle-controller, as far as this process knows it.
    #[must_use]
    pub fn new(addresses: AddressPolicy) -> Self {
        Self { addresses }
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
        AdmissionResponse::allow().warn(warnings).warn(self.refused_hosts(new)).into()
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

impl RuleWebhook {
    /// Returns a warning for each address in a URL of an enabled rule that the lifecycle-controller will not connect
    /// to.
    fn refused_hosts(&self, object: &PodTransitionRule) -> Vec<String> {
        let enabled = object.spec.rules.iter().filter(|rule| !rule.disabled);
        let clients = enabled.filter_map(|rule| rule.webhook.as_ref()).map(|webhook| &webhook.client_config);
        let urls = clients.flat_map(|client| {
            std::iter::once(&client.url).chain(client.poll.as_ref().map(|poll| &poll.url))
        });
        let refused: BTreeSet<String> = urls.filter_map(|url| self.refused_host(url)).collect();
        refused.into_iter().collect()
    }

    fn refused_host(&self, url: &str) -> Option<String> {
        let url = WebhookUrl::parse(url).ok()?;
        let address: IpAddr = match url.host() {
            name if name.eq_ignore_ascii_case("localhost") => IpAddr::from([127, 0, 0, 1]),
            host => host.parse().ok()?,
        };
        let class = self.addresses.check(address).err()?;
        Some(format!(
            "the lifecycle-controller does not call webhooks at {host}, which is {class}; an administrator can \
             allow it with global.allowedAddresses of the chart",
            host = url.host()
        ))
    }
}
