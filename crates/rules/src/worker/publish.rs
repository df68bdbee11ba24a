//! Makes the results of a decision known to reconciliation.

use std::collections::{BTreeMap, HashMap, HashSet};

use podward_core::rules::{CheckRequest, NoWebhookAnswers, RuleSettlement};
use podward_core::{PostCheckRejection, UnixNanos};
use podward_kube_util::PodKey;

use super::super::context::RuleContext;
use super::super::state::{
    KnownAnswers, NamespaceRules, RefusalFingerprint, RequestReport, RequestReports, not_decided,
};
use super::snapshot::NamespaceSnapshot;

/// Stores the results of a decision, and has the pods reconciled whose results have changed. The requests that need
/// room in budgets of rule sets that are decided about later, or of those in `unstored`, whose decisions are not
/// stored, keep the results of these rule sets. Those without such a result wait for their turn.
pub(super) fn publish(
    context: &RuleContext,
    namespace: &str,
    snapshot: &NamespaceSnapshot,
    settlement: &RuleSettlement,
    answers: &KnownAnswers<'_>,
    unstored: &HashSet<usize>,
) {
    let reports = reports(snapshot, settlement, answers);
    let mut to_reconcile: Vec<PodKey> = Vec::new();
    {
        let mut cache = context.cache.lock();
        let Some(rules) = cache.namespaces.get_mut(namespace) else { return };
        for (member, mut after) in reports {
            let pod = &snapshot.pods[member].pod;
            let before = rules.reports.entry(pod.uid().to_owned()).or_default();
            for (request, waits) in undecided(snapshot, unstored, member) {
                let before = before.get(&request);
                keep_undecided(after.entry(request).or_default(), before, &waits);
            }
            let is_same = |(request, report): (&CheckRequest, &RequestReport)| {
                before.get(request).is_some_and(|before| before.is_like(report))
            };
            if !after.iter().all(is_same) {
                to_reconcile.push(pod.key());
            }
            *before = after;
        }
        // Pods that no rule set selects any more, because it is gone or selects others.
        let NamespaceRules { pods, reports, .. } = rules;
        reports.retain(|uid, _| {
            let observed = pods.get(uid);
            let is_selected = observed.is_some_and(|observed| !observed.sets.is_empty());
            let unselected = observed.filter(|observed| !is_selected && !observed.requests.is_empty());
            to_reconcile.extend(unselected.map(|observed| observed.pod.key()));
            is_selected
        });
        let waits = |reports: &&RequestReports| reports.values().any(|report| !report.refusals.is_empty());
        let waiting = reports.values().filter(waits).count();
        context.metrics.set_waiting(namespace, waiting, &waiting_since(reports));
    }
    to_reconcile.into_iter().for_each(|pod| context.to_reconcile.push(pod));
}

/// Replaces in `after` the results of the rule sets in `waits`, which are not decided about, by those in `before`, or
/// those in `waits` if there are none.
fn keep_undecided(after: &mut RequestReport, before: Option<&RequestReport>, waits: &RequestReport) {
    for set in waits.refusals.keys() {
        let from = before.filter(|before| before.refusals.contains_key(set)).unwrap_or(waits);
        let fingerprints = from.fingerprints.iter().filter(|fingerprint| fingerprint.set == *set);
        after.fingerprints.retain(|fingerprint| fingerprint.set != *set);
        after.fingerprints.extend(fingerprints.cloned());
        after.refusals.insert(set.clone(), from.refusals[set].clone());
    }
}

/// Returns the check requests of a pod that need room in budgets that are not decided about, each with the refusals by
/// these budgets.
fn undecided(snapshot: &NamespaceSnapshot, unstored: &HashSet<usize>, member: usize) -> RequestReports {
    let (observed, mut reports) = (&snapshot.pods[member], RequestReports::new());
    let is_open = |set: &&usize| unstored.contains(set) || snapshot.deferred.contains(set);
    for record in snapshot.sets[member].iter().filter(is_open).map(|set| &snapshot.records[*set]) {
        let (set, pod) = (&record.set, observed.subject());
        let needs_room = |request: &&CheckRequest| record.needs_room(&pod, request, &NoWebhookAnswers);
        for request in observed.requests.iter().filter(needs_room) {
            let budgets = set.evaluate(&pod, request, &NoWebhookAnswers).budgets.into_iter();
            let refusals: Vec<_> = budgets.map(|rule| not_decided(&set.rules[rule].name)).collect();
            let report: &mut RequestReport = reports.entry(request.clone()).or_default();
            // Not like any result of a decision, so the first result has the pod reconciled.
            let fingerprints =
                refusals.iter().map(|refusal| RefusalFingerprint::of(&set.name, refusal, None));
            report.fingerprints.extend(fingerprints);
            report.refusals.insert(set.name.clone(), refusals);
        }
    }
    reports
}

/// Returns the results of a decision, by the place of the pod.
fn reports(
    snapshot: &NamespaceSnapshot,
    settlement: &RuleSettlement,
    answers: &KnownAnswers<'_>,
) -> HashMap<usize, RequestReports> {
    let mut reports: HashMap<usize, RequestReports> = HashMap::new();
    for verdict in &settlement.verdicts {
        let observed = &snapshot.pods[verdict.member];
        let request = &observed.requests[verdict.check_request];
        let of_pod = reports.entry(verdict.member).or_default();
        let report = of_pod.entry(request.clone()).or_insert_with(|| {
            // `renew` is sorted.
            let renew = settlement.renew.binary_search(&(verdict.member, verdict.check_request)).is_ok();
            let held = snapshot.sets[verdict.member].iter().any(|set| snapshot.held.contains(set));
            RequestReport { renew, held, ..RequestReport::default() }
        });
        if !verdict.refusals.is_empty() {
            let set = &snapshot.records[verdict.set].set;
            report.fingerprints.extend(verdict.refusals.iter().map(|refusal| {
                let rule = &refusal.rule_name;
                let webhook = answers.fingerprint(&set.name, rule, observed.pod.uid(), request);
                RefusalFingerprint::of(&set.name, refusal, webhook)
            }));
            report.refusals.insert(set.name.clone(), verdict.refusals.clone());
            if set.post_check_rejection == PostCheckRejection::Rollback {
                report.reported_to_operators.insert(set.name.clone());
            }
        }
    }
    reports
}

/// Returns for each rule set that refuses a pod the time of the earliest of these check requests.
fn waiting_since(reports: &HashMap<String, RequestReports>) -> BTreeMap<&str, UnixNanos> {
    let mut since: BTreeMap<&str, UnixNanos> = BTreeMap::new();
    for (request, report) in reports.values().flatten() {
        for set in report.refusals.keys() {
            let first = since.entry(set).or_insert(UnixNanos(i64::MAX));
            *first = UnixNanos(request.since()).min(*first);
        }
    }
    since
}
