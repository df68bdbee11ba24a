//! The evaluation of one rule set for one check of a pod.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refusal_cause::RefusalCause;
use super::request::{CheckRequest, CheckStage};
use super::rule_set::{Rule, RuleCheck, RuleSet};
use super::skipped_rules::SkippedRules;
use crate::model::keys::{DELETE_OPERATION, SERVICE_AVAILABLE, Stage};
use crate::protocol::objection::{Objection, PostCheckRejection};

/// The length limit of a reason in bytes. Longer reasons are cut.
const REASON_LIMIT: usize = 512;

/// The pod of a check.
#[derive(Clone, Copy, Debug)]
pub struct RulePod<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.labels`.
    pub labels: &'a BTreeMap<String, String>,
    /// The rules that the annotation [`SKIP_RULES`](crate::keys::SKIP_RULES) skips.
    pub skip: Option<&'a SkippedRules>,
}

impl RulePod<'_> {
    /// Returns whether the pod counts as available: the label `service-available` is present.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.labels.contains_key(SERVICE_AVAILABLE)
    }

    /// Returns whether the pod is out of service and may be deleted by Podward.
    #[must_use]
    pub fn may_be_deleted(&self) -> bool {
        !self.is_available() && self.labels.contains_key(&Stage::Operate.key(DELETE_OPERATION))
    }
}

/// The answer of a webhook to a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAnswer {
    /// The webhook agrees.
    Approved,
    /// The webhook refuses, for this reason. The webhook driver asks it again.
    Rejected(String),
    /// The webhook has not answered yet, for this reason: it needs time, or cannot be called. The webhook driver asks
    /// it again.
    Waiting(String),
}

/// The answers of webhooks.
pub trait WebhookAnswers {
    /// Returns the answer of the webhook `rule` of `set` to a check of `pod`, or `None` when it has not been asked.
    fn answer(
        &self,
        set: &RuleSet,
        rule: &Rule,
        pod: &RulePod<'_>,
        check_request: &CheckRequest,
    ) -> Option<WebhookAnswer>;
}

/// No answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWebhookAnswers;

impl WebhookAnswers for NoWebhookAnswers {
    fn answer(&self, _: &RuleSet, _: &Rule, _: &RulePod<'_>, _: &CheckRequest) -> Option<WebhookAnswer> {
        None
    }
}

/// What comes before the numbers in the reason of a budget that change with its pods.
pub(super) const COUNTS: &str = ", [current ";

// The comment is also the description in the CRD.
/// A rule that refuses a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleRefusal {
    /// The name of the rule.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rule_name: String,
    /// The reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The cause. It is not stored.
    #[serde(skip)]
    pub cause: RefusalCause,
}

impl RuleRefusal {
    /// Returns a refusal by `rule`. A reason that is too long is cut.
    #[must_use]
    pub fn new(rule: &str, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        if reason.len() > REASON_LIMIT {
            let end = (0..=REASON_LIMIT - 3).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
            reason.truncate(end);
            reason.push_str("...");
        }
        RuleRefusal { rule_name: rule.to_owned(), reason, cause: RefusalCause::Other }
    }

    /// Returns the refusal without the numbers that change with each pod that goes or comes back: a status that contained
    /// them for each waiting pod would be written again and again.
    #[must_use]
    pub(super) fn without_counts(mut self) -> Self {
        // The last place: a name of a rule can contain such a text.
        if matches!(self.cause, RefusalCause::MaxUnavailable | RefusalCause::MinAvailable)
            && let Some(end) = self.reason.rfind(COUNTS)
        {
            self.reason.truncate(end);
        }
        self
    }

    /// Returns the refusal with this cause.
    #[must_use]
    pub fn because(self, cause: RefusalCause) -> Self {
        RuleRefusal { cause, ..self }
    }
}

/// The result of a rule set for a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleDecision {
    /// The rules that the pod has passed, in the order of the rule set.
    pub passed: Vec<String>,
    /// The rules that the pod has not passed. Budgets are not among them.
    pub refusals: Vec<RuleRefusal>,
    /// The webhook rules to ask. They are among `refusals`, too.
    pub ask: Vec<String>,
    /// All webhook rules that apply, whatever their answers are.
    pub webhooks: Vec<String>,
    /// The indexes in [`RuleSet::rules`] of the budgets in which the pod needs room.
    pub budgets: Vec<usize>,
    /// The refusals that are reported to the operator.
    pub objections: Vec<Objection>,
}

impl RuleSet {
    /// Returns whether the rule set selects a pod with these labels. The caller compares the namespace.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Evaluates all rules for the check `check_request` of `pod`, which the rule set selects.
    #[must_use]
    pub fn evaluate(
        &self,
        pod: &RulePod<'_>,
        check_request: &CheckRequest,
        answers: &dyn WebhookAnswers,
    ) -> RuleDecision {
        let mut judgement = RuleDecision::default();
        let is_skipped = |rule: &Rule| pod.skip.is_some_and(|skipped| skipped.contains(&rule.name));
        for (place, rule) in self.rules.iter().enumerate() {
            if !rule.takes_part_in(check_request.stage) || is_skipped(rule) || !rule.concerns(pod) {
                continue;
            }
            if rule.check == RuleCheck::Webhook {
                judgement.webhooks.push(rule.name.clone());
            }
            let mut says_no = false;
            let refusal = match &rule.check {
                RuleCheck::Nothing => continue,
                RuleCheck::Available(_) if pod.is_available() => {
                    judgement.budgets.push(place);
                    continue;
                }
                RuleCheck::Available(_) => None,
                RuleCheck::Labels(selector) if selector.matches(pod.labels) => None,
                RuleCheck::Labels(selector) => {
                    says_no = true;
                    Some(format!(
                        "block by label check policy, pod {}/{} labels not match {selector}",
                        pod.namespace, pod.name
                    ))
                }
                RuleCheck::Webhook => match answers.answer(self, rule, pod, check_request) {
                    Some(WebhookAnswer::Approved) => None,
                    Some(WebhookAnswer::Rejected(reason)) => {
                        says_no = true;
                        Some(reason)
                    }
                    Some(WebhookAnswer::Waiting(reason)) => Some(reason),
                    None => {
                        judgement.ask.push(rule.name.clone());
                        Some("its webhook has not answered yet".to_owned())
                    }
                },
                RuleCheck::Unreadable(why) => Some(why.clone()),
            };
            match refusal {
                None => judgement.passed.push(rule.name.clone()),
                Some(reason) => {
                    let cause = match &rule.check {
                        RuleCheck::Webhook => RefusalCause::Webhook,
                        _ => RefusalCause::Other,
                    };
                    let refusal = RuleRefusal::new(&rule.name, reason).because(cause);
                    if check_request.stage == CheckStage::PostCheck
                        && self.post_check_rejection == PostCheckRejection::Rollback
                    {
                        let by = Objection::name_of_rule(&self.name, &rule.name);
                        let reason = says_no.then(|| refusal.reason.clone());
                        judgement.objections.push(Objection { by, reason });
                    }
                    judgement.refusals.push(refusal);
                }
            }
        }
        judgement
    }
}

impl Rule {
    fn concerns(&self, pod: &RulePod<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(pod.labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_at_the_end_of_a_budget_are_left_out() {
        let refusal = RuleRefusal::new(
            "a, [current b",
            "[a, [current b] blocked: [max unavailable]=1/4, [current unavailable]=1/4",
        );
        let kept = refusal.clone().because(RefusalCause::MaxUnavailable).without_counts();
        assert_eq!(kept.reason, "[a, [current b] blocked: [max unavailable]=1/4");
        assert_eq!(refusal.clone().without_counts(), refusal, "it is no budget");
    }
}
