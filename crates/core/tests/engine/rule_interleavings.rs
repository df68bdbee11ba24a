//! Budgets of rules, whatever the order in which pods ask, give up, crash and are replaced, rules change, come and go,
//! and two controllers with old knowledge write.

use podward_core::rules::{
    Amount, AvailablePolicy, CheckRequest, CheckStage, Grants, Limit, NoWebhookAnswers, OtherChecks, Rule,
    RuleBudget, RuleCheck, RuleMember, RulePod, RuleSet, settle,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::rule_model::{Labels, Model, PODS, act};
use podward_core::hooks::Selector;
use podward_core::keys::{DELETE_OPERATION, SERVICE_AVAILABLE, Stage};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No budget is overdrawn by what is given, nobody leaves service without it, and in the end everybody who asks
    /// gets through.
    #[test]
    fn no_budget_is_overdrawn(most in [1..4u32, 1..4u32, 1..4u32], acts in vec(act(), 0..200)) {
        let mut model = Model::new(most);
        for act in &acts {
            model.act(act)?;
        }
        model.settle()?;
    }
}

/// The property says nothing unless things happen in it.
#[test]
fn the_model_completes_operations() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut granted = 0;
    for _ in 0..50 {
        let acts = vec(act(), 200).new_tree(&mut runner).unwrap().current();
        let mut model = Model::new([2, 2, 2]);
        acts.iter().for_each(|act| model.act(act).unwrap());
        granted += model.granted;
        model.settle().unwrap();
        assert!((0..PODS).all(|pod| !model.is_asking(pod)));
    }
    assert!(granted > 100, "{granted}");
}

fn budget(most: u32, fewest: u32) -> RuleSet {
    let policy = AvailablePolicy {
        max_unavailable: vec![Limit::Amount(Amount::Pods(most))],
        min_available: vec![Limit::Amount(Amount::Pods(fewest))],
    };
    let rule = Rule {
        name: "budget".to_owned(),
        stage: Some(CheckStage::PreCheck),
        check: RuleCheck::Available(policy),
        ..Rule::default()
    };
    RuleSet { selector: Some(Selector::everything()), rules: vec![rule], ..RuleSet::default() }
}

#[derive(Clone, Debug)]
struct One {
    available: bool,
    ends_workload: bool,
    drained: bool,
    asked_at: Option<i64>,
    others: u8,
}

impl One {
    fn labels(&self) -> Labels {
        let available = self.available.then(|| SERVICE_AVAILABLE.to_owned());
        let drained = self.drained.then(|| Stage::Operate.key(DELETE_OPERATION));
        available.into_iter().chain(drained).map(|key| (key, "1".to_owned())).collect()
    }

    /// A pod that may be deleted because its workload ends is as good as deleted.
    fn counts(&self) -> bool {
        self.available || !self.drained || !self.ends_workload
    }
}

fn one() -> impl Strategy<Value = One> {
    (prop::bool::weighted(0.8), any::<[bool; 2]>(), prop::option::of(0..20i64), 0..6u8).prop_map(
        |(available, [ends_workload, drained], asked_at, others)| One {
            available,
            ends_workload,
            drained,
            asked_at,
            others,
        },
    )
}

