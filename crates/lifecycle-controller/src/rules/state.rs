//! What is known of rule objects, and of the pods of namespaces that have some.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::runtime::reflector::Store;
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::PodTransitionRuleStatus;
use podward_core::rules::{Answer, Asking, Grant, Ledger, Others, Refusal, RuleIndex, RuleSet, askings};
use tokio::sync::Notify;

use crate::cached_pod::{CachedPod, PodKey};

/// A rule object as it was last read or written.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) version: String,
    pub(super) set: Arc<RuleSet>,
    /// The object; `None` for one that can't be read.
    pub(super) object: Option<Arc<PodTransitionRule>>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) status: Arc<PodTransitionRuleStatus>,
    /// The version after which the pods were read, where another controller wrote it.
    pub(super) read_after: Option<String>,
}

impl Record {
    pub(super) fn new(object: PodTransitionRule) -> Self {
        let status = Arc::new(object.status.clone().unwrap_or_default());
        let grants: Vec<Grant> = status.grants.iter().cloned().map(Grant::from).collect();
        let metadata = &object.metadata;
        Record {
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            set: Arc::new(object.to_rule_set()),
            ledger: Arc::new(Ledger { holder: status.holder.clone(), grants }),
            status,
            object: Some(Arc::new(object)),
            read_after: None,
        }
    }

    fn number(&self) -> u64 {
        self.version.parse().unwrap_or_default()
    }
}

/// A pod, and what counts of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) pod: Arc<CachedPod>,
    pub(super) askings: Vec<Asking>,
    /// Names of the rule sets that select it.
    pub(super) sets: Vec<String>,
}

impl Known {
    /// Whether it counts at all: not a pod that is on its way out, or has run to its end.
    pub(super) fn is_active(&self) -> bool {
        !self.pod.view().terminating && !self.pod.is_terminal() && self.pod.view().is_controlled()
    }

    /// Whether a decision may be another one with `after` in its place.
    fn differs(&self, after: &Known) -> bool {
        let available =
            |known: &Known| known.pod.view().labels.contains_key(podward_core::keys::SERVICE_AVAILABLE);
        let selects = !self.sets.is_empty() || !after.sets.is_empty();
        let asks = !after.askings.is_empty();
        selects
            && (self.askings != after.askings
                || self.sets != after.sets
                || self.is_active() != after.is_active()
                || available(self) != available(after)
                || (asks && self.pod.view().labels != after.pod.view().labels)
                || (asks && self.pod.skipped_rules() != after.pod.skipped_rules()))
    }
}

/// What was last said to an asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// By rule set: all that refused, and why.
    pub(super) refusals: BTreeMap<String, Vec<Refusal>>,
    /// Those of these rule sets of whose refusals operators are told.
    pub(super) told: BTreeSet<String>,
    /// Whether it is to be put anew.
    pub(super) renew: bool,
}

impl Said {
    /// Who refuses, and why: without the words that have digits in them. How many pods are out of service changes with each that goes,
    /// and ids with each request; that isn't worth a write to every pod that waits.
    fn gist(&self) -> (Vec<String>, &BTreeSet<String>, bool) {
        let gist = |set: &str, refusal: &Refusal| {
            let words = refusal.reason.split_whitespace().filter(|word| !word.contains(char::is_numeric));
            [set, &refusal.rule_name].into_iter().chain(words).collect::<Vec<_>>().join(" ")
        };
        let all = self.refusals.iter();
        let gists = all.flat_map(|(set, refusals)| refusals.iter().map(move |refusal| gist(set, refusal)));
        (gists.collect(), &self.told, self.renew)
    }

    /// Whether it says the same as `other`, if perhaps with other numbers.
    pub(super) fn is_like(&self, other: &Said) -> bool {
        self.gist() == other.gist()
    }
}

/// An answer of a webhook: rule set, rule, pod UID and asking tell which.
pub(super) type AnswerKey = (String, String, String, Asking);

/// A namespace that has rule objects.
#[derive(Default)]
pub(super) struct Space {
    pub(super) records: BTreeMap<String, Record>,
    /// By UID.
    pub(super) pods: HashMap<String, Known>,
    /// By UID: what others than rules say.
    pub(super) others: HashMap<String, Vec<(Asking, Others)>>,
    /// By UID: what was last said.
    pub(super) said: HashMap<String, Vec<(Asking, Said)>>,
    pub(super) answers: HashMap<AnswerKey, Answer>,
    /// Why the last decision could not be made, or stored.
    pub(super) trouble: Option<String>,
    /// Rings when a decision may be another one.
    pub(super) bell: Arc<Notify>,
    pub(super) touched: Touched,
}

