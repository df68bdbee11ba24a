//! The status of a rule object: what stands in it, and that it stays small.

use podward_core::hooks::Selector;
use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::rules::{
    Amount, Answer, Answers, Asking, AvailablePolicy, Budget, Check, CheckStage, Detail, Ledger, Limit,
    Member, NoAnswers, Others, Refusal, Report, Rule, RuleSet, Settlement, Subject, reports, settle,
};

use crate::rule_world::Labels;

fn web(most: u32) -> RuleSet {
    let policy = AvailablePolicy {
        max_unavailable: vec![Limit::Amount(Amount::Pods(most))],
        ..AvailablePolicy::default()
    };
    let rule = |name: &str, check| Rule {
        name: name.to_owned(),
        stage: Some(CheckStage::PreCheck),
        check,
        ..Rule::default()
    };
    RuleSet {
        selector: Some(Selector::everything()),
        rules: vec![rule("budget", Check::Available(policy)), rule("webhook", Check::Webhook)],
        ..RuleSet::default()
    }
}

fn asking(operation: &str, at: i64) -> Asking {
    Asking { stage: CheckStage::PreCheck, operation: operation.to_owned(), asked_at: at.to_string() }
}

/// The report on the first rule set.
fn report(members: &[Member<'_>], settlement: &Settlement) -> Report {
    reports(members, settlement).swap_remove(0)
}

struct Approves;

impl Answers for Approves {
    fn answer(&self, _: &RuleSet, _: &Rule, _: &Subject<'_>, _: &Asking) -> Option<Answer> {
        Some(Answer::Approved)
    }
}

/// Refuses at length, in letters that take six bytes each in JSON.
struct Rants;

impl Answers for Rants {
    fn answer(&self, _: &RuleSet, _: &Rule, _: &Subject<'_>, _: &Asking) -> Option<Answer> {
        Some(Answer::Rejected("\u{1}".repeat(5000)))
    }
}

#[test]
fn details_are_those_of_the_wire() {
    let set = web(1);
    let on = Labels::from([(SERVICE_AVAILABLE.to_owned(), "1".to_owned())]);
    let ledger = Ledger::default();
    let asked: [Vec<Asking>; 4] =
        [vec![asking("a", 9)], vec![asking("a", 3)], Vec::new(), vec![asking("b", 5), asking("a", 8)]];
    let names = ["web-0", "web-1", "web-2", "web-3"];
    let members: Vec<Member<'_>> = names
        .iter()
        .zip(&asked)
        .map(|(name, askings)| Member {
            pod: Subject { namespace: "shop", name, uid: name, labels: &on, skip: None },
            askings,
            sets: &[0],
        })
        .collect();
    let budget = Budget { set: &set, ledger: &ledger, missing: 0, is_current: true };
    let settlement = settle("me", &[budget], &members, &Approves, &|_, _| Others::Agree);
    let found = report(&members, &settlement);
    assert_eq!(
        found.targets,
        ["web-3", "web-0", "web-1", "web-2"],
        "those that wait first, the oldest first"
    );
    assert_eq!((found.target_count, found.waiting_count), (4, 2));
    let json = serde_json::to_value(&found.details).unwrap();
    let full = "[budget] blocked by max unavailable policy: [max unavailable]=1/4, [current unavailable]=1/4";
    let waits = |name: &str| {
        serde_json::json!({
            "name": name, "stage": "PreCheck", "passed": false, "passedRules": ["webhook"],
            "rejectInfo": [{"ruleName": "budget", "reason": full}],
        })
    };
    let passed = serde_json::json!({
        "name": "web-1", "stage": "PreCheck", "passed": true, "passedRules": ["webhook", "budget"],
    });
    assert_eq!(json, serde_json::json!([waits("web-3"), waits("web-0"), passed]));
    let detail = Detail {
        stage: "PreCheck".to_owned(),
        reject_info: vec![Refusal::new("budget", "full")],
        passed_rules: vec!["webhook".to_owned()],
        ..Detail::default()
    };
    assert_eq!(
        detail.annotation(),
        r#"{"stage":"PreCheck","passed":false,"rejectInfo":[{"ruleName":"budget","reason":"full"}]}"#
    );
    assert_eq!(found.details, serde_json::from_value::<Vec<Detail>>(json).unwrap());
    assert_eq!(found, report(&members, &settle("me", &[budget], &members, &Approves, &|_, _| Others::Agree)));
    let nobody = settle("me", &[budget], &members, &NoAnswers, &|_, _| Others::Agree);
    assert_eq!(report(&members, &nobody).waiting_count, 3, "nobody has answered");
}

#[test]
fn five_thousand_pods_fit_whatever_their_names() {
    let set = web(5000);
    let on = Labels::from([(SERVICE_AVAILABLE.to_owned(), "1".to_owned())]);
    for answers in [&Approves as &dyn Answers, &Rants] {
        for (length, operation) in [(5, 1), (253, 63)] {
            let names: Vec<String> = (0..5000).map(|pod| format!("{pod:0length$}")).collect();
            let uid = |pod: usize| format!("{pod:036}");
            let uids: Vec<String> = (0..5000).map(uid).collect();
            let asked: Vec<Vec<Asking>> = (0..5000)
                .map(|pod| vec![asking(&"o".repeat(operation), 1_700_000_000_000_000_000 + pod)])
                .collect();
            let members: Vec<Member<'_>> = (0..5000)
                .map(|pod| Member {
                    pod: Subject {
                        namespace: "shop",
                        name: &names[pod],
                        uid: &uids[pod],
                        labels: &on,
                        skip: None,
                    },
                    askings: &asked[pod],
                    sets: &[0],
                })
                .collect();
            let mut ledger = Ledger::default();
            let decide = |ledger: &Ledger| {
                let budget = Budget { set: &set, ledger, missing: 0, is_current: true };
                settle("me", &[budget], &members, answers, &|_, _| Others::Agree)
            };
            let settlement = decide(&ledger);
            ledger = settlement.ledgers[0].clone().unwrap_or_default();
            let grants = serde_json::to_string(ledger.grants()).unwrap().len();
            let found = report(&members, &settlement);
            let targets = serde_json::to_string(&found.targets).unwrap().len();
            let details = serde_json::to_string(&found.details).unwrap().len();
            assert!(grants + targets + details < 200 * 1024, "{grants} {targets} {details}");
            assert_eq!(found.target_count, 5000);
            assert!(found.targets.len() >= 100 && found.details.len() >= 25, "there is something in it");
            // Whoever found no place is next when those who did have gone.
            if !ledger.grants().is_empty() {
                assert!(ledger.grants().len() >= 140, "{}", ledger.grants().len());
                assert_eq!(found.waiting_count as usize, 5000 - ledger.grants().len());
                assert!(decide(&ledger).ledgers[0].is_none(), "nothing more fits");
            }
        }
    }
}

#[test]
fn each_rule_set_has_its_own_report() {
    let sets = [web(1), web(2)];
    let on = Labels::from([(SERVICE_AVAILABLE.to_owned(), "1".to_owned())]);
    let asked = [asking("a", 1)];
    let pod = |name| Subject { namespace: "shop", name, uid: name, labels: &on, skip: None };
    let member =
        |name, sets, asks: bool| Member { pod: pod(name), askings: &asked[..usize::from(asks)], sets };
    let members = [
        member("a", &[0, 1], true),
        member("b", &[1], true),
        member("c", &[0], false),
        member("d", &[], true),
    ];
    let ledger = Ledger::default();
    let budgets = sets.each_ref().map(|set| Budget { set, ledger: &ledger, missing: 0, is_current: true });
    let settlement = settle("me", &budgets, &members, &NoAnswers, &|_, _| Others::Agree);
    let found = reports(&members, &settlement);
    let names: Vec<(Vec<String>, u32, u32)> = found
        .iter()
        .map(|report| (report.targets.clone(), report.target_count, report.waiting_count))
        .collect();
    let names_of = |names: [&str; 2]| names.map(ToOwned::to_owned).to_vec();
    assert_eq!(names, [(names_of(["a", "c"]), 2, 1), (names_of(["a", "b"]), 2, 2)]);
    let said: Vec<Vec<&str>> = found
        .iter()
        .map(|report| report.details.iter().map(|detail| detail.name.as_str()).collect())
        .collect();
    assert_eq!(said, [vec!["a"], vec!["a", "b"]]);
}

/// A pod that many rules refuse at length is told what fits, and hides nobody else.
#[test]
fn what_is_said_to_one_pod_is_cut() {
    let rule = |number: usize| Rule {
        name: format!("{number:0253}"),
        stage: Some(CheckStage::PreCheck),
        check: Check::Webhook,
        ..Rule::default()
    };
    let set = RuleSet {
        selector: Some(Selector::everything()),
        rules: (0..64).map(rule).collect(),
        ..RuleSet::default()
    };
    let (on, ledger) = (Labels::new(), Ledger::default());
    let budget = Budget { set: &set, ledger: &ledger, missing: 0, is_current: true };
    let asked = [asking("a", 1)];
    let names: Vec<String> = (0..20).map(|pod| format!("web-{pod}")).collect();
    let members: Vec<Member<'_>> = names
        .iter()
        .map(|name| Member {
            pod: Subject { namespace: "shop", name, uid: name, labels: &on, skip: None },
            askings: &asked,
            sets: &[0],
        })
        .collect();
    for answers in [&Rants as &dyn Answers, &Approves] {
        let settlement = settle("me", &[budget], &members, answers, &|_, _| Others::Agree);
        let found = report(&members, &settlement);
        assert!(found.details.len() >= 10, "{}", found.details.len());
        for detail in &found.details {
            let bytes = serde_json::to_string(detail).unwrap().len();
            assert!((4096..9 * 1024).contains(&bytes), "{bytes}");
        }
    }
    let refusals = (0..64).map(|number| Refusal::new(&rule(number).name, "\u{1}".repeat(5000))).collect();
    let detail = Detail { reject_info: refusals, ..Detail::default() };
    let text = detail.annotation();
    assert!(text.len() < 9 * 1024, "{}", text.len());
    let read: Detail = serde_json::from_str(&text).unwrap();
    assert_eq!(read.reject_info, detail.reject_info[..2]);
}
