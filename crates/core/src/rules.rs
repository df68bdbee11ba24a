//! PodTransitionRules: which operations may start now, and which results are accepted.
//!
//! A [`RuleSet`] is one PodTransitionRule. It applies to every pod of its namespace that it selects while an operation
//! on the pod is in a check ([`CheckRequest`]). Three pure parts decide:
//!
//! ```text
//!  RuleIndex::selecting(namespace, labels) ─► the rule sets of a pod
//!  RuleSet::judge(pod, check_request, answers)    ─► who refuses, which webhooks are to be asked, which budgets it needs room in
//!  settle(sets, pods)                      ─► who gets room: the new new_grants of the rule sets
//!  rule_reports(...)                            ─► the statuses of the rule objects
//! ```
//!
//! # Budgets come last
//! The reference checks `availablePolicy` before `labelCheck` and `webhook`, and a pod that one of those refuses keeps
//! its room in the budget. Here room is granted only when no other check refuses: no other rule, no hook and no other
//! source. So a pod that has to wait takes no room from others, and a pod under several budgets gets room in all of
//! them or in none. The older request comes first. The order of the rules does not matter, and every refusal is
//! reported.
//!
//! # Why a budget is never overdrawn
//! A [`Grant`] is written to the status of the rule object *before* the pod continues, with the resource version of the
//! object as precondition. The pod continues by a write with its own resource version as precondition. So, whichever
//! process writes:
//!
//! - When two processes decide on the same grants, one write fails; that process reads the grants again and decides
//!   again.
//! - A grant names the operation and the time of its request, and stays while this request is on the pod. So the pod
//!   continues, however late, only while the grant counts: the write fails when the request is over. The same write
//!   takes the pod out of service, so that it then counts as unavailable by itself.
//! - A process drops a grant only after it has seen the pod continue. A process that decides on grants of another
//!   process ([`Grants::holder`]) must have read the pods after those grants; otherwise a pod that has continued would
//!   look as if it had not.
//! - A grant is not withdrawn. When a request with a grant is refused, the request must be renewed
//!   ([`RuleSettlement::renew`]): with another time it is another request.

mod advice;
mod evaluate;
mod grants;
mod index;
mod json_room;
mod policy;
mod refusal_cause;
mod report;
mod request;
mod rule_set;
mod settle;
mod skipped_rules;

pub use evaluate::{NoWebhookAnswers, RuleDecision, RulePod, RuleRefusal, WebhookAnswer, WebhookAnswers};
pub use grants::{GRANTS_LIMIT, Grant, Grants};
pub use index::RuleIndex;
pub use json_room::JsonRoom;
pub use policy::{Amount, AvailablePolicy, ExpFunc, InvalidAmount, Limit};
pub use refusal_cause::RefusalCause;
pub use report::{RuleDetail, RuleReport, rule_reports};
pub use request::{CheckRequest, CheckStage, check_requests};
pub use settle::{BudgetRoom, OtherChecks, RuleBudget, RuleMember, RuleSettlement, RuleVerdict, settle};
pub use skipped_rules::{SkippedRules, skipped_rules};

pub use rule_set::{Rule, RuleCheck, RuleSet};
