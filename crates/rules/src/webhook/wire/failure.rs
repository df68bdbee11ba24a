//! Calls without a usable answer.

use super::super::outcome::RuleWebhookOutcome;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WebhookFailure {
    /// The webhook answered with an error, or its answer can't be read. The rule's failure policy applies.
    Webhook(String),
    /// The webhook was not called, because of its address. The rule's failure policy applies.
    NotAllowed(HiddenReason),
    /// The webhook can't be reached, its certificate is not trusted, or it does not answer with HTTP. The rule's
    /// failure policy applies.
    Unreachable(HiddenReason),
    /// There was no answer in time. The rule's failure policy applies.
    Late(HiddenReason),
    /// The call was not made because something failed on this side. It is retried, whatever the policy.
    Local(String),
    /// The call was not made because each pod that waits is too large for a request.
    TooLarge,
}

/// A failure whose reason the author of the rule must not learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HiddenReason {
    /// For statuses, conditions, events and traces. It is the same for an open port and for a closed one.
    pub(crate) text: String,
    /// For the log of this process only.
    pub(crate) reason: String,
}

impl WebhookFailure {
    /// Returns the text for everybody.
    pub(crate) fn text(&self) -> &str {
        match self {
            WebhookFailure::Webhook(text) | WebhookFailure::Local(text) => text,
            WebhookFailure::TooLarge => "no pod that waits fits into a request",
            WebhookFailure::NotAllowed(hidden)
            | WebhookFailure::Unreachable(hidden)
            | WebhookFailure::Late(hidden) => &hidden.text,
        }
    }

    /// Returns the reason that is only for the log; an empty text if [`text`](Self::text) says everything.
    pub(crate) fn reason_to_log(&self) -> &str {
        match self {
            WebhookFailure::Webhook(_) | WebhookFailure::Local(_) | WebhookFailure::TooLarge => "",
            WebhookFailure::NotAllowed(hidden)
            | WebhookFailure::Unreachable(hidden)
            | WebhookFailure::Late(hidden) => &hidden.reason,
        }
    }

    /// True if the webhook failed, so that the rule's failure policy applies.
    pub(crate) fn is_of_webhook(&self) -> bool {
        !matches!(self, WebhookFailure::Local(_) | WebhookFailure::TooLarge)
    }

    pub(crate) fn outcome(&self) -> RuleWebhookOutcome {
        match self {
            WebhookFailure::Webhook(_) => RuleWebhookOutcome::Failed,
            WebhookFailure::NotAllowed(_) => RuleWebhookOutcome::NotAllowed,
            WebhookFailure::Unreachable(_) => RuleWebhookOutcome::Unreachable,
            WebhookFailure::Late(_) => RuleWebhookOutcome::Timeout,
            WebhookFailure::Local(_) | WebhookFailure::TooLarge => RuleWebhookOutcome::Unsent,
        }
    }
}
