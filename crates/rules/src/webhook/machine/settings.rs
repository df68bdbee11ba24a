//! The settings of a webhook rule that the state machine uses.

use std::time::Duration;

use podward_api::pod_transition_rule::{TransitionRuleWebhook, WebhookFailurePolicy};
use podward_runtime::retry::{self, ExponentialBuilder};

/// How a webhook that failed is called again.
pub(crate) const RETRY: ExponentialBuilder = retry::jittered(Duration::from_secs(1), Duration::from_secs(30));

/// How tasks are polled, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskPolling {
    pub(crate) interval: i64,
    pub(crate) timeout: i64,
}

/// The settings of a webhook rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookSettings {
    /// The URLs of the webhook. When they change, earlier answers and tasks are dropped.
    pub(crate) address: String,
    /// True if pods pass when the webhook fails. When it becomes false, those that passed so are asked about again.
    pub(crate) ignores_failures: bool,
    /// `None` if the rule has no `clientConfig.poll`.
    pub(crate) polling: Option<TaskPolling>,
}

impl WebhookSettings {
    /// Returns the settings of `webhook`.
    pub(crate) fn of(webhook: &TransitionRuleWebhook) -> Self {
        let client = &webhook.client_config;
        let poll = client.poll.as_ref();
        let nanos = |seconds: i64| seconds.clamp(1, 604_800).saturating_mul(1_000_000_000);
        let poll_address = poll.map(|poll| format!("{} {}", poll.url, poll.raw_query_key));
        Self {
            address: format!("{} {}", client.url, poll_address.unwrap_or_default()),
            ignores_failures: webhook.failure_policy == WebhookFailurePolicy::Ignore,
            polling: poll.map(|poll| TaskPolling {
                interval: nanos(poll.interval_seconds),
                timeout: nanos(poll.timeout_seconds),
            }),
        }
    }
}
