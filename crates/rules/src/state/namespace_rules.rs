//! The state of one namespace that has PodTransitionRules.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use podward_core::rules::{CheckRequest, OtherChecks, Rule, RulePod, RuleSet, WebhookAnswer, WebhookAnswers};
use podward_kube_util::PodKey;
use tokio::sync::Notify;

use super::super::webhook::WebhookFingerprint;
use super::changed_sets::ChangedSets;
use super::gone_owners::GoneOwners;
use super::observed_pod::ObservedPod;
use super::request_report::{RequestReport, RequestReports};
use super::rule_record::RuleRecord;
use super::unstored_statuses::UnstoredStatuses;

/// Identifies an answer of a webhook: rule set, rule, pod UID and check request.
pub(crate) type AnswerKey = (String, String, String, CheckRequest);

/// An answer of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct KnownAnswer {
    pub(crate) answer: WebhookAnswer,
    /// `None` if the pod passes.
    pub(crate) fingerprint: Option<WebhookFingerprint>,
}

/// The known answers of webhooks.
pub(crate) struct KnownAnswers<'a>(pub(crate) &'a HashMap<AnswerKey, KnownAnswer>);

impl KnownAnswers<'_> {
    fn get(&self, set: &str, rule: &str, uid: &str, request: &CheckRequest) -> Option<&KnownAnswer> {
        self.0.get(&(set.to_owned(), rule.to_owned(), uid.to_owned(), request.clone()))
    }

    /// Returns the fingerprint of a webhook's reason; `None` if it was not consulted, or the pod passes.
    pub(crate) fn fingerprint(
        &self,
        set: &str,
        rule: &str,
        uid: &str,
        request: &CheckRequest,
    ) -> Option<WebhookFingerprint> {
        self.get(set, rule, uid, request)?.fingerprint.clone()
    }
}

impl WebhookAnswers for KnownAnswers<'_> {
    fn answer(
        &self,
        set: &RuleSet,
        rule: &Rule,
        pod: &RulePod<'_>,
        request: &CheckRequest,
    ) -> Option<WebhookAnswer> {
        self.get(&set.name, &rule.name, pod.uid, request).map(|known| known.answer.clone())
    }
}

/// A namespace that has PodTransitionRules.
#[derive(Default)]
pub(crate) struct NamespaceRules {
    /// By name.
    pub(crate) records: BTreeMap<String, RuleRecord>,
    /// By UID.
    pub(crate) pods: HashMap<String, ObservedPod>,
    /// By pod UID: the results of other checks than rules.
    pub(crate) others: HashMap<String, HashMap<CheckRequest, OtherChecks>>,
    /// By pod UID: the last results.
    pub(crate) reports: HashMap<String, RequestReports>,
    pub(crate) answers: HashMap<AnswerKey, KnownAnswer>,
    pub(crate) gone_owners: GoneOwners,
    /// By rule set: why it could not be decided about last.
    pub(crate) errors: BTreeMap<String, String>,
    pub(crate) unstored: UnstoredStatuses,
    /// Notified when a decision may have changed.
    pub(crate) changed: Arc<Notify>,
    pub(crate) changed_sets: ChangedSets,
}

