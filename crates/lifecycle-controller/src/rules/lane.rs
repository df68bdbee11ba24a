//! Decisions about one namespace: made when something has changed, and written at most once a second.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use podward_api::pod_transition_rule::RuleState;
use podward_core::rules::{Asking, Budget, Member, Others, Settlement, Subject, report, settle};
use podward_core::{PostCheckRejection, UnixNanos};

use super::checks::Heard;
use super::metrics::Ended;
use super::state::{Known, Record, Said, Space};
use super::status::{self, Stored};
use super::{Shared, catch_up};
use crate::cached_pod::PodKey;

/// How often an object's status is written at most.
const EVERY: Duration = Duration::from_secs(1);
/// Pods that ask within this time are decided about together.
const GATHER: Duration = Duration::from_millis(20);
/// Objects that are written at the same time.
const AT_ONCE: usize = 8;
/// After a failure; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How a decision went.
enum Went {
    /// There was nothing to write.
    Quiet,
    /// Something was written.
    Wrote,
    /// Somebody else was faster: decide anew, with what he wrote.
    Lost,
    /// The API server couldn't be asked, or refused.
    Failed(String),
}

/// Everything that a decision is about, as it was at one moment.
struct Snapshot {
    records: Vec<Record>,
    /// Those that the rule sets select.
    pods: Vec<Known>,
    /// In step with `pods`: places of the rule sets that select it.
    sets: Vec<Vec<usize>>,
    others: HashMap<(String, Asking), Others>,
    /// Pods of the whole namespace, by the UID of their owner.
    existing: HashMap<String, u32>,
}

