//! The outcomes of calls, for metrics and traces.

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// The outcome of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RuleWebhookOutcome {
    /// The webhook lets all pods of the call pass.
    Passed,
    /// A task runs, which is polled.
    Polling,
    /// The webhook refused a pod.
    Rejected,
    /// The address policy refuses the addresses of the webhook.
    NotAllowed,
    /// The webhook can't be reached, its certificate is not trusted, or it does not answer with HTTP.
    Unreachable,
    /// There was no answer in time.
    Timeout,
    /// The webhook answered with an error, or its answer can't be read.
    Failed,
    /// The call was not made because something failed on this side.
    Unsent,
}

impl RuleWebhookOutcome {
    pub(crate) const ALL: [RuleWebhookOutcome; 8] = [
        RuleWebhookOutcome::Passed,
        RuleWebhookOutcome::Polling,
        RuleWebhookOutcome::Rejected,
        RuleWebhookOutcome::NotAllowed,
        RuleWebhookOutcome::Unreachable,
        RuleWebhookOutcome::Timeout,
        RuleWebhookOutcome::Failed,
        RuleWebhookOutcome::Unsent,
    ];

    /// Returns the name in metrics and spans.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            RuleWebhookOutcome::Passed => "passed",
            RuleWebhookOutcome::Polling => "polling",
            RuleWebhookOutcome::Rejected => "rejected",
            RuleWebhookOutcome::NotAllowed => "not_allowed",
            RuleWebhookOutcome::Unreachable => "unreachable",
            RuleWebhookOutcome::Timeout => "timeout",
            RuleWebhookOutcome::Failed => "failed",
            RuleWebhookOutcome::Unsent => "unsent",
        }
    }
}

impl EncodeLabelValue for RuleWebhookOutcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.as_str(), encoder)
    }
}
