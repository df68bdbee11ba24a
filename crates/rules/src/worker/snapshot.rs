//! The input of a decision.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use podward_core::rules::{CheckRequest, NoWebhookAnswers, OtherChecks, RuleMember};
use podward_kube_util::CachedPod;

use super::super::context::RuleContext;
use super::super::state::{GoneOwner, NamespaceRules, ObservedPod, RuleRecord};

/// The input of a decision, all of one moment.
pub(super) struct NamespaceSnapshot {
    pub(super) records: Vec<RuleRecord>,
    /// The places in `records` of the rule sets whose status is not written now, because the last write failed.
    pub(super) held: HashSet<usize>,
    /// The places in `records` of the rule sets whose status is written again, because the last write failed.
    pub(super) retried: HashSet<usize>,
    /// The places in `records` of the rule sets that are decided about later, because more has to be known for that.
    pub(super) deferred: HashSet<usize>,
    /// The pods that the rule sets select.
    pub(super) pods: Vec<ObservedPod>,
    /// In the order of `pods`: the places in `records` of the rule sets that select the pod.
    pub(super) sets: Vec<Vec<usize>>,
    /// Unknown for the requests of a pod that a rule set selects which is not in `records`, and for those that need
    /// room in a rule set that is decided about later: nothing is granted to them.
    pub(super) others: HashMap<(String, CheckRequest), OtherChecks>,
    /// By the UID of an owner: its active pods in the namespace that are opted in.
    pub(super) existing: HashMap<String, Vec<Arc<CachedPod>>>,
    /// The selected pods that are being deleted, and the places in `records` of the rule sets that select them.
    pub(super) terminating: Vec<(Arc<CachedPod>, Vec<usize>)>,
    /// The owners of selected pods that have just gone, and the places in `records` of the rule sets that selected
    /// them.
    pub(super) gone_owners: Vec<(OwnerReference, Vec<usize>)>,
    /// The UIDs of the owners that count for any rule set of the namespace: a pod of theirs is selected by a rule set
    /// with a budget and a check request.
    pub(super) counting: HashSet<String>,
}

impl NamespaceSnapshot {
    /// Returns the pods in the form of the core.
    pub(super) fn members(&self) -> Vec<RuleMember<'_>> {
        let pods = self.pods.iter().zip(&self.sets);
        pods.map(|(observed, sets)| RuleMember {
            pod: observed.subject(),
            check_requests: &observed.requests,
            sets,
            ends_workload: observed.ends_workload,
        })
        .collect()
    }

    /// Leaves the decision about the rule sets at `places` for later. The requests that need room in them get no room
    /// in any budget until then.
    pub(super) fn defer(&mut self, places: HashSet<usize>) {
        for (observed, sets) in self.pods.iter().zip(&self.sets) {
            let waits = |request: &&CheckRequest| {
                let mut deferred = sets.iter().filter(|set| places.contains(set));
                let pod = observed.subject();
                deferred.any(|set| self.records[*set].needs_room(&pod, request, &NoWebhookAnswers))
            };
            let requests = observed.requests.iter().filter(waits);
            let keys = requests.map(|request| (observed.pod.uid().to_owned(), request.clone()));
            self.others.extend(keys.map(|key| (key, OtherChecks::Unknown)));
        }
        self.deferred = places;
    }
}

/// Returns the names and versions of the rule sets whose grants another controller wrote, since this one last read the
/// pods.
pub(super) fn foreign_grants(
    context: &RuleContext,
    namespace: &str,
    sets: &BTreeSet<String>,
) -> Vec<(String, String)> {
    let cache = context.cache.lock();
    let Some(rules) = cache.namespaces.get(namespace) else { return Vec::new() };
    let requested: HashSet<&String> = rules
        .pods
        .values()
        .filter(|observed| !observed.requests.is_empty())
        .flat_map(|observed| &observed.sets)
        .collect();
    let foreign = rules.records.iter().filter(|(name, record)| {
        let counts = requested.contains(name) || !record.grants.holder().is_empty();
        sets.contains(*name) && counts && record.set.has_budget() && !record.is_current(&context.holder)
    });
    foreign.map(|(name, record)| (name.clone(), record.version.clone())).collect()
}

/// Notes that this controller has read the pods after these versions of rule sets.
pub(super) fn mark_pods_read(context: &RuleContext, namespace: &str, versions: Vec<(String, String)>) {
    let mut cache = context.cache.lock();
    let Some(rules) = cache.namespaces.get_mut(namespace) else { return };
    for (name, version) in versions {
        if let Some(record) = rules.records.get_mut(&name) {
            record.pods_read_after = Some(version);
        }
    }
}

