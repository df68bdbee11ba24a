//! What a decision is about.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use podward_api::pod_transition_rule::RuleState;
use podward_core::rules::{Asking, Member, Others};

use super::super::Shared;
use super::super::checks::Heard;
use super::super::state::{Known, Record};

/// Everything that a decision is about, as it was at one moment.
pub(super) struct Snapshot {
    pub(super) records: Vec<Record>,
    /// Those that the rule sets select.
    pub(super) pods: Vec<Known>,
    /// In step with `pods`: places of the rule sets that select it.
    pub(super) sets: Vec<Vec<usize>>,
    pub(super) others: HashMap<(String, Asking), Others>,
    /// Pods of the whole namespace, by the UID of their owner.
    pub(super) existing: HashMap<String, u32>,
}

impl Snapshot {
    /// The pods, as the core asks about them.
    pub(super) fn members(&self) -> Vec<Member<'_>> {
        let pods = self.pods.iter().zip(&self.sets);
        pods.map(|(known, sets)| Member { pod: known.pod.subject(), askings: &known.askings, sets }).collect()
    }
}

impl Shared {
    /// Rule objects (name and version) whose ledgers another controller wrote, since the pods were read last.
    pub(super) fn foreign(&self, namespace: &str, sets: &BTreeSet<String>) -> Vec<(String, String)> {
        let state = self.state.lock();
        let Some(space) = state.spaces.get(namespace) else { return Vec::new() };
        let asks: HashSet<&String> = space
            .pods
            .values()
            .filter(|known| !known.askings.is_empty())
            .flat_map(|known| &known.sets)
            .collect();
        let foreign = space.records.iter().filter(|(name, record)| {
            let counts = asks.contains(name) || !record.ledger.holder().is_empty();
            sets.contains(*name) && counts && record.set.has_budget() && !self.is_current(record)
        });
        foreign.map(|(name, record)| (name.clone(), record.version.clone())).collect()
    }

    /// Whether the pods are known as whoever wrote the ledger knew them, or later.
    pub(super) fn is_current(&self, record: &Record) -> bool {
        record.ledger.holder() == self.me || record.read_after.as_ref() == Some(&record.version)
    }

    /// The pods were read after these versions of rule objects.
    pub(super) fn have_read(&self, namespace: &str, objects: Vec<(String, String)>) {
        let mut state = self.state.lock();
        let Some(space) = state.spaces.get_mut(namespace) else { return };
        for (name, version) in objects {
            if let Some(record) = space.records.get_mut(&name) {
                record.read_after = Some(version);
            }
        }
    }

    /// What is known now of these rule sets and their pods.
    pub(super) fn snapshot(&self, namespace: &str, sets: &BTreeSet<String>) -> Option<Snapshot> {
        let state = self.state.lock();
        let space = state.spaces.get(namespace)?;
        let (names, records): (Vec<&String>, Vec<Record>) = space
            .records
            .iter()
            .filter(|(name, _)| sets.contains(*name))
            .map(|(name, record)| (name, record.clone()))
            .unzip();
        let places: HashMap<&String, usize> = names.into_iter().zip(0..).collect();
        let mut existing: HashMap<String, u32> = HashMap::new();
        let mut pods: Vec<(Known, Vec<usize>)> = Vec::new();
        for known in space.pods.values().filter(|known| known.is_active()) {
            if let Some(owner) = known.pod.controller() {
                match existing.get_mut(&owner.uid) {
                    Some(count) => *count += 1,
                    None => drop(existing.insert(owner.uid.clone(), 1)),
                }
            }
            let selecting: Vec<usize> =
                known.sets.iter().filter_map(|name| places.get(name).copied()).collect();
            if !selecting.is_empty() {
                pods.push((known.clone(), selecting));
            }
        }
        pods.sort_by(|(one, _), (other, _)| one.pod.uid().cmp(other.pod.uid()));
        let mut others = HashMap::new();
        for (known, _) in &pods {
            for asking in &known.askings {
                let uid = known.pod.uid();
                others.insert((uid.to_owned(), asking.clone()), space.others(uid, asking));
            }
        }
        let (pods, sets) = pods.into_iter().unzip();
        Some(Snapshot { records, pods, sets, others, existing })
    }

