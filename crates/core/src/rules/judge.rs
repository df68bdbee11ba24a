//! What the rules of one rule set say to one asking of one pod.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::asking::{Asking, CheckStage};
use super::{Check, Rule, RuleSet};
use crate::keys::SERVICE_AVAILABLE;
use crate::refusals::{Objection, PostCheckRejection};

/// A reason may have so many bytes; what is longer is cut.
const REASON_LIMIT: usize = 512;

/// A pod that rules are asked about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.labels`.
    pub labels: &'a BTreeMap<String, String>,
    /// The text of the annotation [`SKIP_RULES`](crate::keys::SKIP_RULES).
    pub skip: Option<&'a str>,
}

impl Subject<'_> {
    /// Whether it is in service, as far as rules are concerned: the label `service-available` is there.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.labels.contains_key(SERVICE_AVAILABLE)
    }
}

/// What a webhook has answered to an asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It agrees.
    Approved,
    /// It doesn't, for this reason. It will be asked again without our doing.
    Rejected(String),
    /// It has said neither yet, for this reason: it takes its time, or can't be asked. It goes on to be asked without our doing.
    Waiting(String),
}

/// What is known of the answers of webhooks.
pub trait Answers {
    /// The answer of the webhook `rule` of `set` to what `pod` asks; `None` when it hasn't been asked.
    fn answer(&self, set: &RuleSet, rule: &Rule, pod: &Subject<'_>, asking: &Asking) -> Option<Answer>;
}

/// No webhook has been asked anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAnswers;

impl Answers for NoAnswers {
    fn answer(&self, _: &RuleSet, _: &Rule, _: &Subject<'_>, _: &Asking) -> Option<Answer> {
        None
    }
}

// As the resource's schema has it.
/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Whose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rule_name: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Refusal {
    /// A refusal by `rule`; a reason that is too long is cut.
    #[must_use]
    pub fn new(rule: &str, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        if reason.len() > REASON_LIMIT {
            let end = (0..=REASON_LIMIT - 3).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
            reason.truncate(end);
            reason.push_str("...");
        }
        Refusal { rule_name: rule.to_owned(), reason }
    }
}

/// What a rule set says to an asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The rules that it has passed, in the order that they stand in.
    pub passed: Vec<String>,
    /// The rules that it hasn't. Budgets are not among them.
    pub refusals: Vec<Refusal>,
    /// The webhook rules that are to be asked about it; they are among `refusals` too.
    pub ask: Vec<String>,
    /// All webhook rules that are for it, whatever they say.
    pub webhooks: Vec<String>,
    /// The places in [`RuleSet::rules`] of the budgets in which it needs room.
    pub budgets: Vec<usize>,
    /// Those of `refusals` of which an operator is to be told that his result is refused.
    pub objections: Vec<Objection>,
}

/// The rules that a pod is to pass without being asked, as its annotation [`SKIP_RULES`](crate::keys::SKIP_RULES) names them, in any
/// rule set. A text that can't be read names none.
#[must_use]
pub fn skipped_rules(text: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Skip {
        #[serde(default, rename = "skipRules")]
        rules: Option<Vec<String>>,
    }
    serde_json::from_str::<Skip>(text).ok().and_then(|skip| skip.rules).unwrap_or_default()
}

impl RuleSet {
    /// Whether it selects a pod with these labels; the pod's namespace is the caller's to know.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// What its rules say to `asking` of `pod`, which it selects. All rules are looked at, whatever the others say.
    #[must_use]
    pub fn judge(&self, pod: &Subject<'_>, asking: &Asking, answers: &dyn Answers) -> Judgement {
        let mut judgement = Judgement::default();
        let skipped = pod.skip.map(skipped_rules).unwrap_or_default();
        for (place, rule) in self.rules.iter().enumerate() {
            if !rule.takes_part_in(asking.stage) || skipped.contains(&rule.name) || !rule.concerns(pod) {
                continue;
            }
            if rule.check == Check::Webhook {
                judgement.webhooks.push(rule.name.clone());
            }
            let mut says_no = false;
            let refusal = match &rule.check {
                Check::Nothing => continue,
                Check::Available(_) if pod.is_available() => {
                    judgement.budgets.push(place);
                    continue;
                }
                Check::Available(_) => None,
                Check::Labels(selector) if selector.matches(pod.labels) => None,
                Check::Labels(selector) => {
                    says_no = true;
                    Some(format!(
                        "block by label check policy, pod {}/{} labels not match {selector}",
                        pod.namespace, pod.name
                    ))
                }
                Check::Webhook => match answers.answer(self, rule, pod, asking) {
                    Some(Answer::Approved) => None,
                    Some(Answer::Rejected(reason)) => {
                        says_no = true;
                        Some(reason)
                    }
                    Some(Answer::Waiting(reason)) => Some(reason),
                    None => {
                        judgement.ask.push(rule.name.clone());
                        Some("its webhook has not answered yet".to_owned())
                    }
                },
                Check::Unreadable(why) => Some(why.clone()),
            };
            match refusal {
                None => judgement.passed.push(rule.name.clone()),
                Some(reason) => {
                    let refusal = Refusal::new(&rule.name, reason);
                    if asking.stage == CheckStage::PostCheck
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
    fn concerns(&self, pod: &Subject<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(pod.labels))
    }
}
