//! Decisions about one namespace: made when something has changed, and written at most once a second.

mod snapshot;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use podward_core::rules::{Asking, Budget, Others, Settlement, Subject, reports, settle};
use podward_core::{PostCheckRejection, UnixNanos};

use super::checks::Heard;
use super::metrics::Ended;
use super::state::{Said, Space};
use super::status::{self, Stored};
use super::{Shared, catch_up};
use crate::cached_pod::PodKey;

use snapshot::Snapshot;

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
    /// What was to be written, if anything, is.
    Done,
    /// Somebody else was faster: decide anew, with what he wrote.
    Lost,
    /// The API server couldn't be asked, or refused.
    Failed(String),
}

/// A decision that was made.
struct Decision {
    went: Went,
    /// Whether any object was written.
    wrote: bool,
}

impl From<Went> for Decision {
    fn from(went: Went) -> Self {
        Decision { went, wrote: false }
    }
}

/// Decides about `namespace` whenever its bell rings, until there is no rule object in it any more.
pub(super) async fn run(shared: Arc<Shared>, namespace: String) {
    let bell = shared.state.lock().spaces.get(&namespace).map(|space| space.bell.clone());
    let Some(bell) = bell else { return };
    let mut pause = FIRST_PAUSE;
    loop {
        bell.notified().await;
        tokio::time::sleep(GATHER).await;
        let began = Instant::now();
        let Decision { went, wrote } = shared.decide(&namespace).await;
        match went {
            Went::Done => {
                if shared.let_go(&namespace) {
                    return;
                }
                if wrote {
                    pause = FIRST_PAUSE;
                } else {
                    // However often pods change, no more than a fifth of the time goes into deciding about them.
                    tokio::time::sleep((4 * began.elapsed()).min(EVERY / 5)).await;
                }
            }
            Went::Lost => shared.ring(&namespace),
            Went::Failed(_) => {
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                shared.ring(&namespace);
            }
        }
        // Also those objects that were written while others were not.
        if wrote {
            tokio::time::sleep(EVERY).await;
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

    /// Lets go of `namespace` when there is no rule object in it any more. Gives whether it did.
    fn let_go(&self, namespace: &str) -> bool {
        // Under the lock: a rule object that is made now has a lane of its own.
        let mut state = self.state.lock();
        let is_over = state.let_go(namespace);
        if is_over {
            self.owners.keep(namespace, |_| false);
            self.metrics.waits_no_more(namespace);
        }
        is_over
    }

    async fn decide(self: &Arc<Self>, namespace: &str) -> Decision {
        let Some(sets) = self.state.lock().take_touched(namespace) else { return Went::Done.into() };
        let decision = self.decide_about(namespace, &sets).await;
        let trouble = match &decision.went {
            Went::Failed(why) => Some(why.clone()),
            _ => None,
        };
        if let Some(why) = &trouble {
            tracing::warn!(namespace, error = %why, "rules can't be decided about; what waits for their budgets waits on, and it is tried again");
        }
        if let Some(space) = self.state.lock().spaces.get_mut(namespace) {
            space.trouble = trouble;
        }
        decision
    }

    async fn decide_about(self: &Arc<Self>, namespace: &str, sets: &BTreeSet<String>) -> Decision {
        let mut trouble = None;
        // The ledgers are known before the pods are read.
        let foreign = self.foreign(namespace, sets);
        if !foreign.is_empty() {
            match catch_up::read_pods(self, namespace).await {
                Ok(()) => self.have_read(namespace, foreign),
                Err(error) => trouble = Some(error),
            }
        }
        let Some(snapshot) = self.snapshot(namespace, sets) else { return Went::Done.into() };
        let states = self.consult(namespace, &snapshot);
        let missing = match self.replicas_missing(namespace, &snapshot).await {
            Ok(missing) => missing,
            Err(error) => return Went::Failed(error).into(),
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
        let told = reports(&members, &settlement);
        let writes = snapshot.records.iter().zip(told).enumerate().filter_map(|(place, (record, told))| {
            let ledger = settlement.ledgers[place].clone().map_or_else(|| record.ledger.clone(), Arc::new);
            let states = states.get(&record.set.name).cloned().unwrap_or_default();
            // Who doesn't know the pods as the other one did has nothing to say about them.
            let is_current = self.is_current(record);
            if !is_current && !record.ledger.holder().is_empty() && record.set.has_budget() {
                return None;
            }
            let next =
                status::compose(record, &ledger, told, states, is_current.then_some(self.me.as_str()))?;
            let given = ledger.given_since(&record.ledger);
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
        let decision = self.stored(namespace, writes).await;
        if let Went::Done = decision.went {
            self.publish(namespace, &snapshot, &settlement);
        }
        match trouble {
            None => decision,
            Some(error) => Decision { went: Went::Failed(error), ..decision },
        }
    }

    /// Takes over what has become of writes.
    async fn stored(&self, namespace: &str, writes: Vec<Stored>) -> Decision {
        let (mut went, mut wrote) = (Went::Done, false);
        for write in writes {
            match write {
                Stored::Yes(object) => {
                    self.metrics.wrote(Ended::Done);
                    self.learn(*object);
                    wrote = true;
                }
                Stored::Lost(name) => {
                    self.metrics.wrote(Ended::Lost);
                    match status::read(&self.client, namespace, &name).await {
                        Ok(Some(object)) => {
                            self.learn(object);
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
        Decision { went, wrote }
    }

    /// Makes known what was decided, and has the pods looked at to whom something else is said now.
    fn publish(&self, namespace: &str, snapshot: &Snapshot, settlement: &Settlement) {
        let mut said: HashMap<usize, Vec<(Asking, Said)>> = HashMap::new();
        for verdict in &settlement.verdicts {
            let asking = &snapshot.pods[verdict.member].askings[verdict.asking];
            let of_pod = said.entry(verdict.member).or_default();
            if !of_pod.iter().any(|(known, _)| known == asking) {
                // They are in order.
                let renew = settlement.renew.binary_search(&(verdict.member, verdict.asking)).is_ok();
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
