//! The endpoints of a rule's webhook.

use podward_api::pod_transition_rule::TransitionRuleWebhook;
use podward_runtime::address_policy::GuardedDialer;

use super::client::{CALL_TIMEOUT, WebhookEndpoint};
use super::wire::WebhookFailure;

/// The webhook of a rule, and the endpoints that it names.
pub(super) struct WebhookTarget {
    pub(super) webhook: TransitionRuleWebhook,
    pub(super) stage: Option<String>,
    pub(super) post: Result<WebhookEndpoint, WebhookFailure>,
    /// `None` if the rule has no `clientConfig.poll`.
    pub(super) poll: Option<Result<WebhookEndpoint, WebhookFailure>>,
}

impl WebhookTarget {
    pub(super) fn new(webhook: &TransitionRuleWebhook, stage: Option<&str>, dialer: &GuardedDialer) -> Self {
        let client = &webhook.client_config;
        let poll = client.poll.as_ref();
        Self {
            webhook: webhook.clone(),
            stage: stage.map(str::to_owned),
            post: WebhookEndpoint::new(&client.url, &client.ca_bundle, CALL_TIMEOUT, dialer),
            poll: poll.map(|poll| WebhookEndpoint::new(&poll.url, &poll.ca_bundle, CALL_TIMEOUT, dialer)),
        }
    }

    /// True if the target was created from `webhook` and `stage`.
    pub(super) fn is_of(&self, webhook: &TransitionRuleWebhook, stage: Option<&str>) -> bool {
        self.webhook == *webhook && self.stage.as_deref() == stage
    }
}