/// The rule sets about which a decision may be another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// These.
    Some(BTreeSet<String>),
    /// All of the namespace.
    All,
}

impl Default for Touched {
    fn default() -> Self {
        Touched::Some(BTreeSet::new())
    }
}

/// All of it.
#[derive(Default)]
pub(super) struct State {
    pub(super) spaces: HashMap<String, Space>,
    pub(super) index: RuleIndex,
    /// Whether the pods were listed, so that those that aren't known are not there.
    are_pods_listed: bool,
}

impl State {
    /// Takes over a rule object, if it is newer than what is known. Gives whether its namespace had none before.
    pub(super) fn put(&mut self, record: Record, pods: &Store<CachedPod>) -> bool {
        let (namespace, name) = (record.set.namespace.clone(), record.set.name.clone());
        let is_new = !self.spaces.contains_key(&namespace);
        let space = self.spaces.entry(namespace.clone()).or_default();
        let before = space.records.get(&name);
        if before.is_some_and(|before| before.uid == record.uid && before.number() >= record.number()) {
            return false;
        }
        let same_rules = before.is_some_and(|before| before.uid == record.uid && before.set == record.set);
        let set = record.set.clone();
        space.touch([&name]);
        space.records.insert(name, record);
        if !same_rules {
            space.touch_all();
            self.index.put(set);
            match is_new {
                true => self.fill(&namespace, pods),
                false => self.select_anew(&namespace),
            }
        }
        is_new
    }

    /// A rule object is gone.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        self.index.remove(namespace, name);
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        space.records.remove(name);
        space.touch_all();
        self.select_anew(namespace);
    }

    /// A list of all rule objects is complete: those that aren't `present` are gone.
    pub(super) fn keep(&mut self, present: &[(String, String)]) {
        let known: Vec<(String, String)> = self
            .spaces
            .iter()
            .flat_map(|(namespace, space)| {
                space.records.keys().map(move |name| (namespace.clone(), name.clone()))
            })
            .collect();
        for (namespace, name) in known.iter().filter(|known| !present.contains(known)) {
            self.remove(namespace, name);
        }
    }

    fn known(&self, pod: &Arc<CachedPod>) -> Known {
        let view = pod.view();
        let selecting = self.index.selecting(&pod.key().namespace, view.labels);
        Known {
            askings: askings(view.labels),
            sets: selecting.into_iter().map(|set| set.name.clone()).collect(),
            pod: pod.clone(),
        }
    }

    fn fill(&mut self, namespace: &str, pods: &Store<CachedPod>) {
        let here = pods.state_filter(|pod| pod.key().namespace == namespace);
        let known: HashMap<String, Known> =
            here.iter().map(|pod| (pod.uid().to_owned(), self.known(pod))).collect();
        if let Some(space) = self.spaces.get_mut(namespace) {
            space.pods = known;
        }
    }

    fn select_anew(&mut self, namespace: &str) {
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        for known in space.pods.values_mut() {
            let selecting = self.index.selecting(namespace, known.pod.view().labels);
            known.sets = selecting.into_iter().map(|set| set.name.clone()).collect();
        }
    }

    /// A version of a pod; `is_followed` when it comes from the watch, which alone tells that there is a pod.
    pub(super) fn saw(&mut self, pod: &Arc<CachedPod>, is_followed: bool) {
        let namespace = pod.key().namespace;
        if !self.spaces.contains_key(&namespace) {
            return;
        }
        let after = self.known(pod);
        let Some(space) = self.spaces.get_mut(&namespace) else { return };
        let before = space.pods.get(pod.uid());
        let is_news = match before {
            Some(before) if before.pod.is_newer_than(pod) => return,
            Some(before) => before.differs(&after),
            None if !is_followed => return,
            None => !after.sets.is_empty(),
        };
        let is_asked = |asking: &Asking| after.askings.contains(asking);
        if let Some(others) = space.others.get_mut(pod.uid()) {
            others.retain(|(asking, _)| is_asked(asking));
        }
        if let Some(said) = space.said.get_mut(pod.uid()) {
            said.retain(|(asking, _)| is_asked(asking));
        }
        if is_news {
            space.touch(&after.sets);
        }
        let before = space.pods.insert(pod.uid().to_owned(), after);
        if let Some(before) = before.filter(|_| is_news) {
            space.touch(&before.sets);
        }
    }

    /// A pod is gone, or not opted in any more.
    pub(super) fn gone(&mut self, pod: &CachedPod) {
        if let Some(space) = self.spaces.get_mut(&pod.key().namespace) {
            space.forget(pod.uid());
        }
    }

    /// The rule sets of `namespace` that are to be decided about now. None before the pods were listed: who doesn't know them would take
    /// tasks of webhooks for such as nobody waits for any more.
    pub(super) fn take_touched(&mut self, namespace: &str) -> Option<BTreeSet<String>> {
        let space = self.spaces.get_mut(namespace).filter(|_| self.are_pods_listed)?;
        Some(space.take_touched())
    }

    /// The pods were listed anew.
    pub(super) fn relist(&mut self, pods: &Store<CachedPod>) {
        self.are_pods_listed = true;
        let namespaces: Vec<String> = self.spaces.keys().cloned().collect();
        for namespace in namespaces {
            let own = self.spaces.get_mut(&namespace).map(|space| std::mem::take(&mut space.pods));
            self.fill(&namespace, pods);
            let Some(space) = self.spaces.get_mut(&namespace) else { continue };
            for (uid, own) in own.into_iter().flatten() {
                match space.pods.get_mut(&uid) {
                    Some(listed) if own.pod.is_newer_than(&listed.pod) => *listed = own,
                    Some(_) => {}
                    None => space.forget(&uid),
                }
            }
            space.touch_all();
        }
    }

    /// What others than rules say to what a pod asks.
    pub(super) fn heard(&mut self, pod: &PodKey, uid: &str, said: Vec<(Asking, Others)>) {
        let Some(space) = self.spaces.get_mut(&pod.namespace) else { return };
        if said.is_empty() {
            space.others.remove(uid);
        } else if space.others.get(uid) != Some(&said) {
            space.others.insert(uid.to_owned(), said);
            let sets = space.pods.get(uid).map(|known| known.sets.clone()).unwrap_or_default();
            space.touch(&sets);
        }
    }
}

