//! A PodTransitionRule as it was last read or written.

use std::sync::Arc;

use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{PodTransitionRuleStatus, TransitionRule};
use podward_core::rules::{CheckRequest, Grants, RulePod, RuleSet, WebhookAnswers};

/// A PodTransitionRule as it was last read or written.
#[derive(Clone, Debug)]
pub(crate) struct RuleRecord {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) version: String,
    pub(crate) set: Arc<RuleSet>,
    /// The object; `None` if it can't be read.
    pub(crate) object: Option<Arc<PodTransitionRule>>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) status: Arc<PodTransitionRuleStatus>,
    /// The version of the object after which this controller read the pods, if another controller wrote it.
    pub(crate) pods_read_after: Option<String>,
}

impl RuleRecord {
    pub(crate) fn new(object: PodTransitionRule) -> Self {
        let status = Arc::new(object.status.clone().unwrap_or_default());
        let metadata = &object.metadata;
        RuleRecord {
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            set: Arc::new(object.to_rule_set()),
            grants: Arc::new(Grants::new(status.holder.clone(), status.grants.clone())),
            status,
            object: Some(Arc::new(object)),
            pods_read_after: None,
        }
    }

    /// Returns the rules that are consulted: those with a webhook.
    pub(crate) fn webhook_rules(&self) -> impl Iterator<Item = &TransitionRule> {
        let rules = self.object.iter().flat_map(|object| &object.spec.rules);
        rules.filter(|rule| rule.webhook.is_some())
    }

    /// Returns the resource version as a number. Later versions have larger numbers.
    pub(crate) fn version_number(&self) -> u64 {
        self.version.parse().unwrap_or_default()
    }

    /// True if a pod that the rule set selects needs room in its budgets for `request`, and has no grant.
    pub(crate) fn needs_room(
        &self,
        pod: &RulePod<'_>,
        request: &CheckRequest,
        answers: &dyn WebhookAnswers,
    ) -> bool {
        !self.grants.has(pod.uid, request) && !self.set.evaluate(pod, request, answers).budgets.is_empty()
    }

    /// True if this controller, `holder`, knows the pods at least as well as the controller that wrote the grants did.
    pub(crate) fn is_current(&self, holder: &str) -> bool {
        self.grants.holder() == holder || self.pods_read_after.as_ref() == Some(&self.version)
    }
}
