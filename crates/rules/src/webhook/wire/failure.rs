//! Calls without a usable answer.

use super::super::outcome::RuleWebhookOutcome;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookFailure {
    /// The webhook answered with an error, or its answer can't be read. The rule's failure policy applies.
    Webhook(String),
    /// The webhook can't be reached, or its certificate is not trusted. The rule's failure policy applies.
    Unreachable(String),
    /// There was no answer in time. The rule's failure policy applies.
    Late(String),
    /// The call was not made because something failed on this side. It is retried, whatever the policy.
    Local(String),
}

impl WebhookFailure {
    /// Returns what went wrong.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            WebhookFailure::Webhook(text)
            | WebhookFailure::Unreachable(text)
            | WebhookFailure::Late(text)
            | WebhookFailure::Local(text) => text,
        }
    }

    /// True if the webhook failed, so that the rule's failure policy applies.
    pub(crate) fn is_of_webhook(&self) -> bool {
        !matches!(self, WebhookFailure::Local(_))
    }

    pub(crate) fn outcome(&self) -> RuleWebhookOutcome {
        match self {
            WebhookFailure::Webhook(_) => RuleWebhookOutcome::Failed,
            WebhookFailure::Unreachable(_) => RuleWebhookOutcome::Unreachable,
            WebhookFailure::Late(_) => RuleWebhookOutcome::Timeout,
            WebhookFailure::Local(_) => RuleWebhookOutcome::Unsent,
        }
    }
}