proptest! {
    /// Exactly as many as there is room for get it, the oldest of those that can use it.
    #[test]
    fn the_oldest_get_the_room_that_there_is(
        pods in vec(one(), 0..30), most in 0..12u32, fewest in 0..30u32, missing in 0..3u32, held in 0..4usize,
    ) {
        let set = budget(most, fewest);
        let names: Vec<String> = (0..pods.len()).map(|pod| format!("web-{pod:02}")).collect();
        let labels: Vec<Labels> = pods.iter().map(One::labels).collect();
        let asked: Vec<Vec<CheckRequest>> = pods
            .iter()
            .map(|pod| {
                let check_request = |at: i64| CheckRequest { stage: CheckStage::PreCheck, operation: "a".to_owned(), asked_at: at.to_string() };
                pod.asked_at.map(check_request).into_iter().collect()
            })
            .collect();
        let members: Vec<RuleMember<'_>> = (0..pods.len())
            .map(|pod| RuleMember {
                pod: RulePod { namespace: "shop", name: &names[pod], uid: &names[pod], labels: &labels[pod], skip: None },
                check_requests: &asked[pod],
                sets: &[0],
                ends_workload: pods[pod].ends_workload,
            })
            .collect();
        let others = |pod: &RulePod<'_>, _: &CheckRequest| {
            let place = names.iter().position(|name| name == pod.name).unwrap();
            match pods[place].others { 0 => OtherChecks::Unknown, 1 => OtherChecks::Refuse, _ => OtherChecks::Agree }
        };
        // Some were given room before.
        let none = Grants::default();
        let open = RuleBudget { set: &set, stored_grants: &none, missing, is_current: true };
        let everybody = settle("me", &[open], &members, &NoWebhookAnswers, &|_, _| OtherChecks::Agree);
        let first = everybody.new_grants[0].clone().unwrap_or_default();
        let stored_grants = Grants::new("me", first.grants().iter().take(held).cloned().collect());
        let result = settle("me", &[RuleBudget { stored_grants: &stored_grants, ..open }], &members, &NoWebhookAnswers, &others);
        let grants = result.new_grants[0].as_ref().unwrap_or(&stored_grants).grants();
        let given: Vec<&str> = grants.iter().skip(stored_grants.grants().len()).map(|grant| grant.pod.as_str()).collect();

        let holds = |name: &str| stored_grants.grants().iter().any(|grant| grant.pod == name);
        let mut may: Vec<(i64, &str)> = pods
            .iter()
            .zip(&names)
            .filter(|(pod, name)| pod.available && pod.others > 1 && !holds(name))
            .filter_map(|(pod, name)| Some((pod.asked_at?, name.as_str())))
            .collect();
        may.sort_unstable();
        let all = pods.iter().filter(|pod| pod.counts()).count() as i64;
        let out = pods.iter().filter(|pod| !pod.available && pod.counts()).count() as i64 + stored_grants.grants().len() as i64;
        let room = (i64::from(most) - i64::from(missing) - out).min(all - out - i64::from(fewest)).max(0);
        let expected: Vec<&str> = may.into_iter().map(|(_, name)| name).take(room as usize).collect();
        prop_assert_eq!(given, expected);
        for verdict in &result.verdicts {
            let pod = &members[verdict.member];
            let granted = grants.iter().any(|grant| grant.pod == pod.pod.name);
            prop_assert_eq!(verdict.refusals.is_empty(), granted || !pod.pod.is_available(), "{:?}", verdict);
        }
    }
}

/// A pod of a Job that ends has the most restarts. It is drained, and waits until the others are gone, which need its
/// room.
#[test]
fn a_pod_that_waits_for_the_others_of_its_workload_takes_no_room() {
    let (set, none) = (budget(1, 0), Grants::default());
    let serves = Labels::from([(SERVICE_AVAILABLE.to_owned(), "1".to_owned())]);
    let drained = Labels::from([(Stage::Operate.key(DELETE_OPERATION), "1".to_owned())]);
    let request = |at: &str| {
        vec![CheckRequest {
            stage: CheckStage::PreCheck,
            operation: DELETE_OPERATION.to_owned(),
            asked_at: at.to_owned(),
        }]
    };
    let requests = [Vec::new(), request("1"), request("2")];
    let given = |labels: [&Labels; 3], ends_workload: bool, stored_grants: &Grants| {
        let members =
            ["a", "b", "c"].into_iter().zip(labels).zip(&requests).map(|((name, labels), requests)| {
                let pod = RulePod { namespace: "shop", name, uid: name, labels, skip: None };
                RuleMember { pod, check_requests: requests, sets: &[0], ends_workload }
            });
        let members: Vec<RuleMember<'_>> = members.collect();
        let budget = RuleBudget { set: &set, stored_grants, missing: 0, is_current: true };
        let result = settle("me", &[budget], &members, &NoWebhookAnswers, &|_, _| OtherChecks::Agree);
        result.new_grants[0].clone().unwrap_or_else(|| stored_grants.clone())
    };
    let names = |grants: &Grants| grants.grants().iter().map(|grant| grant.pod.clone()).collect::<Vec<_>>();
    let (draining, no_names) = (Labels::new(), Vec::<String>::new());
    assert_eq!(
        names(&given([&drained, &serves, &serves], false, &none)),
        no_names,
        "its workload does not end"
    );
    assert_eq!(names(&given([&draining, &serves, &serves], true, &none)), no_names, "it still drains");
    let one = given([&drained, &serves, &serves], true, &none);
    assert_eq!(names(&one), ["b"], "one at a time");
    assert_eq!(names(&given([&drained, &serves, &serves], true, &one)), ["b"], "the granted pod counts");
}
