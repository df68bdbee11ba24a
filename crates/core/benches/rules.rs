//! What the engine costs for rules: a decision about many pods, and to find the rules of one pod among many. Run with
//! `cargo bench -p podward-core`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use divan::{Bencher, black_box};
use podward_core::UnixNanos;
use podward_core::hooks::Selector;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_AVAILABLE, Stage};
use podward_core::rules::{
    Amount, AvailablePolicy, CheckRequest, CheckStage, Grants, Limit, NoWebhookAnswers, OtherChecks, Rule,
    RuleBudget, RuleCheck, RuleIndex, RuleMember, RulePod, RuleSet, RuleSettlement, check_requests,
    rule_reports, settle,
};

const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);
const NAMESPACE: &str = "shop";
const ME: &str = "lifecycle-controller-7d4b9c6f5-x2x2x/0123456789abcdef";
const PODS: usize = 5000;
const ASKING: usize = 500;

type Labels = BTreeMap<String, String>;

fn main() {
    divan::main();
}

/// A rule set for the pods that `selector` matches: so many percent of them may be unavailable.
fn rule_set(name: &str, selector: Selector, percent: u32) -> RuleSet {
    let policy = AvailablePolicy {
        max_unavailable: vec![Limit::Amount(Amount::Percent(percent))],
        min_available: Vec::new(),
    };
    RuleSet {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
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

fn of_app(app: &str) -> Selector {
    Selector::new(Labels::from([("app".to_owned(), app.to_owned())]), []).unwrap()
}

/// The labels of a pod in service, 25 in all.
fn in_service(app: &str) -> Labels {
    let mut labels = Labels::from([
        (CONTROL_LABEL.to_owned(), CONTROL_VALUE.to_owned()),
        (SERVICE_AVAILABLE.to_owned(), NOW.to_string()),
        ("app".to_owned(), app.to_owned()),
    ]);
    for i in labels.len()..25 {
        labels.insert(format!("team-{i}.example.com/label-number-{i}"), format!("value-{i}"));
    }
    labels
}

/// A namespace whose pods one rule set selects.
struct Shop {
    set: RuleSet,
    stored_grants: Grants,
    pods: Vec<(String, String, Labels, Vec<CheckRequest>)>,
}

impl Shop {
    fn new(percent: u32) -> Shop {
        let pod = |number: usize| {
            let name = format!("web-7d4b9c6f5-{number:05}");
            let uid = format!("00000000-0000-0000-0000-{number:012}");
            let mut labels = in_service("web");
            // Those that ask are spread over all.
            if number.is_multiple_of(PODS / ASKING) {
                let at = (NOW.0 + i64::try_from(number).unwrap()).to_string();
                labels.insert(Stage::Operating.key("collaset"), at.clone());
                labels.insert(Stage::OperationType.key("collaset"), "update".to_owned());
                labels.insert(Stage::PreCheck.key("collaset"), at);
            }
            let check_requests = check_requests(&labels);
            (name, uid, labels, check_requests)
        };
        let stored_grants = Grants::new(ME, Vec::new());
        Shop {
            set: rule_set("web", of_app("web"), percent),
            stored_grants,
            pods: (0..PODS).map(pod).collect(),
        }
    }

    fn members(&self) -> Vec<RuleMember<'_>> {
        let pods = self.pods.iter().map(|(name, uid, labels, check_requests)| {
            let pod = RulePod { namespace: NAMESPACE, name, uid, labels, skip: None };
            RuleMember { pod, check_requests, sets: &[0], ends_workload: false }
        });
        pods.collect()
    }

    fn settle(&self, members: &[RuleMember<'_>]) -> RuleSettlement {
        let budget =
            RuleBudget { set: &self.set, stored_grants: &self.stored_grants, missing: 0, is_current: true };
        settle(ME, &[budget], members, &NoWebhookAnswers, &|_, _| OtherChecks::Agree)
    }

    /// With the stored_grants in place that was made of it.
    fn settled(mut self) -> Shop {
        let settlement = self.settle(&self.members());
        self.stored_grants = settlement.new_grants.into_iter().flatten().next().unwrap();
        self
    }

    fn granted(&self, settlement: &RuleSettlement) -> usize {
        settlement.new_grants[0].as_ref().unwrap_or(&self.stored_grants).grants().len()
    }
}

/// Room for all that ask and nothing given yet; the same once the stored_grants is full; room for a tenth of those that ask.
const CASES: [&str; 3] = ["first", "stored_grants full", "little room"];

fn shop(case: &str) -> Shop {
    let shop = match case {
        "first" => Shop::new(25),
        "stored_grants full" => Shop::new(25).settled(),
        _ => Shop::new(1),
    };
    let granted = shop.granted(&shop.settle(&shop.members()));
    match case {
        "little room" => assert_eq!(granted, ASKING / 10),
        _ => assert!((300..ASKING).contains(&granted), "{granted}: as many as a stored_grants has place for"),
    }
    shop
}

/// A decision about 5,000 pods, 500 of which ask.
#[divan::bench(args = CASES)]
fn settle_5000_pods(bencher: Bencher<'_, '_>, case: &str) {
    let shop = shop(case);
    let members = shop.members();
    bencher.bench(|| shop.settle(black_box(&members)));
}

/// What the status says of it.
#[divan::bench(args = CASES)]
fn report_on_5000_pods(bencher: Bencher<'_, '_>, case: &str) {
    let shop = shop(case);
    let members = shop.members();
    let settlement = shop.settle(&members);
    bencher.bench(|| rule_reports(black_box(&members), &settlement));
}

/// So many rule sets, each with ten pods of its own, one of which asks.
struct Mall {
    sets: Vec<RuleSet>,
    stored_grants: Grants,
    pods: Vec<(usize, String, Labels, Vec<CheckRequest>)>,
}

impl Mall {
    fn new(sets: usize) -> Mall {
        let pod = |number: usize| {
            let mut labels = in_service("web");
            if number.is_multiple_of(10) {
                labels.insert(Stage::Operating.key("collaset"), NOW.to_string());
                labels.insert(Stage::OperationType.key("collaset"), "update".to_owned());
                labels.insert(Stage::PreCheck.key("collaset"), NOW.to_string());
            }
            let check_requests = check_requests(&labels);
            (number / 10, format!("web-{number:05}"), labels, check_requests)
        };
        Mall {
            sets: (0..sets).map(|set| rule_set(&format!("web-{set}"), of_app("web"), 25)).collect(),
            stored_grants: Grants::new(ME, Vec::new()),
            pods: (0..10 * sets).map(pod).collect(),
        }
    }

    fn members(&self) -> Vec<RuleMember<'_>> {
        let pods = self.pods.iter().map(|(set, name, labels, check_requests)| {
            let pod = RulePod { namespace: NAMESPACE, name, uid: name, labels, skip: None };
            RuleMember { pod, check_requests, sets: std::slice::from_ref(set), ends_workload: false }
        });
        pods.collect()
    }
}

/// A decision about all rule sets of a namespace, and what their statuses say of it: each more costs the same.
#[divan::bench(args = [10, 100, 1000])]
fn decide_about_rule_sets(bencher: Bencher<'_, '_>, sets: usize) {
    let mall = Mall::new(sets);
    let members = mall.members();
    let budget = |set| RuleBudget { set, stored_grants: &mall.stored_grants, missing: 0, is_current: true };
    let budgets: Vec<RuleBudget<'_>> = mall.sets.iter().map(budget).collect();
    let decide = |members: &[RuleMember<'_>]| {
        let settlement = settle(ME, &budgets, members, &NoWebhookAnswers, &|_, _| OtherChecks::Agree);
        let reports = rule_reports(members, &settlement);
        (settlement, reports)
    };
    let (settlement, reports) = decide(&members);
    assert!(
        settlement.new_grants.iter().flatten().count() == sets
            && reports.iter().all(|report| report.target_count == 10)
    );
    bencher.bench(|| decide(black_box(&members)));
}

/// The rule set that selects the pod, and `others`.
fn index(others: usize, selector: impl Fn(usize) -> Selector) -> RuleIndex {
    let mut index = RuleIndex::default();
    for number in 0..others {
        index.put(Arc::new(rule_set(&format!("other-{number}"), selector(number), 25)));
    }
    index.put(Arc::new(rule_set("own", of_app("web"), 25)));
    index
}

fn with_key(equal: Labels, key: String) -> Selector {
    Selector::new(equal, [(key, "Exists".to_owned(), Vec::new())]).unwrap()
}

const OTHERS: [usize; 4] = [1, 100, 1000, 5000];

/// The rule set of a pod among others that want another value of the same label.
#[divan::bench(args = OTHERS)]
fn selecting_among_values(bencher: Bencher<'_, '_>, others: usize) {
    let index = index(others, |number| of_app(&format!("app-{number}")));
    selecting(bencher, &index);
}

/// The same among others that want a label to exist which the pod doesn't have.
#[divan::bench(args = OTHERS)]
fn selecting_among_keys(bencher: Bencher<'_, '_>, others: usize) {
    let index = index(others, |number| with_key(Labels::new(), format!("app-{number}")));
    selecting(bencher, &index);
}

/// The same among others that want the pod's label, and another besides.
#[divan::bench(args = OTHERS)]
fn selecting_among_both(bencher: Bencher<'_, '_>, others: usize) {
    let app = || Labels::from([("app".to_owned(), "web".to_owned())]);
    let index = index(others, |number| with_key(app(), format!("app-{number}")));
    selecting(bencher, &index);
}

fn selecting(bencher: Bencher<'_, '_>, index: &RuleIndex) {
    let labels = in_service("web");
    let names: Vec<&str> = index.selecting(NAMESPACE, &labels).iter().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["own"]);
    bencher.bench(|| index.selecting(NAMESPACE, black_box(&labels)));
}
