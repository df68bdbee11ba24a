//! The state of rules and pods, and the results for pods. It has no I/O.

mod changed_sets;
mod gone_owners;
mod namespace_rules;
mod observed_pod;
mod other_checks;
mod pod_rules;
mod refusal_text;
mod request_report;
mod rule_cache;
mod rule_record;
mod rule_status;
mod unstored_statuses;
mod webhook_states;

#[cfg(test)]
pub(crate) use changed_sets::ChangedSets;
#[cfg(test)]
pub(crate) use gone_owners::GoneOwners;
pub(crate) use gone_owners::{GoneOwner, OWNER_RECHECK_DELAY};
pub(crate) use namespace_rules::{KnownAnswer, KnownAnswers, NamespaceRules};
pub(crate) use observed_pod::{ObservedPod, ends_workload};
pub(crate) use other_checks::other_checks;
pub use pod_rules::PodRules;
pub(crate) use refusal_text::refusal_text;
pub(crate) use request_report::{RefusalFingerprint, RequestReport, RequestReports, not_decided};
pub(crate) use rule_cache::RuleCache;
pub(crate) use rule_record::RuleRecord;
pub(crate) use rule_status::{compose_status, with_rule_states};
