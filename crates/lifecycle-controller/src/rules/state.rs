//! What is known of rule objects, and of the pods of namespaces that have some.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kube::runtime::reflector::Store;
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::PodTransitionRuleStatus;
use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::rules::{Answer, Asking, Ledger, Others, Refusal, RuleIndex, RuleSet, askings};
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
        let metadata = &object.metadata;
        Record {
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            set: Arc::new(object.to_rule_set()),
            ledger: Arc::new(Ledger::new(status.holder.clone(), status.grants.clone())),
            status,
            object: Some(Arc::new(object)),
            read_after: None,
        }
    }

    /// The version, as a number: the later one is the larger.
    pub(super) fn number(&self) -> u64 {
        self.version.parse().unwrap_or_default()
    }
}

/// A pod, and what counts of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) pod: Arc<CachedPod>,
    pub(super) askings: Vec<Asking>,
    /// Names of the rule sets that select it, in order.
    pub(super) sets: Vec<String>,
}

impl Known {
    /// Whether it counts at all: not a pod that is on its way out, or has run to its end.
    pub(super) fn is_active(&self) -> bool {
        let view = self.pod.view();
        !view.terminating && !self.pod.is_terminal() && view.is_controlled()
    }

    /// Whether a decision may be another one with `after` in its place.
    pub(super) fn differs(&self, after: &Known) -> bool {
        let available = |known: &Known| known.pod.labels().contains_key(SERVICE_AVAILABLE);
        let selects = !self.sets.is_empty() || !after.sets.is_empty();
        let asks = !after.askings.is_empty();
        selects
            && (self.askings != after.askings
                || self.sets != after.sets
                || self.is_active() != after.is_active()
                || available(self) != available(after)
                || (asks && self.pod.labels() != after.pod.labels())
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
    /// Takes over a rule object, if it is newer than what is known; `is_followed` when it comes from the watch, which alone tells that there
    /// is one. Gives whether its namespace had none before.
    pub(super) fn put(&mut self, record: Record, pods: &Store<CachedPod>, is_followed: bool) -> bool {
        let (namespace, name) = (record.set.namespace.clone(), record.set.name.clone());
        let is_new = !self.spaces.contains_key(&namespace);
        let before = self.spaces.get(&namespace).and_then(|space| space.records.get(&name));
        let same = before.filter(|before| before.uid == record.uid);
        let same_rules = same.is_some_and(|before| before.set == record.set);
        let is_old = same.is_some_and(|before| before.number() >= record.number());
        if is_old || (before.is_none() && !is_followed) {
            return false;
        }
        let set = record.set.clone();
        let space = self.spaces.entry(namespace.clone()).or_default();
        space.touch([&name]);
        space.records.insert(name.clone(), record);
        if !same_rules {
            space.touch_all();
            self.index.put(set.clone());
            match is_new {
                true => self.fill(&[&namespace], pods),
                false => space.reselect(&name, Some(&set)),
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
        space.reselect(name, None);
    }

    /// A list of all rule objects is complete: those that aren't `present` are gone. Gives them.
    pub(super) fn keep(&mut self, present: &[(String, String)]) -> Vec<(String, String)> {
        let present: HashSet<&(String, String)> = present.iter().collect();
        let of_space = |(namespace, space): (&String, &Space)| {
            let known = space.records.keys().map(|name| (namespace.clone(), name.clone()));
            known.filter(|known| !present.contains(known)).collect::<Vec<_>>()
        };
        let gone: Vec<(String, String)> = self.spaces.iter().flat_map(of_space).collect();
        gone.iter().for_each(|(namespace, name)| self.remove(namespace, name));
        gone
    }

    /// Lets go of `namespace` when it has no rule object any more, and those who waited for one have been told. Gives whether it did.
    pub(super) fn let_go(&mut self, namespace: &str) -> bool {
        let is_over = |space: &Space| space.records.is_empty() && space.touched == Touched::default();
        let is_over = self.spaces.get(namespace).is_some_and(is_over);
        if is_over {
            self.spaces.remove(namespace);
        }
        is_over
    }

    fn known(&self, pod: &Arc<CachedPod>) -> Known {
        let selecting = self.index.selecting(pod.namespace(), pod.labels());
        Known {
            askings: askings(pod.labels()),
            sets: selecting.into_iter().map(|set| set.name.clone()).collect(),
            pod: pod.clone(),
        }
    }

    /// Takes over the pods of these namespaces from the store.
    fn fill(&mut self, namespaces: &[&str], pods: &Store<CachedPod>) {
        let mut found: HashMap<&str, HashMap<String, Known>> =
            namespaces.iter().map(|namespace| (*namespace, HashMap::new())).collect();
        for pod in pods.state_filter(|pod| found.contains_key(pod.namespace())) {
            if let Some(found) = found.get_mut(pod.namespace()) {
                found.insert(pod.uid().to_owned(), self.known(&pod));
            }
        }
        for (namespace, found) in found {
            if let Some(space) = self.spaces.get_mut(namespace) {
                space.pods = found;
            }
        }
    }

    /// A version of a pod; `is_followed` when it comes from the watch, which alone tells that there is a pod.
    pub(super) fn saw(&mut self, pod: &Arc<CachedPod>, is_followed: bool) {
        if !self.spaces.contains_key(pod.namespace()) {
            return;
        }
        let after = self.known(pod);
        let Some(space) = self.spaces.get_mut(pod.namespace()) else { return };
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
        if let Some(space) = self.spaces.get_mut(pod.namespace()) {
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
        let own =
            |(namespace, space): (&String, &mut Space)| (namespace.clone(), std::mem::take(&mut space.pods));
        let own: HashMap<String, HashMap<String, Known>> = self.spaces.iter_mut().map(own).collect();
        self.fill(&own.keys().map(String::as_str).collect::<Vec<_>>(), pods);
        for (namespace, own) in own {
            let Some(space) = self.spaces.get_mut(&namespace) else { continue };
            for (uid, own) in own {
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
    pub(super) fn take_touched(&mut self) -> BTreeSet<String> {
        let mut sets = match std::mem::take(&mut self.touched) {
            Touched::All => return self.records.keys().cloned().collect(),
            Touched::Some(sets) => sets,
        };
        let mut asking: HashMap<&str, Vec<(&str, &Known)>> = HashMap::new();
        for (uid, known) in self.pods.iter().filter(|(_, known)| !known.askings.is_empty()) {
            known.sets.iter().for_each(|set| asking.entry(set).or_default().push((uid, known)));
        }
        let mut next: Vec<String> = sets.iter().cloned().collect();
        let mut done: HashSet<&str> = HashSet::new();
        while let Some(set) = next.pop() {
            for (uid, known) in asking.remove(set.as_str()).unwrap_or_default() {
                if done.insert(uid) {
                    next.extend(known.sets.iter().filter(|other| sets.insert((*other).clone())).cloned());
                }
            }
        }
        sets
    }

    /// The rule set `name` is now `set`; `None` when it is gone.
    pub(super) fn reselect(&mut self, name: &str, set: Option<&RuleSet>) {
        for (uid, known) in &mut self.pods {
            let is_selected = set.is_some_and(|set| set.selects(known.pod.labels()));
            match (known.sets.binary_search_by(|other| other.as_str().cmp(name)), is_selected) {
                (Err(place), true) => known.sets.insert(place, name.to_owned()),
                (Ok(place), false) => {
                    known.sets.remove(place);
                    // It may wait for a rule set that has said nothing to it yet; the next decision lets it know that none will.
                    if !known.askings.is_empty() {
                        self.said.entry(uid.clone()).or_default();
                    }
                }
                _ => {}
            }
        }
    }

    /// A pod is gone.
    pub(super) fn forget(&mut self, uid: &str) {
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
