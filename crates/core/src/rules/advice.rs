//! Advice for people about a rule that refuses.

use super::rule_set::RuleCheck;

impl RuleCheck {
    /// Returns the kind of the rule: the field of the rule that it sets.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            RuleCheck::Nothing => "nothing",
            RuleCheck::Available(_) => "availablePolicy",
            RuleCheck::Labels(_) => "labelCheck",
            RuleCheck::Webhook => "webhook",
            RuleCheck::Unreadable(_) => "unreadable",
        }
    }

    /// Returns what comes next after a refusal, and what people can do.
    #[must_use]
    pub const fn next_step(&self) -> &'static str {
        match self {
            RuleCheck::Nothing => "the rule checks nothing",
            RuleCheck::Available(_) => {
                "pods continue in the order of their requests when enough other pods are in service; look for pods that do not become available, or allow more unavailable pods"
            }
            RuleCheck::Labels(_) => {
                "the pod continues as soon as its labels match; ask the owner of the labels"
            }
            RuleCheck::Webhook => {
                "Podward calls the webhook again automatically; its owner knows the reason, and events of the PodTransitionRule report failures"
            }
            RuleCheck::Unreadable(_) => {
                "correct the PodTransitionRule: its condition Accepted reports the error"
            }
        }
    }
}