/// Returns these rule sets and their pods for a decision at the time `now`; `None` if the namespace has no
/// PodTransitionRule.
pub(super) fn snapshot_of(
    context: &RuleContext,
    namespace: &str,
    sets: &BTreeSet<String>,
    now: Instant,
) -> Option<NamespaceSnapshot> {
    let mut cache = context.cache.lock();
    let rules = cache.namespaces.get_mut(namespace)?;
    let gone: Vec<GoneOwner> = rules.gone_owners.counting(now).cloned().collect();
    let rules = &*rules;
    let (names, records): (Vec<&String>, Vec<RuleRecord>) = rules
        .records
        .iter()
        .filter(|(name, _)| sets.contains(*name))
        .map(|(name, record)| (name, record.clone()))
        .unzip();
    let places_where = |test: &dyn Fn(&RuleRecord) -> bool| {
        records.iter().enumerate().filter(|(_, record)| test(record)).map(|(place, _)| place).collect()
    };
    let unstored = &rules.unstored;
    let held = places_where(&|record| unstored.is_held(&record.set.name, &record.uid, now));
    let retried = places_where(&|record| unstored.is_retried(&record.set.name, &record.uid, now));
    let places: HashMap<&String, usize> = names.into_iter().zip(0..).collect();
    let place = |name: &String| places.get(name).copied();
    let mut existing: HashMap<String, Vec<Arc<CachedPod>>> = HashMap::new();
    let mut pods: Vec<(ObservedPod, Vec<usize>)> = Vec::new();
    for observed in rules.pods.values().filter(|observed| observed.is_active()) {
        if let Some(owner) = observed.pod.controller() {
            match existing.get_mut(&owner.uid) {
                Some(pods) => pods.push(observed.pod.clone()),
                None => drop(existing.insert(owner.uid.clone(), vec![observed.pod.clone()])),
            }
        }
        let selecting: Vec<usize> = observed.sets.iter().filter_map(place).collect();
        if !selecting.is_empty() {
            pods.push((observed.clone(), selecting));
        }
    }
    pods.sort_by(|(one, _), (other, _)| one.pod.uid().cmp(other.pod.uid()));
    let mut others = HashMap::new();
    for (observed, selecting) in &pods {
        // A pod may have begun to wait after `sets` were chosen. The others of its rule sets may refuse it.
        let is_complete = selecting.len() == observed.sets.len();
        for request in &observed.requests {
            let uid = observed.pod.uid();
            let result = if is_complete { rules.others(uid, request) } else { OtherChecks::Unknown };
            others.insert((uid.to_owned(), request.clone()), result);
        }
    }
    let (pods, sets) = pods.into_iter().unzip();
    let terminating = rules
        .pods
        .values()
        .filter(|observed| observed.is_terminating())
        .map(|observed| (observed.pod.clone(), observed.sets.iter().filter_map(place).collect()))
        .collect();
    let counting = counting_owners(rules, &gone);
    let gone_owners =
        gone.into_iter().map(|gone| (gone.owner, gone.sets.iter().filter_map(place).collect())).collect();
    Some(NamespaceSnapshot {
        records,
        held,
        retried,
        deferred: HashSet::new(),
        pods,
        sets,
        others,
        existing,
        terminating,
        gone_owners,
        counting,
    })
}

fn counting_owners(rules: &NamespaceRules, gone: &[GoneOwner]) -> HashSet<String> {
    let active = || rules.pods.values().filter(|observed| observed.is_active());
    let has_budget = |name: &&String| rules.records.get(*name).is_some_and(|record| record.set.has_budget());
    let requests = active().filter(|observed| !observed.requests.is_empty());
    let sets: HashSet<&String> = requests.flat_map(|observed| &observed.sets).filter(has_budget).collect();
    let counts = |name: &String| sets.contains(name);
    let terminating = rules.pods.values().filter(|observed| observed.is_terminating());
    let of_pods = active()
        .chain(terminating)
        .filter(|observed| observed.sets.iter().any(counts))
        .filter_map(|observed| Some(observed.pod.controller()?.uid.clone()));
    let of_gone = gone.iter().filter(|gone| gone.sets.iter().any(counts)).map(|gone| gone.owner.uid.clone());
    of_pods.chain(of_gone).collect()
}
