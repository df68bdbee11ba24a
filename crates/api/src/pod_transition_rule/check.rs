//! The stage and the check of a rule.

use super::{AvailablePolicy, LabelCheck, TransitionRule, TransitionRuleWebhook};

/// The stage at which a rule is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleStage {
    /// Before an operation may begin.
    PreCheck,
    /// After an operation, before the pod returns to service.
    PostCheck,
}

impl RuleStage {
    /// Returns the name of the stage in the resource.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RuleStage::PreCheck => "PreCheck",
            RuleStage::PostCheck => "PostCheck",
        }
    }
}

/// The check of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RuleCheckSpec<'a> {
    /// Limits the number of unavailable pods.
    Available(&'a AvailablePolicy),
    /// Requires labels of the pod.
    Labels(&'a LabelCheck),
    /// Asks a system over HTTP.
    Webhook(&'a TransitionRuleWebhook),
}

impl TransitionRule {
    /// Returns the stage at which the rule is checked, or `None` if the stage is unknown and the rule is never
    /// checked.
    #[must_use]
    pub fn parsed_stage(&self) -> Option<RuleStage> {
        match self.stage.as_deref() {
            None | Some("PreCheck") => Some(RuleStage::PreCheck),
            Some("PostCheck") => Some(RuleStage::PostCheck),
            Some(_) => None,
        }
    }

    /// Returns the check, or `None` if the rule has none. If there are several, which the schema rejects, it returns
    /// the first in the order of KusionStack.
    #[must_use]
    pub fn parsed_check(&self) -> Option<RuleCheckSpec<'_>> {
        let available = self.available_policy.as_ref().map(RuleCheckSpec::Available);
        let labels = || self.label_check.as_ref().map(RuleCheckSpec::Labels);
        let webhook = || self.webhook.as_ref().map(RuleCheckSpec::Webhook);
        available.or_else(labels).or_else(webhook)
    }
}
