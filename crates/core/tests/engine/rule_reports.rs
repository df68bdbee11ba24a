//! The status of a rule object: what stands in it, and that it stays small.

use podward_core::hooks::Selector;
use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::rules::{
    Amount, AvailablePolicy, CheckRequest, CheckStage, Grants, Limit, NoWebhookAnswers, OtherChecks, Rule,
    RuleBudget, RuleCheck, RuleDetail, RuleMember, RulePod, RuleRefusal, RuleReport, RuleSet, RuleSettlement,
    WebhookAnswer, WebhookAnswers, rule_reports, settle,
};

use crate::rule_model::Labels;

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
        rules: vec![rule("budget", RuleCheck::Available(policy)), rule("webhook", RuleCheck::Webhook)],
        ..RuleSet::default()
    }
}

fn check_request(operation: &str, at: i64) -> CheckRequest {
    CheckRequest { stage: CheckStage::PreCheck, operation: operation.to_owned(), asked_at: at.to_string() }
}

/// The report on the first rule set.
fn report(members: &[RuleMember<'_>], settlement: &RuleSettlement) -> RuleReport {
    rule_reports(members, settlement).swap_remove(0)
}

struct Approves;

impl WebhookAnswers for Approves {
    fn answer(&self, _: &RuleSet, _: &Rule, _: &RulePod<'_>, _: &CheckRequest) -> Option<WebhookAnswer> {
        Some(WebhookAnswer::Approved)
    }
}

/// Refuses at length, in letters that take six bytes each in JSON.
struct Rants;

impl WebhookAnswers for Rants {
    fn answer(&self, _: &RuleSet, _: &Rule, _: &RulePod<'_>, _: &CheckRequest) -> Option<WebhookAnswer> {
        Some(WebhookAnswer::Rejected("\u{1}".repeat(5000)))
    }
}

#[test]
fn details_are_those_of_the_wire() {
    let set = web(1);
    let on = Labels::from([(SERVICE_AVAILABLE.to_owned(), "1".to_owned())]);
    let stored_grants = Grants::default();
    let asked: [Vec<CheckRequest>; 4] = [
        vec![check_request("a", 9)],
        vec![check_request("a", 3)],
        Vec::new(),
        vec![check_request("b", 5), check_request("a", 8)],
    ];
    let names = ["web-0", "web-1", "web-2", "web-3"];
    let members: Vec<RuleMember<'_>> = names
        .iter()
        .zip(&asked)
        .map(|(name, check_requests)| RuleMember {
            pod: RulePod { namespace: "shop", name, uid: name, labels: &on, skip: None },
            check_requests,
            sets: &[0],
            ends_workload: false,
        })
        .collect();
    let budget = RuleBudget { set: &set, stored_grants: &stored_grants, missing: 0, is_current: true };
    let settlement = settle("me", &[budget], &members, &Approves, &|_, _| OtherChecks::Agree);
    let found = report(&members, &settlement);
    assert_eq!(
        found.targets,
        ["web-3", "web-0", "web-1", "web-2"],
        "those that wait first, the oldest first"
    );
    assert_eq!((found.target_count, found.waiting_count), (4, 2));
    let json = serde_json::to_value(&found.details).unwrap();
    let full = "[budget] blocked by max unavailable policy: [max unavailable]=1/4";
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
    let detail = RuleDetail {
        stage: "PreCheck".to_owned(),
        reject_info: vec![RuleRefusal::new("budget", "full")],
        passed_rules: vec!["webhook".to_owned()],
        ..RuleDetail::default()
    };
    assert_eq!(
        detail.annotation(),
        r#"{"stage":"PreCheck","passed":false,"rejectInfo":[{"ruleName":"budget","reason":"full"}]}"#
    );
    assert_eq!(found.details, serde_json::from_value::<Vec<RuleDetail>>(json).unwrap());
    assert_eq!(
        found,
        report(&members, &settle("me", &[budget], &members, &Approves, &|_, _| OtherChecks::Agree))
    );
    let nobody = settle("me", &[budget], &members, &NoWebhookAnswers, &|_, _| OtherChecks::Agree);
    assert_eq!(report(&members, &nobody).waiting_count, 3, "nobody has answered");
}

#[test]
fn five_thousand_pods_fit_whatever_their_names() {
    let set = web(5000);
    let on = Labels::from([(SERVICE_AVAILABLE.to_owned(), "1".to_owned())]);
    for answers in [&Approves as &dyn WebhookAnswers, &Rants] {
        for (length, operation) in [(5, 1), (253, 63)] {
            let names: Vec<String> = (0..5000).map(|pod| format!("{pod:0length$}")).collect();
            let uid = |pod: usize| format!("{pod:036}");
            let uids: Vec<String> = (0..5000).map(uid).collect();
            let asked: Vec<Vec<CheckRequest>> = (0..5000)
                .map(|pod| vec![check_request(&"o".repeat(operation), 1_700_000_000_000_000_000 + pod)])
                .collect();
            let members: Vec<RuleMember<'_>> = (0..5000)
                .map(|pod| RuleMember {
                    pod: RulePod {
                        namespace: "shop",
                        name: &names[pod],
                        uid: &uids[pod],
                        labels: &on,
                        skip: None,
                    },
                    check_requests: &asked[pod],
                    sets: &[0],
                    ends_workload: false,
                })
                .collect();
            let mut stored_grants = Grants::default();
            let decide = |stored_grants: &Grants| {
                let budget = RuleBudget { set: &set, stored_grants, missing: 0, is_current: true };
                settle("me", &[budget], &members, answers, &|_, _| OtherChecks::Agree)
            };
            let settlement = decide(&stored_grants);
            stored_grants = settlement.new_grants[0].clone().unwrap_or_default();
            let grants = serde_json::to_string(stored_grants.grants()).unwrap().len();
            let found = report(&members, &settlement);
            let targets = serde_json::to_string(&found.targets).unwrap().len();
            let details = serde_json::to_string(&found.details).unwrap().len();
            assert!(grants + targets + details < 200 * 1024, "{grants} {targets} {details}");
            assert_eq!(found.target_count, 5000);
            assert!(found.targets.len() >= 100 && found.details.len() >= 25, "there is something in it");
            // Whoever found no place is next when those who did have gone.
            if !stored_grants.grants().is_empty() {
                assert!(stored_grants.grants().len() >= 140, "{}", stored_grants.grants().len());
                assert_eq!(found.waiting_count as usize, 5000 - stored_grants.grants().len());
                assert!(decide(&stored_grants).new_grants[0].is_none(), "nothing more fits");
            }
        }
    }
}

#[test]
fn each_rule_set_has_its_own_report() {
    let sets = [web(1), web(2)];
    let on = Labels::from([(SERVICE_AVAILABLE.to_owned(), "1".to_owned())]);
    let asked = [check_request("a", 1)];
    let pod = |name| RulePod { namespace: "shop", name, uid: name, labels: &on, skip: None };
    let member = |name, sets, asks: bool| RuleMember {
        pod: pod(name),
        check_requests: &asked[..usize::from(asks)],
        sets,
        ends_workload: false,
    };
    let members = [
        member("a", &[0, 1], true),
        member("b", &[1], true),
        member("c", &[0], false),
        member("d", &[], true),
    ];
    let stored_grants = Grants::default();
    let budgets = sets.each_ref().map(|set| RuleBudget {
        set,
        stored_grants: &stored_grants,
        missing: 0,
        is_current: true,
    });
    let settlement = settle("me", &budgets, &members, &NoWebhookAnswers, &|_, _| OtherChecks::Agree);
    let found = rule_reports(&members, &settlement);
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
fn the_details_of_one_pod_are_limited() {
    let rule = |number: usize| Rule {
        name: format!("{number:0253}"),
        stage: Some(CheckStage::PreCheck),
        check: RuleCheck::Webhook,
        ..Rule::default()
    };
    let set = RuleSet {
        selector: Some(Selector::everything()),
        rules: (0..64).map(rule).collect(),
        ..RuleSet::default()
    };
    let (on, stored_grants) = (Labels::new(), Grants::default());
    let budget = RuleBudget { set: &set, stored_grants: &stored_grants, missing: 0, is_current: true };
    let asked = [check_request("a", 1)];
    let names: Vec<String> = (0..20).map(|pod| format!("web-{pod}")).collect();
    let members: Vec<RuleMember<'_>> = names
        .iter()
        .map(|name| RuleMember {
            pod: RulePod { namespace: "shop", name, uid: name, labels: &on, skip: None },
            check_requests: &asked,
            sets: &[0],
            ends_workload: false,
        })
        .collect();
    for answers in [&Rants as &dyn WebhookAnswers, &Approves] {
        let settlement = settle("me", &[budget], &members, answers, &|_, _| OtherChecks::Agree);
        let found = report(&members, &settlement);
        assert!(found.details.len() >= 10, "{}", found.details.len());
        for detail in &found.details {
            let bytes = serde_json::to_string(detail).unwrap().len();
            assert!((4096..9 * 1024).contains(&bytes), "{bytes}");
        }
    }
    let refusals = (0..64).map(|number| RuleRefusal::new(&rule(number).name, "\u{1}".repeat(5000))).collect();
    let detail = RuleDetail { reject_info: refusals, ..RuleDetail::default() };
    let text = detail.annotation();
    assert!(text.len() < 9 * 1024, "{}", text.len());
    let read: RuleDetail = serde_json::from_str(&text).unwrap();
    assert_eq!(read.reject_info, detail.reject_info[..2]);
}
