//! Rules: who may start an operation now, and whether its result is good.
//!
//! A [`RuleSet`] is one PodTransitionRule. It is asked about every pod of its namespace that it selects, while an operation on that pod
//! is in a check ([`Asking`]). Three parts decide, none of which asks anybody anything:
//!
//! ```text
//!  RuleIndex::selecting(namespace, labels) ─► the rule sets of a pod
//!  RuleSet::judge(pod, asking, answers)    ─► who refuses, which webhooks are to be asked, which budgets it needs room in
//!  settle(sets, pods)                      ─► who gets room: the new ledgers of the rule sets
//!  reports(...)                            ─► the statuses of the rule objects
//! ```
//!
//! # Budgets come last
//! The reference asks `availablePolicy` before `labelCheck` and `webhook`, and a pod that one of those refuses keeps the room that it was
//! given. Here room is given when nothing else speaks against the operation: no other rule, no hook, and nobody else who is asked. So a
//! pod that may not go takes no room from those that may, and a pod that several budgets concern gets room in all of them or in none.
//! The older asker comes first; which rule is asked first makes no difference, and every refusal is told.
//!
//! # Why a budget is never overdrawn
//! A [`Grant`] is written to the rule object's status *before* the pod is let through, with the object's resource version as
//! precondition, and the pod is let through by a write with the pod's resource version as precondition. So, whoever writes:
//!
//! - Of two who decide on the same ledger one is refused, reads it anew and decides again.
//! - A grant names the operation and the time that it asked at, and stays in the ledger while this very asking is on the pod. So whoever
//!   lets the pod through, however late, does so while the grant counts: his write is refused when the asking is over. The same write
//!   takes the pod out of service, so that from then on the pod counts by itself.
//! - A grant is dropped by somebody who has seen the pod after it. Who decides on a ledger that another one wrote
//!   ([`Ledger::holder`]) must have read the pods after that ledger, or the pod would look to him as if it had never gone.
//! - A grant is not taken back. Where an asking has one and is refused all the same, it is to be put anew ([`Settlement::renew`]): with
//!   another time it is another asking.

mod advice;
mod asking;
mod index;
mod json_room;
mod judge;
mod ledger;
mod policy;
mod report;
mod settle;

use crate::hooks::Selector;
use crate::refusals::PostCheckRejection;

pub use asking::{Asking, CheckStage, askings};
pub use index::RuleIndex;
pub use json_room::JsonRoom;
pub use judge::{Answer, Answers, Judgement, NoAnswers, Refusal, Subject, skipped_rules};
pub use ledger::{GRANTS_LIMIT, Grant, Ledger};
pub use policy::{Amount, AvailablePolicy, ExpFunc, InvalidAmount, Limit};
pub use report::{Detail, Report, reports};
pub use settle::{Budget, Member, Others, Room, Settlement, Verdict, settle};

/// One PodTransitionRule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// `metadata.namespace`: pods of others are none of its business.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The pods that it is for; `None` for no pods, as an object without selector says.
    pub selector: Option<Selector>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// What it means that one of them says no to a result.
    pub post_check_rejection: PostCheckRejection,
}

/// One rule of a rule set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Whether it is left out.
    pub disabled: bool,
    /// When it is asked. `None` for a stage that pods are never in.
    pub stage: Option<CheckStage>,
    /// Whether it has `conditions`. In the reference these are names of functions that are registered in the program, a rule is asked when
    /// one of them holds, and none is registered. None is here either: such a rule is never asked, as those who have one are used to, and
    /// admission warns of it.
    pub conditional: bool,
    /// The pods that it is for, among those that the rule set selects; `None` for all.
    pub filter: Option<Selector>,
    /// What it wants.
    pub check: Check,
}

/// What a rule wants of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Check {
    /// Nothing: the object says none of the others.
    #[default]
    Nothing,
    /// Not too many pods are unavailable.
    Available(AvailablePolicy),
    /// The pod's labels match.
    Labels(Selector),
    /// An outside system agrees.
    Webhook,
    /// Nobody can tell, for this reason: the rule can't be read. It refuses every pod.
    Unreadable(String),
}

impl Rule {
    /// Whether it is asked at all in `stage`.
    #[must_use]
    pub fn takes_part_in(&self, stage: CheckStage) -> bool {
        !self.disabled && !self.conditional && self.stage == Some(stage) && self.check != Check::Nothing
    }
}

impl RuleSet {
    /// The wire's `stage` of a rule: when it is not set, [`CheckStage::PreCheck`]; `None` for one that is not known here.
    #[must_use]
    pub fn stage_of(stage: Option<&str>) -> Option<CheckStage> {
        match stage {
            None => Some(CheckStage::PreCheck),
            Some(stage) => CheckStage::ALL.into_iter().find(|known| known.as_str() == stage),
        }
    }

    /// Whether any of its rules limits how many pods are unavailable.
    #[must_use]
    pub fn has_budget(&self) -> bool {
        let is_budget = |rule: &Rule| matches!(rule.check, Check::Available(_));
        let is_asked = |rule: &Rule| CheckStage::ALL.into_iter().any(|stage| rule.takes_part_in(stage));
        self.rules.iter().any(|rule| is_budget(rule) && is_asked(rule))
    }
}
