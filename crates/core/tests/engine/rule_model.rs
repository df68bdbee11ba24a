//! A model in which pods ask, rules come and go, and two controllers decide on what they happen to know: each sees pods
//! and rule objects some time after they were stored, and what each has sent lands later, or is refused because
//! something else landed before.

use std::collections::BTreeMap;

use podward_core::hooks::Selector;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_AVAILABLE, Stage};
use podward_core::rules::{
    Amount, AvailablePolicy, CheckRequest, CheckStage, Grants, Limit, NoWebhookAnswers, OtherChecks, Rule,
    RuleBudget, RuleCheck, RuleMember, RulePod, RuleSet, RuleSettlement, check_requests, settle,
};
use podward_core::{
    CheckResult, Checks, ConditionStatus, LabelChanges, Objection, PodFacts, PodView, UnixNanos, advance,
    plan_labels,
};
use proptest::prelude::*;

mod acts;
mod deciding;

pub(crate) use acts::{Act, act};

pub(crate) type Labels = BTreeMap<String, String>;

/// A pod as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredPod {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) labels: Labels,
}

/// A rule object as it is stored; `None` in its place while there is none.
#[derive(Clone, Debug)]
pub(crate) struct StoredRule {
    pub(crate) set: RuleSet,
    pub(crate) stored_grants: Grants,
    pub(crate) version: u64,
    /// Another number when the object was removed and made again.
    pub(crate) incarnation: u64,
}

#[derive(Clone, Debug)]
enum Write {
    Ledger { rule: usize, seen: u64, incarnation: u64, stored_grants: Grants },
    Pod { pod: usize, seen: u64, changes: LabelChanges, known: Vec<Option<u64>> },
}

/// A controller that believes that it leads.
#[derive(Clone, Debug)]
struct Leader {
    term: u64,
    /// How far it has followed the pods' history.
    cursor: usize,
    pods: Vec<StoredPod>,
    rules: Vec<Option<StoredRule>>,
    /// The version of each rule object that it held when it last read the pods anew.
    read_after: Vec<u64>,
    /// True if it has heard of hooks and others.
    has_heard: bool,
}

pub(crate) const PODS: usize = 6;
pub(crate) const RULES: usize = 3;

pub(crate) struct Model {
    pub(crate) pods: Vec<StoredPod>,
    pub(crate) rules: Vec<Option<StoredRule>>,
    history: Vec<(usize, StoredPod)>,
    leaders: Vec<Leader>,
    in_flight: Vec<(usize, Write)>,
    objects: Vec<bool>,
    clock: i64,
    version: u64,
    /// For each rule object the pods (by UID) that were given room, until they are back in service or have given up.
    out: Vec<BTreeMap<String, CheckRequest>>,
    pub(crate) granted: usize,
}

/// Pods are selected by the rules whose bit is set in their number plus one, so that many have several.
fn selected_by(pod: usize, rule: usize) -> bool {
    rule == 0 || (pod + 1) & (1 << (rule - 1)) != 0
}

fn in_service(pod: usize) -> Labels {
    let mut labels = Labels::from([
        (CONTROL_LABEL.to_owned(), CONTROL_VALUE.to_owned()),
        (SERVICE_AVAILABLE.to_owned(), "1".to_owned()),
    ]);
    for rule in (0..RULES).filter(|rule| selected_by(pod, *rule)) {
        labels.insert(format!("rule-{rule}"), "yes".to_owned());
    }
    labels
}

fn rule_set(rule: usize, most: u32) -> RuleSet {
    let selector = Selector::new(BTreeMap::from([(format!("rule-{rule}"), "yes".to_owned())]), []).unwrap();
    let policy = AvailablePolicy {
        max_unavailable: vec![Limit::Amount(Amount::Pods(most))],
        min_available: Vec::new(),
    };
    RuleSet {
        namespace: "shop".to_owned(),
        name: format!("rule-{rule}"),
        selector: Some(selector),
        rules: vec![Rule {
            name: "budget".to_owned(),
            stage: Some(CheckStage::PreCheck),
            check: RuleCheck::Available(policy),
            ..Rule::default()
        }],
        ..RuleSet::default()
    }
}

fn view(labels: &Labels) -> PodView<'_> {
    PodView {
        labels,
        available_conditions: None,
        finalizers: &[],
        has_gate: true,
        gate: Some(ConditionStatus::True),
        ready: labels.contains_key(SERVICE_AVAILABLE),
        terminating: false,
        facts: PodFacts::default(),
    }
}

/// What a controller says to one pod by the new_grants that it knows.
struct ByLedger<'a> {
    pod: RulePod<'a>,
    rules: Vec<&'a StoredRule>,
    asked: Vec<CheckRequest>,
    objects: bool,
}