impl Space {
    /// A decision about these rule sets may be another one.
    pub(super) fn touch<'a>(&mut self, sets: impl IntoIterator<Item = &'a String>) {
        let mut sets = sets.into_iter().peekable();
        if sets.peek().is_none() {
            return;
        }
        if let Touched::Some(touched) = &mut self.touched {
            touched.extend(sets.cloned());
        }
        self.bell.notify_one();
    }

    /// A decision about any rule set may be another one.
    pub(super) fn touch_all(&mut self) {
        self.touched = Touched::All;
        self.bell.notify_one();
    }

    /// The rule sets that are to be decided about together: those that were touched, and all that have a pod in common with them that asks.
    fn take_touched(&mut self) -> BTreeSet<String> {
        let mut sets = match std::mem::take(&mut self.touched) {
            Touched::All => return self.records.keys().cloned().collect(),
            Touched::Some(sets) => sets,
        };
        let asking: Vec<&Known> = self.pods.values().filter(|known| !known.askings.is_empty()).collect();
        loop {
            let before = sets.len();
            for known in &asking {
                if known.sets.iter().any(|set| sets.contains(set)) {
                    sets.extend(known.sets.iter().cloned());
                }
            }
            if sets.len() == before {
                return sets;
            }
        }
    }

    fn forget(&mut self, uid: &str) {
        let sets = self.pods.remove(uid).map(|known| known.sets).unwrap_or_default();
        self.touch(&sets);
        self.others.remove(uid);
        self.said.remove(uid);
    }

    pub(super) fn said(&self, uid: &str, asking: &Asking) -> Option<&Said> {
        self.said.get(uid)?.iter().find(|(known, _)| known == asking).map(|(_, said)| said)
    }

    pub(super) fn others(&self, uid: &str, asking: &Asking) -> Others {
        let found = self.others.get(uid).and_then(|all| all.iter().find(|(known, _)| known == asking));
        found.map_or(Others::Unheard, |(_, others)| *others)
    }
}
