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
    Amount, Asking, AvailablePolicy, Budget, Check, CheckStage, Ledger, Limit, Member, NoAnswers, Others,
    Rule, RuleIndex, RuleSet, Settlement, Subject, askings, report, settle,
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
            check: Check::Available(policy),
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
    ledger: Ledger,
    pods: Vec<(String, String, Labels, Vec<Asking>)>,
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
            let askings = askings(&labels);
            (name, uid, labels, askings)
        };
        let ledger = Ledger { holder: ME.to_owned(), grants: Vec::new() };
        Shop { set: rule_set("web", of_app("web"), percent), ledger, pods: (0..PODS).map(pod).collect() }
    }

    fn members(&self) -> Vec<Member<'_>> {
        let pods = self.pods.iter().map(|(name, uid, labels, askings)| {
            let pod = Subject { namespace: NAMESPACE, name, uid, labels, skip: None };
            Member { pod, askings, sets: &[0] }
        });
        pods.collect()
    }

    fn settle(&self, members: &[Member<'_>]) -> Settlement {
        let budget = Budget { set: &self.set, ledger: &self.ledger, missing: 0, is_current: true };
        settle(ME, &[budget], members, &NoAnswers, &|_, _| Others::Agree)
    }

    /// With the ledger in place that was made of it.
    fn settled(mut self) -> Shop {
        let settlement = self.settle(&self.members());
        self.ledger = settlement.ledgers.into_iter().flatten().next().unwrap();
        self
    }

    fn granted(&self, settlement: &Settlement) -> usize {
        settlement.ledgers[0].as_ref().unwrap_or(&self.ledger).grants.len()
    }
}

/// Room for all that ask and nothing given yet; the same once the ledger is full; room for a tenth of those that ask.
const CASES: [&str; 3] = ["first", "ledger full", "little room"];

fn shop(case: &str) -> Shop {
    let shop = match case {
        "first" => Shop::new(25),
        "ledger full" => Shop::new(25).settled(),
        _ => Shop::new(1),
    };
    let granted = shop.granted(&shop.settle(&shop.members()));
    match case {
        "little room" => assert_eq!(granted, ASKING / 10),
        _ => assert!((300..ASKING).contains(&granted), "{granted}: as many as a ledger has place for"),
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
    bencher.bench(|| report(0, black_box(&members), &settlement));
}

/// The rule set that selects the pod, and `others`.
fn index(others: usize, selector: impl Fn(usize) -> Selector) -> RuleIndex {
    let mut index = RuleIndex::default();
    index.put(Arc::new(rule_set("own", of_app("web"), 25)));
    for number in 0..others {
        index.put(Arc::new(rule_set(&format!("other-{number}"), selector(number), 25)));
    }
    index
}

const OTHERS: [usize; 3] = [1, 100, 1000];

/// The rule set of a pod among others that want another value of the same label.
#[divan::bench(args = OTHERS)]
fn selecting_among_labels(bencher: Bencher<'_, '_>, others: usize) {
    let index = index(others, |number| of_app(&format!("app-{number}")));
    selecting(bencher, &index);
}

/// The same among others that no value of a label tells: each of them has to be tried.
#[divan::bench(args = OTHERS)]
fn selecting_among_expressions(bencher: Bencher<'_, '_>, others: usize) {
    let index = index(others, |number| {
        let expression = (format!("app-{number}"), "Exists".to_owned(), Vec::new());
        Selector::new(Labels::new(), [expression]).unwrap()
    });
    selecting(bencher, &index);
}

fn selecting(bencher: Bencher<'_, '_>, index: &RuleIndex) {
    let labels = in_service("web");
    let names: Vec<&str> = index.selecting(NAMESPACE, &labels).iter().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["own"]);
    bencher.bench(|| index.selecting(NAMESPACE, black_box(&labels)));
}
