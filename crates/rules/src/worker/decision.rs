//! One decision about rule sets of a namespace, and its writes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use podward_core::rules::{CheckRequest, OtherChecks, RuleBudget, RulePod, rule_reports, settle};

use super::super::context::RuleContext;
use super::super::metrics::StatusWriteOutcome;
use super::super::state::{KnownAnswers, compose_status};
use super::consult_webhooks::consult_webhooks;
use super::missing_replicas::missing_replicas;
use super::pod_catch_up;
use super::publish::publish;
use super::rule_objects::observe_rule;
use super::snapshot::{foreign_grants, mark_pods_read, snapshot};
use super::status_write::{self, StatusWrite};

/// Objects that are written at the same time.
const MAX_CONCURRENT_WRITES: usize = 8;

/// How a decision ended.
pub(super) enum DecisionOutcome {
    /// It is stored, if there was anything to write.
    Done,
    /// Another writer was faster: decide again, with what it wrote.
    Conflict,
    /// A request to the API server failed.
    Failed(String),
}

/// A decision.
pub(super) struct NamespaceDecision {
    pub(super) outcome: DecisionOutcome,
    /// True if an object was written.
    pub(super) wrote: bool,
    /// True if the decision depends on an owner that is not watched, or on one whose pods have gone. It must be made again
    /// after a while.
    pub(super) expires: bool,
}

impl From<DecisionOutcome> for NamespaceDecision {
    fn from(outcome: DecisionOutcome) -> Self {
        NamespaceDecision { outcome, wrote: false, expires: false }
    }
}

/// Decides about `sets` of `namespace` at the time `now`, stores the decision, and publishes it once it is stored.
pub(super) async fn decide(
    context: &RuleContext,
    namespace: &str,
    sets: &BTreeSet<String>,
    now: Instant,
) -> NamespaceDecision {
    let mut catch_up_error = None;
    // The grants must be known before the pods are read.
    let foreign = foreign_grants(context, namespace, sets);
    if !foreign.is_empty() {
        match pod_catch_up::read_pods(context, namespace).await {
            Ok(()) => mark_pods_read(context, namespace, foreign),
            Err(error) => catch_up_error = Some(error),
        }
    }
    let Some(snapshot) = snapshot(context, namespace, sets, now) else { return DecisionOutcome::Done.into() };
    let states = consult_webhooks(context, namespace, &snapshot);
    let missing = match missing_replicas(context, namespace, &snapshot).await {
        Ok(missing) => missing,
        Err(error) => return DecisionOutcome::Failed(error).into(),
    };
    let answers = {
        let cache = context.cache.lock();
        cache.namespaces.get(namespace).map(|rules| rules.answers.clone()).unwrap_or_default()
    };
    let (settlement, members) = {
        let members = snapshot.members();
        let budgets: Vec<RuleBudget<'_>> = snapshot
            .records
            .iter()
            .zip(&missing.by_set)
            .map(|(record, missing)| RuleBudget {
                set: &record.set,
                stored_grants: &record.grants,
                missing: *missing,
                is_current: record.is_current(&context.holder),
            })
            .collect();
        let others = |pod: &RulePod<'_>, request: &CheckRequest| {
            let others = snapshot.others.get(&(pod.uid.to_owned(), request.clone()));
            others.copied().unwrap_or(OtherChecks::Unknown)
        };
        (settle(&context.holder, &budgets, &members, &KnownAnswers(&answers), &others), members)
    };
    let reports = rule_reports(&members, &settlement);
    let writes = snapshot.records.iter().zip(reports).enumerate().filter_map(|(place, (record, report))| {
        let grants = settlement.new_grants[place].clone().map_or_else(|| record.grants.clone(), Arc::new);
        let states = states.get(&record.set.name).cloned().unwrap_or_default();
        // A controller that does not know the pods as the writer of the grants did must not report on them.
        let is_current = record.is_current(&context.holder);
        if !is_current && !record.grants.holder().is_empty() && record.set.has_budget() {
            return None;
        }
        let holder = is_current.then_some(context.holder.as_str());
        let next = compose_status(record, &grants, report, states, holder)?;
        let granted = grants.given_since(&record.grants);
        Some(async move {
            let written = status_write::write(&context.client, record, &next).await;
            if let StatusWrite::Stored(_) = written {
                context.metrics.granted(granted);
            }
            written
        })
    });
    let writes: Vec<_> = writes.collect();
    let writes: Vec<StatusWrite> =
        futures::stream::iter(writes).buffer_unordered(MAX_CONCURRENT_WRITES).collect().await;
    let (outcome, wrote) = observe_writes(context, namespace, writes).await;
    let decision = NamespaceDecision { outcome, wrote, expires: missing.expires };
    if let DecisionOutcome::Done = decision.outcome {
        publish(context, namespace, &snapshot, &settlement, &KnownAnswers(&answers));
    }
    match catch_up_error {
        None => decision,
        Some(error) => NamespaceDecision { outcome: DecisionOutcome::Failed(error), ..decision },
    }
}

/// Stores the results of writes in the cache. Returns how the decision ended, and whether an object was written.
async fn observe_writes(
    context: &RuleContext,
    namespace: &str,
    writes: Vec<StatusWrite>,
) -> (DecisionOutcome, bool) {
    let (mut outcome, mut wrote) = (DecisionOutcome::Done, false);
    for write in writes {
        match write {
            StatusWrite::Stored(object) => {
                context.metrics.wrote(StatusWriteOutcome::Done);
                observe_rule(context, *object);
                wrote = true;
            }
            StatusWrite::Conflict(name, uid) => {
                context.metrics.wrote(StatusWriteOutcome::Lost);
                match status_write::read(&context.client, namespace, &name, &uid).await {
                    Ok(Some(object)) => {
                        observe_rule(context, object);
                        if !matches!(outcome, DecisionOutcome::Failed(_)) {
                            outcome = DecisionOutcome::Conflict;
                        }
                    }
                    // The watch will remove it, or replace it by another one of the same name.
                    Ok(None) => {
                        outcome = DecisionOutcome::Failed(format!("PodTransitionRule {name} is gone"));
                    }
                    Err(error) => {
                        outcome = DecisionOutcome::Failed(format!(
                            "could not read PodTransitionRule {name} after a conflict: {error}"
                        ));
                    }
                }
            }
            StatusWrite::Failed(name, error) => {
                context.metrics.wrote(StatusWriteOutcome::Failed);
                outcome = DecisionOutcome::Failed(format!(
                    "could not write the status of PodTransitionRule {name}: {error}"
                ));
            }
        }
    }
    (outcome, wrote)
}