impl Checks for ByLedger<'_> {
    fn pre_check(&self, id: &str, _: &str) -> CheckResult {
        let check_request = self.asked.iter().find(|check_request| check_request.operation == id);
        let Some(check_request) = check_request else { return CheckResult::Wait("announced".to_owned()) };
        let passes = |rule: &&StoredRule| {
            let judgement = rule.set.evaluate(&self.pod, check_request, &NoWebhookAnswers);
            judgement.refusals.is_empty()
                && (judgement.budgets.is_empty() || rule.stored_grants.has(self.pod.uid, check_request))
        };
        match !self.objects && self.rules.iter().all(passes) {
            true => CheckResult::Pass,
            false => CheckResult::Wait("no room".to_owned()),
        }
    }

    fn post_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Pass
    }

    fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
        Vec::new()
    }
}

const NAMES: [&str; PODS] = ["web-0", "web-1", "web-2", "web-3", "web-4", "web-5"];

fn subject(pod: usize, stored: &StoredPod) -> RulePod<'_> {
    let StoredPod { uid, labels, .. } = stored;
    RulePod { namespace: "shop", name: NAMES[pod], uid, labels, skip: None }
}

impl Model {
    pub(crate) fn new(most: [u32; RULES]) -> Self {
        let pods: Vec<StoredPod> = (0..PODS)
            .map(|pod| StoredPod {
                uid: format!("u{pod}-0"),
                version: pod as u64 + 1,
                labels: in_service(pod),
            })
            .collect();
        let rules: Vec<Option<StoredRule>> = (0..RULES)
            .map(|rule| {
                let set = rule_set(rule, most[rule]);
                Some(StoredRule {
                    set,
                    stored_grants: Grants::default(),
                    version: rule as u64 + 10,
                    incarnation: 0,
                })
            })
            .collect();
        let leader = Leader {
            term: 0,
            cursor: 0,
            pods: pods.clone(),
            rules: rules.clone(),
            read_after: vec![u64::MAX; RULES],
            has_heard: true,
        };
        Model {
            leaders: vec![leader.clone(), leader],
            pods,
            rules,
            history: Vec::new(),
            in_flight: Vec::new(),
            objects: vec![false; PODS],
            clock: 100,
            version: 20,
            out: vec![BTreeMap::new(); RULES],
            granted: 0,
        }
    }

    fn store_pod(&mut self, pod: usize, labels: Labels) {
        self.version += 1;
        let stored = &mut self.pods[pod];
        (stored.version, stored.labels) = (self.version, labels);
        self.history.push((pod, stored.clone()));
        self.forget_pods_in_service();
    }

    fn forget_pods_in_service(&mut self) {
        for out in &mut self.out {
            out.retain(|uid, check_request| {
                let pod = self.pods.iter().find(|pod| &pod.uid == uid);
                pod.is_some_and(|pod| {
                    check_requests(&pod.labels).contains(check_request)
                        || !pod.labels.contains_key(SERVICE_AVAILABLE)
                })
            });
        }
    }

    fn is_idle(&self, pod: usize) -> bool {
        !self.pods[pod].labels.contains_key(&Stage::Operating.key("a"))
    }

    pub(crate) fn is_asking(&self, pod: usize) -> bool {
        !check_requests(&self.pods[pod].labels).is_empty()
    }

