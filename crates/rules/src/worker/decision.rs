//! One decision about rule sets of a namespace, and its writes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use podward_core::rules::{CheckRequest, OtherChecks, RuleBudget, RulePod, rule_reports, settle};
use podward_runtime::retry::{API_SERVER, delay_after};

use super::super::context::RuleContext;
use super::super::metrics::StatusWriteOutcome;
use super::super::state::{KnownAnswers, compose_status, with_rule_states};
use super::consult_webhooks::consult_webhooks;
use super::missing_replicas::missing_replicas;
use super::outside_lists::{ListedPods, OutsideLists};
use super::pod_catch_up;
use super::publish::publish;
use super::rule_objects::observe_rule;
use super::snapshot::{NamespaceSnapshot, foreign_grants, mark_pods_read, snapshot_of};
use super::status_write::{self, StatusWrite};

/// Objects that are written at the same time.
const MAX_CONCURRENT_WRITES: usize = 8;

/// A decision.
#[derive(Default)]
pub(super) struct NamespaceDecision {
    /// Why it is not reliable: the pods could not be read. `None` if it is. It must be made again after a delay.
    pub(super) error: Option<String>,
    /// By rule set: why it could not be decided about. Lists that have failed are not among it.
    pub(super) errors: BTreeMap<String, String>,
    /// True if an object was written.
    pub(super) wrote: bool,
    /// By rule set: when it must be made again, because it depends on what is not watched.
    pub(super) rechecks: BTreeMap<String, Instant>,
}

/// Decides about `sets` of `namespace` at the time `now`, stores the decision, and publishes it once it is stored.
/// Those for which pods have to be listed first are decided about after that.
pub(super) async fn decide(
    context: &Arc<RuleContext>,
    namespace: &str,
    sets: &BTreeSet<String>,
    lists: &mut OutsideLists,
    now: Instant,
) -> NamespaceDecision {
    let (mut error, mut errors) = (None, BTreeMap::new());
    // The grants must be known before the pods are read.
    let foreign = foreign_grants(context, namespace, sets);
    if !foreign.is_empty() {
        match pod_catch_up::read_pods(context, namespace).await {
            Ok(()) => mark_pods_read(context, namespace, foreign),
            Err(failed) => {
                errors.extend(foreign.into_iter().map(|(set, _)| (set, failed.clone())));
                error = Some(failed);
            }
        }
    }
    let Some(mut snapshot) = snapshot_of(context, namespace, sets, now) else {
        return NamespaceDecision::default();
    };
    // Before owners are read, which may take long or fail.
    let states = consult_webhooks(context, namespace, &snapshot);
    let listed = lists.take_listed();
    let missing = missing_replicas(context, namespace, &snapshot, listed.as_ref(), now).await;
    let name = |place: &usize| snapshot.records[*place].set.name.clone();
    let unlisted: BTreeSet<String> = missing.unknown.keys().map(name).collect();
    let unread = missing.unknown.iter().filter_map(|(place, error)| Some((name(place), error.clone()?)));
    errors.extend(unread);
    let rechecks = missing.rechecks.iter().map(|(place, at)| (name(place), *at)).collect();
    snapshot.defer(missing.unknown.into_keys().collect());
    let to_list = missing.to_list;
    // Called after the writes, because a list does not count for long.
    let request = |lists: &mut OutsideLists, listed: Option<&ListedPods>| {
        if !to_list.is_empty() {
            lists.request(context, namespace, unlisted, to_list, listed);
        }
    };
    let answers = {
        let cache = context.cache.lock();
        cache.namespaces.get(namespace).map(|rules| rules.answers.clone()).unwrap_or_default()
    };
    // A pod that needs room in a rule set that cannot be written now must not keep room in the others.
    let needs_held = |pod: &RulePod<'_>, request: &CheckRequest| {
        let mut held = snapshot.held.iter().map(|place| &snapshot.records[*place]);
        held.any(|record| {
            record.set.selects(pod.labels) && record.needs_room(pod, request, &KnownAnswers(&answers))
        })
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
            match needs_held(pod, request) {
                true => OtherChecks::Refuse,
                false => others.copied().unwrap_or(OtherChecks::Unknown),
            }
        };
        (settle(&context.holder, &budgets, &members, &KnownAnswers(&answers), &others), members)
    };
    let reports = rule_reports(&members, &settlement);
    let writes = snapshot.records.iter().zip(reports).enumerate().filter_map(|(place, (record, report))| {
        let grants = settlement.new_grants[place].clone().map_or_else(|| record.grants.clone(), Arc::new);
        let states = states.get(&record.set.name).cloned().unwrap_or_default();
        // A controller that does not know the pods as the writer of the grants did must not report on them.
        let is_current = record.is_current(&context.holder);
        let is_unknown = !is_current && !record.grants.holder().is_empty() && record.set.has_budget();
        if is_unknown || snapshot.held.contains(&place) {
            return None;
        }
        let (next, granted) = match snapshot.deferred.contains(&place) {
            // Another leader would have the webhook begin a task again that is not stored.
            true => (with_rule_states(record, states, &context.holder).filter(|_| is_current)?, 0),
            false => {
                let holder = is_current.then_some(context.holder.as_str());
                (compose_status(record, &grants, report, states, holder)?, grants.given_since(&record.grants))
            }
        };
        let write = async move {
            let written = status_write::write(&context.client, record, &next).await;
            if let StatusWrite::Stored(_) = written {
                context.metrics.granted(granted);
            }
            (place, written)
        };
        Some((place, write))
    });
    // First those that failed before: if one fails again, its pods must not take room in the other rule sets.
    let (retried, writes): (Vec<_>, Vec<_>) = writes.partition(|(place, _)| snapshot.retried.contains(place));
    let (unstored, wrote_retried) =
        observe_writes(context, &snapshot, namespace, all_written(retried).await).await;
    if !unstored.is_empty() {
        request(lists, listed.as_ref());
        lists.put_back(listed);
        if let Some(rules) = context.cache.lock().namespaces.get_mut(namespace) {
            rules.mark_changed(sets);
        }
        return NamespaceDecision { error, errors, wrote: wrote_retried, rechecks };
    }
    let (unstored, wrote) = observe_writes(context, &snapshot, namespace, all_written(writes).await).await;
    request(lists, listed.as_ref());
    publish(context, namespace, &snapshot, &settlement, &KnownAnswers(&answers), &unstored);
    NamespaceDecision { error, errors, wrote: wrote || wrote_retried, rechecks }
}

