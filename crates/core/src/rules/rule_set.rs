//! Rule sets: the rules of one PodTransitionRule.

use crate::hooks::Selector;
use crate::protocol::objection::PostCheckRejection;

use super::policy::AvailablePolicy;
use super::request::CheckStage;

/// One PodTransitionRule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// `metadata.namespace`. The rule set does not apply to pods of other namespaces.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The selected pods; `None` selects no pods, as an object without a selector does.
    pub selector: Option<Selector>,
    /// The rules.
    pub rules: Vec<Rule>,
    /// The effect of a rule that refuses a result.
    pub post_check_rejection: PostCheckRejection,
}

/// One rule of a rule set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The name.
    pub name: String,
    /// True if the rule is disabled.
    pub disabled: bool,
    /// The stage of the check. `None` for a stage that pods are never in.
    pub stage: Option<CheckStage>,
    /// True if the rule has `conditions`. In the reference these name functions that are registered in the program, and
    /// none is registered, so such a rule is never checked. Here it is never checked either, and admission warns of it.
    pub conditional: bool,
    /// The pods that the rule applies to, among the selected ones; `None` for all.
    pub filter: Option<Selector>,
    /// The requirement.
    pub check: RuleCheck,
}

/// The requirement of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RuleCheck {
    /// The object sets no requirement.
    #[default]
    Nothing,
    /// A limit of unavailable pods.
    Available(AvailablePolicy),
    /// Labels that the pod must have.
    Labels(Selector),
    /// A webhook that must agree.
    Webhook,
    /// The rule cannot be read, for this reason. It refuses every pod.
    Unreadable(String),
}

impl Rule {
    /// Returns whether the rule is checked in `stage`.
    #[must_use]
    pub fn takes_part_in(&self, stage: CheckStage) -> bool {
        !self.disabled && !self.conditional && self.stage == Some(stage) && self.check != RuleCheck::Nothing
    }
}

impl RuleSet {
    /// Reads the `stage` of a rule. The default is [`CheckStage::PreCheck`]; an unknown stage is `None`.
    #[must_use]
    pub fn stage_of(stage: Option<&str>) -> Option<CheckStage> {
        match stage {
            None => Some(CheckStage::PreCheck),
            Some(stage) => CheckStage::ALL.into_iter().find(|known| known.as_str() == stage),
        }
    }

    /// Returns whether any of the rules limits the number of unavailable pods.
    #[must_use]
    pub fn has_budget(&self) -> bool {
        let is_budget = |rule: &Rule| matches!(rule.check, RuleCheck::Available(_));
        let is_asked = |rule: &Rule| CheckStage::ALL.into_iter().any(|stage| rule.takes_part_in(stage));
        self.rules.iter().any(|rule| is_budget(rule) && is_asked(rule))
    }
}