    /// What webhooks say, as far as it is known; whoever isn't asked yet is asked from now on. Gives what is to be put on record of them,
    /// by rule set.
    pub(super) fn consult(
        self: &Arc<Self>,
        namespace: &str,
        snapshot: &Snapshot,
    ) -> HashMap<String, Vec<RuleState>> {
        let mut asked: BTreeMap<(usize, String), Vec<(&Known, &Asking)>> = BTreeMap::new();
        let nobody = HashMap::new();
        for (known, sets) in snapshot.pods.iter().zip(&snapshot.sets) {
            for asking in &known.askings {
                for set in sets {
                    let judgement =
                        snapshot.records[*set].set.judge(&known.pod.subject(), asking, &Heard(&nobody));
                    for rule in judgement.webhooks {
                        asked.entry((*set, rule)).or_default().push((known, asking));
                    }
                }
            }
        }
        let mut answers = HashMap::new();
        let mut states: HashMap<String, Vec<RuleState>> = HashMap::new();
        for (place, record) in snapshot.records.iter().enumerate() {
            let found = record.object.iter().flat_map(|object| &object.spec.rules);
            for rule in found.filter(|rule| rule.webhook.is_some()) {
                let subjects = asked.remove(&(place, rule.name.clone())).unwrap_or_default();
                let (said, state) = self.webhooks.consult(record, rule, &subjects);
                for ((known, asking), answer) in subjects.into_iter().zip(said) {
                    if let Some(answer) = answer {
                        let key = (
                            record.set.name.clone(),
                            rule.name.clone(),
                            known.pod.uid().to_owned(),
                            asking.clone(),
                        );
                        answers.insert(key, answer);
                    }
                }
                states.entry(record.set.name.clone()).or_default().extend(state);
            }
        }
        let decided: HashSet<&String> = snapshot.records.iter().map(|record| &record.set.name).collect();
        if let Some(space) = self.state.lock().spaces.get_mut(namespace) {
            space.answers.retain(|(set, ..), _| !decided.contains(set) && space.records.contains_key(set));
            space.answers.extend(answers);
        }
        states
    }

    /// For each rule set how many pods its owners want and don't have.
    pub(super) async fn replicas_missing(
        &self,
        namespace: &str,
        snapshot: &Snapshot,
    ) -> Result<Vec<u32>, String> {
        let asks = snapshot.pods.iter().zip(&snapshot.sets).filter(|(known, _)| !known.askings.is_empty());
        let asked: HashSet<usize> = asks.flat_map(|(_, sets)| sets.iter().copied()).collect();
        let mut owners: Vec<HashMap<&str, &OwnerReference>> = vec![HashMap::new(); snapshot.records.len()];
        let counted: Vec<bool> = snapshot
            .records
            .iter()
            .enumerate()
            .map(|(place, record)| record.set.has_budget() && asked.contains(&place))
            .collect();
        for (known, sets) in snapshot.pods.iter().zip(&snapshot.sets) {
            let Some(owner) = known.pod.controller() else { continue };
            for set in sets.iter().filter(|set| counted[**set]) {
                owners[*set].insert(owner.uid.as_str(), owner);
            }
        }
        let all: HashMap<&str, &OwnerReference> =
            owners.iter().flatten().map(|(uid, owner)| (*uid, *owner)).collect();
        self.owners.keep(namespace, |uid| snapshot.existing.contains_key(uid));
        let mut wanted: HashMap<&str, u32> = HashMap::new();
        for (uid, owner) in all {
            wanted.insert(uid, self.owners.wanted(namespace, owner).await?);
        }
        let missing = |uid: &&str| {
            let has = snapshot.existing.get(*uid).copied().unwrap_or_default();
            wanted.get(uid).copied().unwrap_or_default().saturating_sub(has)
        };
        Ok(owners.iter().map(|owners| owners.keys().map(missing).sum()).collect())
    }
}
