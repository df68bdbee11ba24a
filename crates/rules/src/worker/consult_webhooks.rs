//! The answers of webhooks for a decision.

use std::collections::{BTreeMap, HashMap, HashSet};

use podward_api::pod_transition_rule::RuleState;
use podward_core::rules::{CheckRequest, NoWebhookAnswers};

use super::super::context::RuleContext;
use super::super::state::{ObservedPod, RuleRecord};
use super::snapshot::NamespaceSnapshot;

/// Stores the known answers of webhooks in the cache, and has the webhooks called about the pods without an answer.
/// Returns the states of webhooks to store, by rule set.
pub(super) fn consult_webhooks(
    context: &RuleContext,
    namespace: &str,
    snapshot: &NamespaceSnapshot,
) -> HashMap<String, Vec<RuleState>> {
    let mut waiting: BTreeMap<(usize, String), Vec<(&ObservedPod, &CheckRequest)>> = BTreeMap::new();
    for (observed, sets) in snapshot.pods.iter().zip(&snapshot.sets) {
        for request in &observed.requests {
            for set in sets {
                let rules = &snapshot.records[*set].set;
                for rule in rules.evaluate(&observed.subject(), request, &NoWebhookAnswers).webhooks {
                    waiting.entry((*set, rule)).or_default().push((observed, request));
                }
            }
        }
    }
    let mut answers = HashMap::new();
    let mut states: HashMap<String, Vec<RuleState>> = HashMap::new();
    for (place, record) in snapshot.records.iter().enumerate() {
        for rule in record.webhook_rules() {
            let pods = waiting.remove(&(place, rule.name.clone())).unwrap_or_default();
            let (known, state) = context.webhooks.consult(record, rule, &pods);
            for ((observed, request), answer) in pods.into_iter().zip(known) {
                let Some(answer) = answer else { continue };
                let uid = observed.pod.uid().to_owned();
                let key = (record.set.name.clone(), rule.name.clone(), uid, request.clone());
                answers.insert(key, answer);
            }
            states.entry(record.set.name.clone()).or_default().extend(state);
        }
        if record.webhook_rules().next().is_some() {
            // The watch may have removed the object since the snapshot: then nobody else would end the calls.
            end_unused_webhooks(context, namespace, &record.set.name);
        }
    }
    let decided: HashSet<&String> = snapshot.records.iter().map(|record| &record.set.name).collect();
    if let Some(rules) = context.cache.lock().namespaces.get_mut(namespace) {
        rules.answers.retain(|(set, ..), _| !decided.contains(set));
        // What was answered to an earlier version does not count for this one.
        let is_current = |record: &&RuleRecord| {
            let stored = rules.records.get(&record.set.name);
            stored.is_some_and(|it| (&it.uid, it.generation) == (&record.uid, record.generation))
        };
        let current: HashSet<&String> =
            snapshot.records.iter().filter(is_current).map(|record| &record.set.name).collect();
        rules.answers.extend(answers.into_iter().filter(|((set, ..), _)| current.contains(set)));
    }
    states
}

/// Ends the calls of webhooks that the object of this name does not have. The cache decides which it has.
pub(super) fn end_unused_webhooks(context: &RuleContext, namespace: &str, name: &str) {
    let (uid, rules) = {
        let cache = context.cache.lock();
        let record = cache.namespaces.get(namespace).and_then(|rules| rules.records.get(name));
        let webhooks = record.into_iter().flat_map(RuleRecord::webhook_rules);
        let rules: Vec<String> = webhooks.map(|rule| rule.name.clone()).collect();
        (record.map(|record| record.uid.clone()).unwrap_or_default(), rules)
    };
    context.webhooks.retain(namespace, name, &uid, &rules);
}
