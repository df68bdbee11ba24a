//! Decisions about one namespace: made when something has changed, and written at most once a second.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use podward_api::pod_transition_rule::RuleState;
use podward_core::rules::{Asking, Budget, Member, Others, Settlement, Subject, report, settle};

use super::checks::Heard;
use super::metrics::Ended;
use super::state::{Known, Record, Said};
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
    Failed,
}

/// Everything that a decision is about, as it was at one moment.
struct Snapshot {
    records: Vec<Record>,
    pods: Vec<Known>,
    /// In step with `pods`: places of the rule sets that select it.
    sets: Vec<Vec<usize>>,
    others: HashMap<(String, Asking), Others>,
}

/// Decides about `namespace` whenever its bell rings.
pub(super) async fn run(shared: Arc<Shared>, namespace: String) {
    let bell = shared.state.lock().spaces.get(&namespace).map(|space| space.bell.clone());
    let Some(bell) = bell else { return };
    let mut pause = FIRST_PAUSE;
    loop {
        bell.notified().await;
        tokio::time::sleep(GATHER).await;
        match shared.decide(&namespace).await {
            Went::Quiet => {}
            Went::Wrote => {
                pause = FIRST_PAUSE;
                tokio::time::sleep(EVERY).await;
            }
            went => {
                if let Went::Failed = went {
                    tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                bell.notify_one();
            }
        }
    }
}

impl Shared {
    /// Has `namespace` decided about anew.
    pub(super) fn ring(&self, namespace: &str) {
        if let Some(space) = self.state.lock().spaces.get(namespace) {
            space.bell.notify_one();
        }
    }

    async fn decide(self: &Arc<Self>, namespace: &str) -> Went {
        let mut trouble = None;
        // The ledgers are known before the pods are read.
        let foreign = self.foreign(namespace);
        if !foreign.is_empty() {
            match catch_up::read_pods(self, namespace).await {
                Ok(()) => self.have_read(namespace, foreign),
                Err(error) => trouble = Some(error),
            }
        }
        let Some(snapshot) = self.snapshot(namespace) else { return Went::Quiet };
        let states = self.consult(namespace, &snapshot);
        let missing = match self.replicas_missing(namespace, &snapshot).await {
            Ok(missing) => missing,
            Err(error) => {
                tracing::warn!(namespace, %error, "budgets of rules can't be counted; nothing is let through, and it is tried again");
                return Went::Failed;
            }
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
        self.metrics.waits(namespace, waiting(&settlement));
        if let Went::Quiet | Went::Wrote = went {
            self.publish(namespace, &snapshot, &settlement);
        }
        match trouble {
            None => went,
            Some(error) => {
                tracing::warn!(namespace, %error, "pods are let through only when those that another controller let through are known; it is tried again");
                Went::Failed
            }
        }
    }

    /// Rule objects (name and version) whose ledgers another controller wrote, since the pods were read last.
    fn foreign(&self, namespace: &str) -> Vec<(String, String)> {
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
            counts && record.set.has_budget() && !self.is_current(record)
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

    fn snapshot(&self, namespace: &str) -> Option<Snapshot> {
        let state = self.state.lock();
        let space = state.spaces.get(namespace)?;
        let records: Vec<Record> = space.records.values().cloned().collect();
        let mut pods: Vec<Known> = space.pods.values().filter(|known| known.is_active()).cloned().collect();
        pods.sort_by(|one, other| one.pod.uid().cmp(other.pod.uid()));
        let place = |name: &String| space.records.keys().position(|known| known == name);
        let places: BTreeMap<&String, usize> =
            space.records.keys().filter_map(|name| Some((name, place(name)?))).collect();
        let sets = pods
            .iter()
            .map(|known| known.sets.iter().filter_map(|name| places.get(name).copied()).collect())
            .collect();
        let mut others = HashMap::new();
        for known in pods.iter().filter(|known| !known.askings.is_empty()) {
            for asking in &known.askings {
                let uid = known.pod.uid();
                others.insert((uid.to_owned(), asking.clone()), space.others(uid, asking));
            }
        }
        Some(Snapshot { records, pods, sets, others })
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
        if let Some(space) = self.state.lock().spaces.get_mut(namespace) {
            space.answers = answers;
        }
        states
    }

    /// For each rule set how many pods its owners want and don't have.
    async fn replicas_missing(&self, namespace: &str, snapshot: &Snapshot) -> Result<Vec<u32>, String> {
        let mut existing: HashMap<&str, u32> = HashMap::new();
        for owner in snapshot.pods.iter().filter_map(|known| known.pod.controller()) {
            *existing.entry(owner.uid.as_str()).or_default() += 1;
        }
        let asks = |set: usize| {
            let mut pods = snapshot.pods.iter().zip(&snapshot.sets);
            pods.any(|(known, sets)| !known.askings.is_empty() && sets.contains(&set))
        };
        let mut owners: Vec<HashMap<&str, &OwnerReference>> = vec![HashMap::new(); snapshot.records.len()];
        let counted: Vec<bool> = snapshot
            .records
            .iter()
            .enumerate()
            .map(|(place, record)| record.set.has_budget() && asks(place))
            .collect();
        for (known, sets) in snapshot.pods.iter().zip(&snapshot.sets) {
            let Some(owner) = known.pod.controller() else { continue };
            for set in sets.iter().filter(|set| counted[**set]) {
                owners[*set].insert(owner.uid.as_str(), owner);
            }
        }
        let all: HashMap<&str, &OwnerReference> =
            owners.iter().flatten().map(|(uid, owner)| (*uid, *owner)).collect();
        self.owners.keep(namespace, &all.keys().map(|uid| (*uid).to_owned()).collect());
        let mut wanted: HashMap<&str, u32> = HashMap::new();
        for (uid, owner) in all {
            wanted.insert(uid, self.owners.wanted(namespace, owner).await?);
        }
        let missing = |uid: &&str| {
            let has = existing.get(uid).copied().unwrap_or_default();
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
                            if !matches!(went, Went::Failed) {
                                went = Went::Lost;
                            }
                        }
                        // The watch tells that it is gone.
                        Ok(None) => went = Went::Failed,
                        Err(error) => {
                            tracing::warn!(namespace, name, %error, "could not read a PodTransitionRule that somebody else wrote; it is tried again");
                            went = Went::Failed;
                        }
                    }
                }
                Stored::No(name, error) => {
                    self.metrics.wrote(Ended::Failed);
                    tracing::warn!(namespace, name, %error, "could not write the status of a PodTransitionRule; nothing is let through that isn't on record there, and it is tried again");
                    went = Went::Failed;
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
                let set = snapshot.records[verdict.set].set.name.clone();
                said.refusals.insert(set, verdict.refusals.clone());
            }
        }
        let mut awake: Vec<PodKey> = Vec::new();
        {
            let mut state = self.state.lock();
            let Some(space) = state.spaces.get_mut(namespace) else { return };
            let mut before = std::mem::take(&mut space.said);
            for (member, said) in said {
                let pod = &snapshot.pods[member].pod;
                let known = before.remove(pod.uid()).unwrap_or_default();
                let is_same = |(asking, said): &(Asking, Said)| {
                    known.iter().any(|(other, before)| other == asking && before.is_like(said))
                };
                if !said.iter().all(is_same) {
                    awake.push(pod.key());
                }
                space.said.insert(pod.uid().to_owned(), said);
            }
            // Rules that said something say nothing any more: they are gone, or select others.
            for uid in before.keys() {
                awake.extend(
                    space
                        .pods
                        .get(uid)
                        .filter(|known| !known.askings.is_empty())
                        .map(|known| known.pod.key()),
                );
            }
        }
        awake.into_iter().for_each(|pod| self.awake.push(pod));
    }
}

impl Snapshot {
    fn members(&self) -> Vec<Member<'_>> {
        let pods = self.pods.iter().zip(&self.sets);
        pods.map(|(known, sets)| Member { pod: known.pod.subject(), askings: &known.askings, sets }).collect()
    }
}

/// How many pods wait for a rule.
fn waiting(settlement: &Settlement) -> usize {
    let waiting = settlement.verdicts.iter().filter(|verdict| !verdict.refusals.is_empty());
    waiting.map(|verdict| verdict.member).collect::<HashSet<_>>().len()
}