/// Carries out writes, and returns their results.
async fn all_written<W: Future<Output = (usize, StatusWrite)>>(
    writes: Vec<(usize, W)>,
) -> Vec<(usize, StatusWrite)> {
    let writes = writes.into_iter().map(|(_, write)| write);
    futures::stream::iter(writes).buffer_unordered(MAX_CONCURRENT_WRITES).collect().await
}

/// Stores the results of writes in the cache. Returns the places of the rule sets whose decision is not stored, which
/// are decided about again, and whether an object was written.
async fn observe_writes(
    context: &RuleContext,
    snapshot: &NamespaceSnapshot,
    namespace: &str,
    writes: Vec<(usize, StatusWrite)>,
) -> (HashSet<usize>, bool) {
    let (mut failed, mut unstored, mut done) = (HashMap::new(), HashSet::new(), HashSet::new());
    for (place, write) in writes {
        let outcome = match &write {
            StatusWrite::Stored(_) => StatusWriteOutcome::Done,
            StatusWrite::Conflict(..) => StatusWriteOutcome::Lost,
            StatusWrite::Failed(..) => StatusWriteOutcome::Failed,
        };
        context.metrics.wrote(outcome);
        match stored(context, namespace, write).await {
            Ok(true) => drop(done.insert(place)),
            Ok(false) => drop(unstored.insert(place)),
            Err(error) => drop(failed.insert(place, error)),
        }
    }
    unstored.extend(failed.keys());
    let wrote = !done.is_empty();
    let now = Instant::now();
    let mut cache = context.cache.lock();
    let Some(rules) = cache.namespaces.get_mut(namespace) else { return (unstored, wrote) };
    for (place, record) in snapshot.records.iter().enumerate() {
        let name = &record.set.name;
        match failed.remove(&place) {
            // The object may have been deleted meanwhile: then nothing is tried again.
            Some(_) if rules.records.get(name).is_none_or(|stored| stored.uid != record.uid) => {}
            Some(error) => {
                tracing::warn!(
                    namespace,
                    name,
                    error,
                    "could not store a decision about a PodTransitionRule; pods that need its budgets wait, and it is \
                     retried"
                );
                let retry_at = |failures| now + delay_after(API_SERVER, failures);
                rules.unstored.failed(name, &record.uid, error, retry_at);
            }
            None if done.contains(&place) => rules.unstored.remove(name),
            None if snapshot.held.contains(&place) || snapshot.deferred.contains(&place) => {}
            None if unstored.contains(&place) => {}
            None => rules.unstored.remove(name),
        }
    }
    rules.mark_changed(unstored.iter().map(|place| &snapshot.records[*place].set.name));
    (unstored, wrote)
}

/// Stores the result of a write in the cache. Returns whether the decision is stored. It is not if another writer was
/// faster: then the cache has what that one wrote.
///
/// # Errors
/// When the status can't be written, or the object can't be read.
async fn stored(context: &RuleContext, namespace: &str, write: StatusWrite) -> Result<bool, String> {
    match write {
        StatusWrite::Stored(object) => {
            observe_rule(context, *object);
            Ok(true)
        }
        StatusWrite::Conflict(name, uid) => {
            match status_write::read(&context.client, namespace, &name, &uid).await {
                Ok(Some(object)) => {
                    observe_rule(context, object);
                    Ok(false)
                }
                // The watch will remove it, or replace it by another one of the same name.
                Ok(None) => Err(format!("PodTransitionRule {name} is gone")),
                Err(error) => {
                    Err(format!("could not read PodTransitionRule {name} after a conflict: {error}"))
                }
            }
        }
        StatusWrite::Failed(name, error) => {
            Err(format!("could not write the status of PodTransitionRule {name}: {error}"))
        }
    }
}
