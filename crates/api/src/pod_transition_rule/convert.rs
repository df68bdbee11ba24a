//! Conversion of a `PodTransitionRule` to the rules of `podward-core`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use podward_core::PostCheckRejection;
use podward_core::hooks::Selector;
use podward_core::keys::POST_CHECK_REJECTION;
use podward_core::rules;

use super::{
    AdaptivePolicy, AvailablePolicy, PodTransitionRule, RuleCheckSpec, TransitionRule, WebhookFailurePolicy,
};
use crate::selector::compile;

impl PodTransitionRule {
    /// Returns the rules for `podward-core`. An invalid rule blocks its pods and states the reason. An object with an
    /// invalid selector selects and blocks all pods of its namespace, because it is unknown which pods it protects.
    #[must_use]
    pub fn to_rule_set(&self) -> rules::RuleSet {
        let mut found: Vec<rules::Rule> = self.spec.rules.iter().map(TransitionRule::to_rule).collect();
        let selector = match self.spec.selector.as_ref().map(compile) {
            None => None,
            Some(Ok(selector)) => Some(selector),
            Some(Err(error)) => {
                found = blocking(&format!("the selector of the PodTransitionRule is invalid: {error}"));
                Some(Selector::everything())
            }
        };
        let post_check_rejection = self.rejection().and_then(PostCheckRejection::parse).unwrap_or_default();
        if post_check_rejection == PostCheckRejection::Rollback {
            self.block_ignoring(&mut found);
        }
        let metadata = &self.metadata;
        rules::RuleSet {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            selector,
            rules: found,
            post_check_rejection,
        }
    }

    /// Returns the rules for an object that cannot be parsed. They select and block all pods of its namespace. `why`
    /// is the error.
    #[must_use]
    pub fn unreadable(namespace: &str, name: &str, why: &str) -> rules::RuleSet {
        rules::RuleSet {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            selector: Some(Selector::everything()),
            rules: blocking(&format!("the PodTransitionRule cannot be read: {why}")),
            ..rules::RuleSet::default()
        }
    }

    /// Makes rules that must not have the failure policy Ignore block their pods: a refused result must not be
    /// accepted while the webhook that refuses it is unreachable. Admission rejects such objects, but may have been
    /// down.
    fn block_ignoring(&self, found: &mut [rules::Rule]) {
        for (rule, of) in found.iter_mut().zip(&self.spec.rules) {
            let ignores =
                of.webhook.as_ref().is_some_and(|hook| hook.failure_policy == WebhookFailurePolicy::Ignore);
            if ignores
                && rule.stage == Some(rules::CheckStage::PostCheck)
                && rule.check == rules::RuleCheck::Webhook
            {
                let why = format!("failurePolicy must be Fail with {POST_CHECK_REJECTION}: Rollback");
                rule.check = rules::RuleCheck::Unreadable(why);
            }
        }
    }

    /// Returns the value of the annotation [`POST_CHECK_REJECTION`], or `None` if it is not set.
    pub(super) fn rejection(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(POST_CHECK_REJECTION).map(String::as_str)
    }
}

/// Returns one rule per stage that blocks every pod.
fn blocking(why: &str) -> Vec<rules::Rule> {
    let rule = |stage: rules::CheckStage| rules::Rule {
        name: stage.as_str().to_owned(),
        stage: Some(stage),
        check: rules::RuleCheck::Unreadable(why.to_owned()),
        ..rules::Rule::default()
    };
    rules::CheckStage::ALL.map(rule).to_vec()
}

impl TransitionRule {
    fn to_rule(&self) -> rules::Rule {
        let filter = self.filter.as_ref().and_then(|filter| filter.label_selector.as_ref()).map(compile);
        let (filter, fault) = match filter {
            None => (None, None),
            Some(Ok(filter)) => (Some(filter), None),
            Some(Err(error)) => (None, Some(format!("the filter of the rule is invalid: {error}"))),
        };
        let check = match (fault, self.parsed_check()) {
            (_, None) => rules::RuleCheck::Nothing,
            (Some(fault), Some(_)) => rules::RuleCheck::Unreadable(fault),
            (None, Some(RuleCheckSpec::Available(policy))) => {
                limits(policy).map_or_else(|error| self.unreadable(&error), rules::RuleCheck::Available)
            }
            (None, Some(RuleCheckSpec::Labels(labels))) => requires(&labels.requires),
            (None, Some(RuleCheckSpec::Webhook(_))) => rules::RuleCheck::Webhook,
        };
        rules::Rule {
            name: self.name.clone(),
            disabled: self.disabled,
            stage: rules::RuleSet::stage_of(self.stage.as_deref()),
            conditional: !self.conditions.is_empty(),
            filter,
            check,
        }
    }