    pub(crate) fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        self.clock += 1;
        match *act {
            Act::Begin(pod) if self.is_idle(pod) => {
                let mut labels = self.pods[pod].labels.clone();
                labels.insert(Stage::Operating.key("a"), self.clock.to_string());
                labels.insert(Stage::OperationType.key("a"), "update".to_owned());
                advance(None, &view(&labels), UnixNanos(self.clock)).apply(&mut labels);
                self.store_pod(pod, labels);
            }
            Act::Cancel(pod) if !self.is_idle(pod) => {
                let mut labels = self.pods[pod].labels.clone();
                labels.insert(Stage::UndoOperationType.key("a"), "update".to_owned());
                advance(None, &view(&labels), UnixNanos(self.clock)).apply(&mut labels);
                self.store_pod(pod, labels);
            }
            Act::Finish(pod) if !self.is_idle(pod) && !self.is_asking(pod) => {
                self.store_pod(pod, in_service(pod));
            }
            Act::Crash(pod) => {
                let mut labels = self.pods[pod].labels.clone();
                if labels.remove(SERVICE_AVAILABLE).is_some() {
                    self.store_pod(pod, labels);
                }
            }
            Act::Recover(pod) if self.is_idle(pod) || self.is_asking(pod) => {
                let mut labels = self.pods[pod].labels.clone();
                if labels.insert(SERVICE_AVAILABLE.to_owned(), "1".to_owned()).is_none() {
                    self.store_pod(pod, labels);
                }
            }
            Act::Replace(pod) => {
                self.pods[pod].uid = format!("u{pod}-{}", self.version);
                self.store_pod(pod, in_service(pod));
            }
            Act::Object(pod) => self.objects[pod] = !self.objects[pod],
            Act::Edit(rule, most) => {
                self.version += 1;
                let version = self.version;
                let set = rule_set(rule, most);
                match &mut self.rules[rule] {
                    Some(stored) => (stored.set, stored.version) = (set, version),
                    none => {
                        let stored_grants = Grants::default();
                        *none = Some(StoredRule { set, stored_grants, version, incarnation: version });
                    }
                }
            }
            Act::Remove(rule) => {
                self.rules[rule] = None;
                self.out[rule].clear();
            }
            Act::Follow(leader, events) => self.follow(leader, events),
            Act::ReadRule(leader, rule) => self.leaders[leader].rules[rule] = self.rules[rule].clone(),
            Act::ReadPods(leader) => {
                let held = &self.leaders[leader].rules;
                let versions = held.iter().map(|rule| rule.as_ref().map_or(0, |rule| rule.version)).collect();
                self.leaders[leader].read_after = versions;
                self.follow(leader, usize::MAX);
            }
            Act::NewTerm(leader) => {
                self.follow(leader, usize::MAX);
                let leader = &mut self.leaders[leader];
                leader.term += 1;
                leader.has_heard = false;
                leader.read_after = vec![u64::MAX; RULES];
            }
            Act::Hear(leader) => self.leaders[leader].has_heard = true,
            Act::Look(leader, pod) => self.look(leader, pod),
            Act::Decide(leader) => self.decide(leader)?,
            Act::Round(leader) => {
                (0..RULES).for_each(|rule| self.leaders[leader].rules[rule] = self.rules[rule].clone());
                self.decide(leader)?;
                (0..PODS).for_each(|pod| self.look(leader, pod));
            }
            Act::Land(number) if !self.in_flight.is_empty() => self.land(number % self.in_flight.len())?,
            Act::Lose(number) if number < self.in_flight.len() => drop(self.in_flight.remove(number)),
            _ => {}
        }
        Ok(())
    }

    fn follow(&mut self, leader: usize, events: usize) {
        let leader = &mut self.leaders[leader];
        let until = leader.cursor.saturating_add(events).min(self.history.len());
        for (pod, stored) in &self.history[leader.cursor..until] {
            if stored.version > leader.pods[*pod].version {
                leader.pods[*pod] = stored.clone();
            }
        }
        leader.cursor = until;
    }

    fn name(&self, leader: usize) -> String {
        format!("leader-{leader}-{}", self.leaders[leader].term)
    }

    fn look(&mut self, number: usize, pod: usize) {
        let leader = &self.leaders[number];
        let stored = &leader.pods[pod];
        let selects = |rule: &&StoredRule| rule.set.selects(&stored.labels);
        let checks = ByLedger {
            pod: subject(pod, stored),
            rules: leader.rules.iter().flatten().filter(selects).collect(),
            asked: check_requests(&stored.labels),
            objects: self.objects[pod],
        };
        let changes = plan_labels(&view(&stored.labels), &checks, UnixNanos(self.clock));
        if !changes.is_empty() {
            let known = leader.rules.iter().map(|rule| Some(rule.as_ref()?.incarnation)).collect();
            self.in_flight.push((number, Write::Pod { pod, seen: stored.version, changes, known }));
        }
    }

    /// From now on one leader sees everything, and operators do their work: everybody who asks gets through, one after
    /// the other.
    pub(crate) fn settle(&mut self) -> Result<(), TestCaseError> {
        self.objects = vec![false; PODS];
        while !self.in_flight.is_empty() {
            self.land(0)?;
        }
        self.act(&Act::NewTerm(0))?;
        self.act(&Act::Hear(0))?;
        for rule in 0..RULES {
            if self.rules[rule].is_none() {
                self.act(&Act::Edit(rule, 1))?;
            }
        }
        for _ in 0..4 * PODS + 8 {
            for pod in 0..PODS {
                self.act(&Act::Finish(pod))?;
                self.act(&Act::Recover(pod))?;
            }
            for rule in 0..RULES {
                self.act(&Act::ReadRule(0, rule))?;
            }
            self.act(&Act::ReadPods(0))?;
            for act in [Act::Decide(0)].into_iter().chain((0..PODS).map(|pod| Act::Look(0, pod))) {
                self.act(&act)?;
                while !self.in_flight.is_empty() {
                    self.land(0)?;
                }
            }
        }
        let waiting: Vec<&str> = (0..PODS).filter(|pod| self.is_asking(*pod)).map(|pod| NAMES[pod]).collect();
        prop_assert!(waiting.is_empty(), "{waiting:?} wait for ever: {:?}", self.rules);
        Ok(())
    }
}