/// Decides about `namespace` whenever its bell rings.
pub(super) async fn run(shared: Arc<Shared>, namespace: String) {
    let bell = shared.state.lock().spaces.get(&namespace).map(|space| space.bell.clone());
    let Some(bell) = bell else { return };
    let mut pause = FIRST_PAUSE;
    loop {
        bell.notified().await;
        tokio::time::sleep(GATHER).await;
        let began = Instant::now();
        let went = shared.decide(&namespace).await;
        match went {
            // However often pods change, no more than a fifth of the time goes into deciding about them.
            Went::Quiet => tokio::time::sleep((4 * began.elapsed()).min(EVERY / 5)).await,
            Went::Wrote => {
                pause = FIRST_PAUSE;
                tokio::time::sleep(EVERY).await;
            }
            Went::Lost | Went::Failed(_) => {
                if let Went::Failed(_) = went {
                    tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                shared.ring(&namespace);
            }
        }
    }
}

impl Shared {
    /// Has all of `namespace` decided about anew.
    pub(super) fn ring(&self, namespace: &str) {
        if let Some(space) = self.state.lock().spaces.get_mut(namespace) {
            space.touch_all();
        }
    }

    async fn decide(self: &Arc<Self>, namespace: &str) -> Went {
        let Some(sets) = self.state.lock().take_touched(namespace) else { return Went::Quiet };
        let went = self.decide_about(namespace, &sets).await;
        let trouble = match &went {
            Went::Failed(why) => Some(why.clone()),
            _ => None,
        };
        if let Some(why) = &trouble {
            tracing::warn!(namespace, error = %why, "rules can't be decided about; what waits for their budgets waits on, and it is tried again");
        }
        if let Some(space) = self.state.lock().spaces.get_mut(namespace) {
            space.trouble = trouble;
        }
        went
    }

    async fn decide_about(self: &Arc<Self>, namespace: &str, sets: &BTreeSet<String>) -> Went {
        let mut trouble = None;
        // The ledgers are known before the pods are read.
        let foreign = self.foreign(namespace, sets);
        if !foreign.is_empty() {
            match catch_up::read_pods(self, namespace).await {
                Ok(()) => self.have_read(namespace, foreign),
                Err(error) => trouble = Some(error),
            }
        }
        let Some(snapshot) = self.snapshot(namespace, sets) else { return Went::Quiet };
        let states = self.consult(namespace, &snapshot);
        let missing = match self.replicas_missing(namespace, &snapshot).await {
            Ok(missing) => missing,
            Err(error) => return Went::Failed(error),
        };
        let (settlement, members) = {
            let members = snapshot.members();
            let budgets: Vec<Budget<'_>> = snapshot
                .records
                .iter()
                .zip(&missing)
                .map(|(record, missing)| Budget {
                    set: &record.set,
                    ledger: &record.ledger,
                    missing: *missing,
                    is_current: self.is_current(record),
                })
                .collect();
            let answers = self
                .state
                .lock()
                .spaces
                .get(namespace)
                .map(|space| space.answers.clone())
                .unwrap_or_default();
            let others = |pod: &Subject<'_>, asking: &Asking| {
                snapshot.others.get(&(pod.uid.to_owned(), asking.clone())).copied().unwrap_or(Others::Unheard)
            };
            (settle(&self.me, &budgets, &members, &Heard(&answers), &others), members)
        };
        let writes = snapshot.records.iter().enumerate().filter_map(|(place, record)| {
            let ledger = settlement.ledgers[place].clone().map_or_else(|| record.ledger.clone(), Arc::new);
            let told = report(place, &members, &settlement);
            let states = states.get(&record.set.name).cloned().unwrap_or_default();
            // Who doesn't know the pods as the other one did has nothing to say about them.
            let is_current = self.is_current(record);
            if !is_current && !record.ledger.holder.is_empty() && record.set.has_budget() {
                return None;
            }
            let next =
                status::compose(record, &ledger, told, states, is_current.then_some(self.me.as_str()))?;
            let given = ledger.grants.iter().filter(|grant| !record.ledger.grants.contains(grant)).count();
            Some(async move {
                let stored = status::write(&self.client, record, &next).await;
                if let Stored::Yes(_) = stored {
                    self.metrics.granted(given);
                }
                stored
            })
        });
        let writes: Vec<_> = writes.collect();
        let writes: Vec<Stored> = futures::stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
        let went = self.stored(namespace, writes).await;
        if let Went::Quiet | Went::Wrote = went {
            self.publish(namespace, &snapshot, &settlement);
        }
        match trouble {
            None => went,
            Some(error) => Went::Failed(error),
        }
    }

    /// Rule objects (name and version) whose ledgers another controller wrote, since the pods were read last.
    fn foreign(&self, namespace: &str, sets: &BTreeSet<String>) -> Vec<(String, String)> {
        let state = self.state.lock();
        let Some(space) = state.spaces.get(namespace) else { return Vec::new() };
        let asks: HashSet<&String> = space
            .pods
            .values()
            .filter(|known| !known.askings.is_empty())
            .flat_map(|known| &known.sets)
            .collect();
        let foreign = space.records.iter().filter(|(name, record)| {
            let counts = asks.contains(name) || !record.ledger.holder.is_empty();
            sets.contains(*name) && counts && record.set.has_budget() && !self.is_current(record)
        });
        foreign.map(|(name, record)| (name.clone(), record.version.clone())).collect()
    }

    /// Whether the pods are known as whoever wrote the ledger knew them, or later.
    fn is_current(&self, record: &Record) -> bool {
        record.ledger.holder == self.me || record.read_after.as_ref() == Some(&record.version)
    }

    fn have_read(&self, namespace: &str, objects: Vec<(String, String)>) {
        let mut state = self.state.lock();
        let Some(space) = state.spaces.get_mut(namespace) else { return };
        for (name, version) in objects {
            if let Some(record) = space.records.get_mut(&name) {
                record.read_after = Some(version);
            }
        }
    }

    fn snapshot(&self, namespace: &str, sets: &BTreeSet<String>) -> Option<Snapshot> {
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
    fn consult(self: &Arc<Self>, namespace: &str, snapshot: &Snapshot) -> HashMap<String, Vec<RuleState>> {
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
    async fn replicas_missing(&self, namespace: &str, snapshot: &Snapshot) -> Result<Vec<u32>, String> {
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

    /// Takes over what has become of writes.
    async fn stored(self: &Arc<Self>, namespace: &str, writes: Vec<Stored>) -> Went {
        let mut went = Went::Quiet;
        for write in writes {
            match write {
                Stored::Yes(object) => {
                    self.metrics.wrote(Ended::Done);
                    self.put(Record::new(*object));
                    if let Went::Quiet = went {
                        went = Went::Wrote;
                    }
                }
                Stored::Lost(name) => {
                    self.metrics.wrote(Ended::Lost);
                    match status::read(&self.client, namespace, &name).await {
                        Ok(Some(object)) => {
                            self.put(Record::new(object));
                            if !matches!(went, Went::Failed(_)) {
                                went = Went::Lost;
                            }
                        }
                        // The watch tells that it is gone.
                        Ok(None) => went = Went::Failed(format!("PodTransitionRule {name} is gone")),
                        Err(error) => {
                            went = Went::Failed(format!(
                                "could not read PodTransitionRule {name}, which somebody else wrote: {error}"
                            ));
                        }
                    }
                }
                Stored::No(name, error) => {
                    self.metrics.wrote(Ended::Failed);
                    went = Went::Failed(format!(
                        "could not write the status of PodTransitionRule {name}: {error}"
                    ));
                }
            }
        }
        went
    }

    /// Makes known what was decided, and has the pods looked at to whom something else is said now.
    fn publish(&self, namespace: &str, snapshot: &Snapshot, settlement: &Settlement) {
        let mut said: HashMap<usize, Vec<(Asking, Said)>> = HashMap::new();
        for verdict in &settlement.verdicts {
            let asking = &snapshot.pods[verdict.member].askings[verdict.asking];
            let of_pod = said.entry(verdict.member).or_default();
            if !of_pod.iter().any(|(known, _)| known == asking) {
                let renew = settlement.renew.contains(&(verdict.member, verdict.asking));
                of_pod.push((asking.clone(), Said { renew, ..Said::default() }));
            }
            let entry = of_pod.iter_mut().find(|(known, _)| known == asking);
            if let Some((_, said)) = entry.filter(|_| !verdict.refusals.is_empty()) {
                let set = &snapshot.records[verdict.set].set;
                said.refusals.insert(set.name.clone(), verdict.refusals.clone());
                if set.post_check_rejection == PostCheckRejection::Rollback {
                    said.told.insert(set.name.clone());
                }
            }
        }
        let mut awake: Vec<PodKey> = Vec::new();
        {
            let mut state = self.state.lock();
            let Some(space) = state.spaces.get_mut(namespace) else { return };
            for (member, said) in said {
                let pod = &snapshot.pods[member].pod;
                let before = space.said.remove(pod.uid()).unwrap_or_default();
                let is_same = |(asking, said): &(Asking, Said)| {
                    before.iter().any(|(other, before)| other == asking && before.is_like(said))
                };
                if !said.iter().all(is_same) {
                    awake.push(pod.key());
                }
                space.said.insert(pod.uid().to_owned(), said);
            }
            // Rules that said something say nothing any more: they are gone, or select others.
            let Space { pods, said, .. } = space;
            said.retain(|uid, _| {
                let known = pods.get(uid);
                let is_ruled = known.is_some_and(|known| !known.sets.is_empty());
                awake.extend(
                    known.filter(|known| !is_ruled && !known.askings.is_empty()).map(|known| known.pod.key()),
                );
                is_ruled
            });
            let waits = |said: &&Vec<(Asking, Said)>| said.iter().any(|(_, said)| !said.refusals.is_empty());
            self.metrics.waits(namespace, said.values().filter(waits).count(), &waited_for_since(said));
        }
        awake.into_iter().for_each(|pod| self.awake.push(pod));
    }
}

/// Since when the first has asked of those whom each rule set refuses.
fn waited_for_since(said: &HashMap<String, Vec<(Asking, Said)>>) -> BTreeMap<&str, UnixNanos> {
    let mut since: BTreeMap<&str, UnixNanos> = BTreeMap::new();
    for (asking, said) in said.values().flatten() {
        for set in said.refusals.keys() {
            let first = since.entry(set).or_insert(UnixNanos(i64::MAX));
            *first = UnixNanos(asking.since()).min(*first);
        }
    }
    since
}

impl Snapshot {
    fn members(&self) -> Vec<Member<'_>> {
        let pods = self.pods.iter().zip(&self.sets);
        pods.map(|(known, sets)| Member { pod: known.pod.subject(), askings: &known.askings, sets }).collect()
    }
}
