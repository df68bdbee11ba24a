//! The identity of a webhook rule.

/// Identifies a webhook rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WebhookRuleId {
    /// The namespace of the PodTransitionRule.
    pub(crate) namespace: String,
    /// The name of the PodTransitionRule.
    pub(crate) object: String,
    /// The UID of the PodTransitionRule.
    pub(crate) uid: String,
    /// The name of the rule in the PodTransitionRule.
    pub(crate) rule: String,
}