impl NamespaceRules {
    /// Marks these rule sets: their decisions may have changed.
    pub(crate) fn mark_changed<'a>(&mut self, sets: impl IntoIterator<Item = &'a String>) {
        let mut sets = sets.into_iter().peekable();
        if sets.peek().is_none() {
            return;
        }
        if let ChangedSets::Some(changed) = &mut self.changed_sets {
            changed.extend(sets.cloned());
        }
        self.changed.notify_one();
    }

    /// Marks all rule sets: their decisions may have changed.
    pub(crate) fn mark_all_changed(&mut self) {
        self.changed_sets = ChangedSets::All;
        self.changed.notify_one();
    }

    /// Forgets what the webhooks of the rule set `name` have answered: it was changed, or removed. The pods are reconciled
    /// after the next decision, also if the answers are the same again.
    pub(crate) fn forget_answers(&mut self, name: &str) {
        for ((_, _, uid, request), _) in self.answers.extract_if(|(set, ..), _| set == name) {
            if let Some(reports) = self.reports.get_mut(&uid) {
                reports.remove(&request);
            }
        }
    }

    /// Returns the rule sets to decide about together, and removes the marks: the marked rule sets, and all that select
    /// a pod with check requests that one of these rule sets also selects.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<String> {
        let mut sets = match std::mem::take(&mut self.changed_sets) {
            ChangedSets::All => return self.records.keys().cloned().collect(),
            ChangedSets::Some(sets) => sets,
        };
        let mut by_set: HashMap<&str, Vec<(&str, &ObservedPod)>> = HashMap::new();
        for (uid, observed) in self.pods.iter().filter(|(_, observed)| !observed.requests.is_empty()) {
            observed.sets.iter().for_each(|set| by_set.entry(set).or_default().push((uid, observed)));
        }
        let mut next: Vec<String> = sets.iter().cloned().collect();
        let mut done: HashSet<&str> = HashSet::new();
        while let Some(set) = next.pop() {
            for (uid, observed) in by_set.remove(set.as_str()).unwrap_or_default() {
                if done.insert(uid) {
                    let added = observed.sets.iter().filter(|other| sets.insert((*other).clone()));
                    next.extend(added.cloned());
                }
            }
        }
        sets
    }

    /// Updates which pods the rule set `name` selects. It is now `set`, or gone if that is `None`.
    pub(crate) fn reselect(&mut self, name: &str, set: Option<&RuleSet>) {
        for (uid, observed) in &mut self.pods {
            let is_selected = set.is_some_and(|set| set.selects(observed.pod.labels()));
            match (observed.sets.binary_search_by(|other| other.as_str().cmp(name)), is_selected) {
                (Err(place), true) => observed.sets.insert(place, name.to_owned()),
                (Ok(place), false) => {
                    observed.sets.remove(place);
                    // The pod may wait for a rule set without a result. An empty report makes the next decision
                    // reconcile it.
                    if !observed.requests.is_empty() {
                        self.reports.entry(uid.clone()).or_default();
                    }
                }
                _ => {}
            }
        }
    }

    /// Stores why rule sets could not be decided about, after a decision about `decided`. Returns the waiting pods for
    /// which that begins or ends.
    pub(crate) fn set_errors(
        &mut self,
        decided: &BTreeSet<String>,
        errors: impl IntoIterator<Item = (String, String)>,
    ) -> Vec<PodKey> {
        let before: BTreeSet<String> = self.errors.keys().cloned().collect();
        self.errors.retain(|set, _| !decided.contains(set));
        self.errors.extend(errors.into_iter().filter(|(set, _)| self.records.contains_key(set)));
        if before.iter().eq(self.errors.keys()) {
            return Vec::new();
        }
        let is_other = |set: &String| before.contains(set) != self.errors.contains_key(set);
        let waiting = self.pods.values().filter(|observed| !observed.requests.is_empty());
        let told = waiting.filter(|observed| observed.sets.iter().any(is_other));
        told.map(|observed| observed.pod.key()).collect()
    }

    /// Removes a pod.
    pub(crate) fn remove_pod(&mut self, uid: &str) {
        if let Some(observed) = self.pods.remove(uid) {
            self.gone_owners.add(&observed);
            self.mark_changed(&observed.sets);
        }
        self.others.remove(uid);
        self.reports.remove(uid);
    }

    /// Returns the last result for `request` of a pod; `None` if there is none.
    pub(crate) fn report(&self, uid: &str, request: &CheckRequest) -> Option<&RequestReport> {
        self.reports.get(uid)?.get(request)
    }

    /// Returns the results of other checks than rules.
    pub(crate) fn others(&self, uid: &str, request: &CheckRequest) -> OtherChecks {
        let found = self.others.get(uid).and_then(|all| all.get(request));
        found.copied().unwrap_or(OtherChecks::Unknown)
    }
}
