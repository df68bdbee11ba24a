//! The tasks that follow PodTransitionRules and owners, decide about namespaces, and write.

mod consult_webhooks;
mod decision;
mod missing_replicas;
mod namespace_worker;
mod outside_lists;
mod outside_pods;
mod owner_replicas;
mod pod_catch_up;
mod publish;
mod read_barrier;
mod rule_lookup;
mod rule_objects;
mod rule_release;
mod rule_watch;
mod rule_webhooks;
mod snapshot;
mod status_write;
mod terminating_rules;

pub(crate) use outside_pods::OutsidePods;
#[cfg(test)]
pub(crate) use outside_pods::OwnerToList;
pub(crate) use owner_replicas::OwnerReplicas;
pub(crate) use read_barrier::ReadBarrier;
pub(crate) use rule_lookup::rules_are_known;
#[cfg(test)]
pub(crate) use rule_lookup::until_cached;
pub(crate) use rule_watch::{follow_owners, follow_rules};
pub(crate) use rule_webhooks::RuleWebhooks;
pub(crate) use terminating_rules::TerminatingRules;
