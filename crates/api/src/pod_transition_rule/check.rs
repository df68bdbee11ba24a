//! How a rule reads.

use super::{AvailablePolicy, LabelCheck, TransitionRule, TransitionRuleWebhook};

/// When a rule is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleStage {
    /// Before an operation may begin.
    PreCheck,
    /// After an operation, before the pod goes back into service.
    PostCheck,
}

impl RuleStage {
    /// The wire's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RuleStage::PreCheck => "PreCheck",
            RuleStage::PostCheck => "PostCheck",
        }
    }
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check<'a> {
    /// How many pods are unavailable.
    Available(&'a AvailablePolicy),
    /// The pod's labels.
    Labels(&'a LabelCheck),
    /// What a system outside says.
    Webhook(&'a TransitionRuleWebhook),
}

impl TransitionRule {
    /// When it is asked. `None` for a stage that there is not: then never.
    #[must_use]
    pub fn asked_in(&self) -> Option<RuleStage> {
        match self.stage.as_deref() {
            None | Some("PreCheck") => Some(RuleStage::PreCheck),
            Some("PostCheck") => Some(RuleStage::PostCheck),
            Some(_) => None,
        }
    }

    /// What it looks at; of several, which the schema refuses, the first as in KusionStack. `None` when it is nothing.
    #[must_use]
    pub fn looks_at(&self) -> Option<Check<'_>> {
        let available = self.available_policy.as_ref().map(Check::Available);
        let labels = || self.label_check.as_ref().map(Check::Labels);
        let webhook = || self.webhook.as_ref().map(Check::Webhook);
        available.or_else(labels).or_else(webhook)
    }
}