    fn unreadable(&self, error: &rules::InvalidAmount) -> rules::RuleCheck {
        rules::RuleCheck::Unreadable(format!(
            "[{}] fail to get int value of availablePolicy, error: {error}",
            self.name
        ))
    }
}

fn requires(selector: &LabelSelector) -> rules::RuleCheck {
    match compile(selector) {
        Ok(selector) => rules::RuleCheck::Labels(selector),
        Err(error) => rules::RuleCheck::Unreadable(format!("labelCheck error: {error}")),
    }
}

fn limits(policy: &AvailablePolicy) -> Result<rules::AvailablePolicy, rules::InvalidAmount> {
    let list = |value: &Option<IntOrString>, function: &Option<AdaptivePolicy>| {
        let amount = match value {
            None => None,
            Some(IntOrString::Int(pods)) => Some(rules::Amount::pods(*pods)?),
            Some(IntOrString::String(text)) => Some(rules::Amount::percentage(text)?),
        };
        let function = function.as_ref().and_then(|policy| policy.exp_func.as_ref());
        let function = function
            .map(|function| rules::ExpFunc::new(function.coeff.as_deref(), function.pow.as_deref()))
            .transpose()?;
        let limits = amount.map(rules::Limit::Amount).into_iter().chain(function.map(rules::Limit::Function));
        Ok(limits.collect())
    };
    Ok(rules::AvailablePolicy {
        max_unavailable: list(&policy.max_unavailable_value, &policy.max_unavailable_policy)?,
        min_available: list(&policy.min_available_value, &policy.min_available_policy)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(spec: serde_json::Value) -> rules::RuleSet {
        let object = json!({
            "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": spec,
        });
        serde_json::from_value::<PodTransitionRule>(object).unwrap().to_rule_set()
    }

    #[test]
    fn valid_rules_are_converted() {
        let found = set(json!({
            "selector": {"matchLabels": {"app": "web"}},
            "rules": [
                {"name": "a", "availablePolicy": {
                    "maxUnavailableValue": "25%", "maxUnavailablePolicy": {"expFunc": {"pow": "0.5"}}, "minAvailableValue": 2,
                }},
                {"name": "b", "stage": "PostCheck", "disabled": true, "labelCheck": {"requires": {"matchLabels": {"x": "y"}}}},
                {"name": "c", "stage": "Lunch", "conditions": ["any"], "webhook": {"clientConfig": {"url": "http://a"}}},
            ],
        }));
        let rules::RuleCheck::Available(policy) = &found.rules[0].check else { panic!("{found:?}") };
        assert_eq!((policy.most_unavailable(100), policy.fewest_available(100)), (10, 2));
        assert_eq!(found.rules[0].stage, Some(rules::CheckStage::PreCheck));
        assert!(found.rules[1].disabled && matches!(found.rules[1].check, rules::RuleCheck::Labels(_)));
        assert!(found.rules[2].conditional && found.rules[2].stage.is_none());
        assert_eq!(found.rules[2].check, rules::RuleCheck::Webhook);
        assert_eq!((found.namespace.as_str(), found.name.as_str()), ("shop", "web"));
        assert!(set(json!({"rules": []})).selector.is_none(), "no selector selects nothing");
    }

    #[test]
    fn invalid_rules_block() {
        let found = set(json!({
            "selector": {},
            "rules": [
                {"name": "a", "availablePolicy": {"maxUnavailableValue": "many"}},
                {"name": "b", "labelCheck": {"requires": {"matchExpressions": [{"key": "x", "operator": "Is"}]}}},
                {"name": "c", "filter": {"labelSelector": {"matchExpressions": [{"key": "x", "operator": "In"}]}},
                 "labelCheck": {"requires": {}}},
                {"name": "d"},
            ],
        }));
        let refuses = |rule: &rules::Rule| matches!(rule.check, rules::RuleCheck::Unreadable(_));
        assert_eq!(found.rules.iter().map(refuses).collect::<Vec<_>>(), [true, true, true, false]);
        let found =
            set(json!({"selector": {"matchExpressions": [{"key": "x", "operator": "Is"}]}, "rules": []}));
        assert!(found.selects(&std::collections::BTreeMap::new()) && found.rules.iter().all(refuses));
        assert_eq!(found.rules.len(), 2);
    }
}
