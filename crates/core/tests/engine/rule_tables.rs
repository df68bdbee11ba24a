//! What single rules say, row by row.

mod objections;

use std::collections::BTreeMap;

use podward_core::hooks::Selector;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_AVAILABLE, Stage};
use podward_core::rules::{
    Amount, AvailablePolicy, CheckRequest, CheckStage, ExpFunc, Grants, Limit, NoWebhookAnswers, OtherChecks,
    Rule, RuleBudget, RuleCheck, RuleMember, RulePod, RuleRefusal, RuleSet, RuleSettlement, SkippedRules,
    WebhookAnswer, WebhookAnswers, check_requests, settle,
};
use podward_core::{
    CheckResult, Checks, ConditionStatus, Objection, PodFacts, PodHooks, PodView, PostCheckRejection,
    UnixNanos, plan,
};

use crate::rule_model::Labels;

fn labels(entries: &[(&str, &str)]) -> Labels {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn selector(entries: &[(&str, &str)]) -> Selector {
    Selector::new(labels(entries), []).unwrap()
}

fn rule(name: &str, check: RuleCheck) -> Rule {
    Rule { name: name.to_owned(), stage: Some(CheckStage::PreCheck), check, ..Rule::default() }
}

fn most(pods: u32) -> RuleCheck {
    RuleCheck::Available(AvailablePolicy {
        max_unavailable: vec![Limit::Amount(Amount::Pods(pods))],
        min_available: Vec::new(),
    })
}

fn least(percent: u32) -> RuleCheck {
    RuleCheck::Available(AvailablePolicy {
        max_unavailable: Vec::new(),
        min_available: vec![Limit::Amount(Amount::Percent(percent))],
    })
}

fn set(name: &str, rules: Vec<Rule>) -> RuleSet {
    RuleSet {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        selector: Some(Selector::everything()),
        rules,
        ..RuleSet::default()
    }
}

fn check_request(at: &str) -> CheckRequest {
    CheckRequest { stage: CheckStage::PreCheck, operation: "a".to_owned(), asked_at: at.to_owned() }
}

fn pod<'a>(name: &'a str, labels: &'a Labels) -> RulePod<'a> {
    RulePod { namespace: "shop", name, uid: name, labels, skip: None }
}

#[test]
fn limits_are_rounded_as_in_the_reference() {
    let up = |limit, pods| {
        AvailablePolicy { max_unavailable: vec![limit], ..Default::default() }.most_unavailable(pods)
    };
    let down = |limit, pods| {
        AvailablePolicy { min_available: vec![limit], ..Default::default() }.fewest_available(pods)
    };
    let percent = |text| Limit::Amount(Amount::percentage(text).unwrap());
    let function = |coeff, pow| Limit::Function(ExpFunc::new(coeff, pow).unwrap());
    // limit, pods, most that may be unavailable, fewest that must be available
    let rows = [
        (percent("25%"), 10, 3, 2),
        (percent("25%"), 200, 50, 50),
        (percent("0%"), 7, 0, 0),
        (percent("1%"), 1, 1, 0),
        (percent("150%"), 3, 5, 4),
        (Limit::Amount(Amount::pods(4).unwrap()), 2, 4, 4),
        (function(Some("0.1"), Some("1")), 100, 10, 10),
        (function(Some("0.3"), None), 10, 3, 3),
        (function(None, Some("0.5")), 10, 4, 3),
        (function(Some("2"), Some("0.5")), 100, 20, 20),
        (function(Some("-1"), None), 5, 0, 0),
        (function(None, Some("-1")), 0, u32::MAX, u32::MAX),
        (function(Some("0"), Some("-1")), 0, 0, 0),
    ];
    for (limit, pods, most, fewest) in rows {
        assert_eq!((up(limit, pods), down(limit, pods)), (most, fewest), "{limit:?} of {pods}");
    }
    let none = AvailablePolicy::default();
    assert_eq!((none.most_unavailable(7), none.fewest_available(7)), (7, 0));
    for text in ["", "%", "25", "-1%", "a%", "2.5%", "99999999999%"] {
        assert!(Amount::percentage(text).unwrap_err().to_string().contains("25%"), "{text}");
    }
    assert!(Amount::pods(-1).is_err());
    for (coeff, pow, field) in
        [(Some("x"), None, "coeff"), (None, Some("NaN"), "pow"), (Some("inf"), None, "coeff")]
    {
        assert!(ExpFunc::new(coeff, pow).unwrap_err().to_string().starts_with(field));
    }
}

#[test]
fn who_asks() {
    let begun = [("operating", "7"), ("operation-type", "update"), ("pre-check", "8")];
    let label = |(word, value): &(&str, &str)| {
        (format!("{word}.podopslifecycle.kusionstack.io/a"), (*value).to_owned())
    };
    let mut pod: Labels = begun.iter().map(label).collect();
    assert_eq!(check_requests(&pod), [check_request("8")]);
    pod.remove(&Stage::OperationType.key("a"));
    assert!(check_requests(&pod).is_empty(), "half announced");
    let mut done: Labels = [("operated", "7"), ("done-operation-type", "update"), ("post-check", "soon")]
        .iter()
        .map(label)
        .collect();
    let found = check_requests(&done);
    assert_eq!((found[0].stage, found[0].since()), (CheckStage::PostCheck, i64::MAX), "it is the last");
    done.insert(Stage::PostChecked.key("a"), "9".to_owned());
    assert!(check_requests(&done).is_empty());
}

struct Says(BTreeMap<&'static str, WebhookAnswer>);

impl WebhookAnswers for Says {
    fn answer(&self, _: &RuleSet, rule: &Rule, _: &RulePod<'_>, _: &CheckRequest) -> Option<WebhookAnswer> {
        self.0.get(rule.name.as_str()).cloned()
    }
}

#[test]
fn every_refusal_is_reported() {
    let rules = vec![
        rule("budget", most(1)),
        rule("ready", RuleCheck::Labels(selector(&[("ready", "yes")]))),
        rule("yes", RuleCheck::Webhook),
        rule("no", RuleCheck::Webhook),
        rule("silent", RuleCheck::Webhook),
        rule("broken", RuleCheck::Unreadable("can't be read".to_owned())),
        rule("nothing", RuleCheck::Nothing),
        Rule { disabled: true, ..rule("off", RuleCheck::Webhook) },
        Rule { stage: Some(CheckStage::PostCheck), ..rule("later", RuleCheck::Webhook) },
        Rule { stage: RuleSet::stage_of(Some("Lunch")), ..rule("never", RuleCheck::Webhook) },
    ];
    let labels = labels(&[(SERVICE_AVAILABLE, "1")]);
    let no = "x".repeat(600);
    let says = Says(BTreeMap::from([("yes", WebhookAnswer::Approved), ("no", WebhookAnswer::Rejected(no))]));
    let judgement = set("web", rules).evaluate(&pod("web-0", &labels), &check_request("1"), &says);
    assert_eq!(
        (judgement.passed, judgement.ask, judgement.budgets),
        (vec!["yes".to_owned()], vec!["silent".to_owned()], vec![0])
    );
    let names: Vec<&str> = judgement.refusals.iter().map(|refusal| refusal.rule_name.as_str()).collect();
    assert_eq!(names, ["ready", "no", "silent", "broken"]);
    assert_eq!(
        judgement.refusals[0].reason,
        "block by label check policy, pod shop/web-0 labels not match ready=yes"
    );
    assert!(judgement.refusals[1].reason.len() == 512 && judgement.refusals[1].reason.ends_with("..."));
    assert_eq!(RuleSet::stage_of(None), Some(CheckStage::PreCheck));
}

#[test]
fn filters_conditions_and_skips() {
    let refuses = RuleCheck::Unreadable("no".to_owned());
    let filtered = Rule { filter: Some(selector(&[("tier", "front")])), ..rule("filtered", refuses.clone()) };
    let conditional = Rule { conditional: true, ..rule("conditional", refuses.clone()) };
    let set = set("web", vec![filtered, conditional, rule("plain", refuses)]);
    let refused = |labels: &Labels, skip: Option<&str>| {
        let skipped = skip.map(SkippedRules::parse);
        let pod = RulePod { skip: skipped.as_ref(), ..pod("web-0", labels) };
        let refusals = set.evaluate(&pod, &check_request("1"), &NoWebhookAnswers).refusals;
        refusals.into_iter().map(|refusal| refusal.rule_name).collect::<Vec<_>>().join(" ")
    };
    let (none, front) = (labels(&[]), labels(&[("tier", "front")]));
    assert_eq!(refused(&none, None), "plain");
    assert_eq!(refused(&front, None), "filtered plain");
    assert_eq!(refused(&front, Some(r#"{"skipRules":["plain"]}"#)), "filtered");
    for text in ["no JSON", "[]", r#"{"skipRules":null}"#, r#"{"skipRules":"plain"}"#] {
        assert_eq!(refused(&none, Some(text)), "plain", "{text}");
    }
}

#[test]
fn a_long_text_skips_no_rule() {
    let text = |bytes: usize| {
        let begins = r#"{"skipRules":["plain",""#;
        format!("{begins}{}\"]}}", "x".repeat(bytes - begins.len() - 3))
    };
    let longest = SkippedRules::parse(&text(16 * 1024));
    assert!(longest.contains("plain") && !longest.contains("other") && longest.ignored_because().is_none());
    let too_long = SkippedRules::parse(&text(16 * 1024 + 1));
    assert!(!too_long.contains("plain"));
    assert!(too_long.ignored_because().unwrap().contains("skip-rule-conditions is ignored"));
}

/// The text is parsed once: not for each request of the pod, and not for each rule set. Otherwise this takes minutes.
#[test]
fn a_pod_with_many_requests_and_a_long_skip_text() {
    let skipped = SkippedRules::parse(&format!(r#"{{"skipRules":[{}"plain"]}}"#, r#""x","#.repeat(50_000)));
    let on = labels(&[(SERVICE_AVAILABLE, "1")]);
    let check_requests: Vec<CheckRequest> = (0..3000)
        .map(|id| CheckRequest { operation: format!("a{id:04}"), ..check_request(&id.to_string()) })
        .collect();
    let sets: Vec<RuleSet> = (0..20)
        .map(|number| {
            set(&format!("web-{number}"), vec![rule("plain", RuleCheck::Unreadable("no".to_owned()))])
        })
        .collect();
    let none = Grants::default();
    let budgets: Vec<RuleBudget<'_>> = sets
        .iter()
        .map(|set| RuleBudget { set, stored_grants: &none, missing: 0, is_current: true })
        .collect();
    let places: Vec<usize> = (0..sets.len()).collect();
    let pod = RulePod { skip: Some(&skipped), ..pod("web-0", &on) };
    let member = RuleMember { pod, check_requests: &check_requests, sets: &places, ends_workload: false };
    let settlement = settle("me", &budgets, &[member], &NoWebhookAnswers, &|_, _| OtherChecks::Agree);
    assert_eq!(settlement.verdicts.len(), check_requests.len() * sets.len());
    assert!(settlement.verdicts.iter().all(|verdict| verdict.refusals.len() == 1), "the text is ignored");
}

/// Pods (name, labels, time of check_request) under `sets`, all of which select them.
fn decide(
    sets: &[(&RuleSet, &Grants, u32, bool)],
    pods: &[(&str, &Labels, Option<&str>)],
    others: OtherChecks,
) -> RuleSettlement {
    let budgets: Vec<RuleBudget<'_>> = sets
        .iter()
        .map(|(set, stored_grants, missing, is_current)| RuleBudget {
            set,
            stored_grants,
            missing: *missing,
            is_current: *is_current,
        })
        .collect();
    let asked: Vec<Vec<CheckRequest>> =
        pods.iter().map(|(_, _, at)| at.map(check_request).into_iter().collect()).collect();
    let places: Vec<usize> = (0..sets.len()).collect();
    let members: Vec<RuleMember<'_>> = pods
        .iter()
        .zip(&asked)
        .map(|((name, labels, _), check_requests)| RuleMember {
            pod: pod(name, labels),
            check_requests,
            sets: &places,
            ends_workload: false,
        })
        .collect();
    settle("me", &budgets, &members, &NoWebhookAnswers, &|_, _| others)
}

fn given(settlement: &RuleSettlement, set: usize) -> Vec<&str> {
    settlement.new_grants[set].iter().flat_map(Grants::grants).map(|grant| grant.pod.as_str()).collect()
}

fn reasons(settlement: &RuleSettlement) -> Vec<&str> {
    settlement
        .verdicts
        .iter()
        .flat_map(|verdict| &verdict.refusals)
        .map(|refusal| refusal.reason.as_str())
        .collect()
}

#[test]
fn refusals_have_the_words_of_the_reference() {
    let (on, off) = (labels(&[(SERVICE_AVAILABLE, "1")]), labels(&[]));
    let none = Grants::default();
    let pods = [("a", &on, Some("1")), ("b", &off, None), ("c", &on, None), ("d", &off, Some("2"))];
    let one = set("web", vec![rule("budget", most(2))]);
    let full = decide(&[(&one, &none, 0, true)], &pods, OtherChecks::Agree);
    assert_eq!(
        reasons(&full),
        ["[budget] blocked by max unavailable policy: [max unavailable]=2/4, [current unavailable]=2/4"]
    );
    assert!(full.verdicts[1].refusals.is_empty(), "what is unavailable may go");
    assert_eq!(full.new_grants, [None]);

    let three = set("web", vec![rule("budget", most(3))]);
    let missing = decide(&[(&three, &none, 1, true)], &pods, OtherChecks::Agree);
    assert!(reasons(&missing)[0].ends_with("[current unavailable]=2/4, [missing replicas]=1"), "{missing:?}");
    let room = decide(&[(&three, &none, 0, true)], &pods, OtherChecks::Agree);
    assert_eq!((given(&room, 0), room.new_grants[0].as_ref().unwrap().holder()), (vec!["a"], "me"));

    let keep = set("web", vec![rule("keep", least(50))]);
    let kept = decide(&[(&keep, &none, 0, true)], &pods, OtherChecks::Agree);
    assert_eq!(
        reasons(&kept),
        ["[keep] blocked by min available policy: [min available]=2/4, [current available]=2/4"]
    );
}

#[test]
fn a_minimum_does_not_shrink_with_pods_that_are_being_replaced() {
    let (on, none) = (labels(&[(SERVICE_AVAILABLE, "1")]), Grants::default());
    // One of four pods is gone, and its replacement does not exist.
    let pods = [("a", &on, Some("1")), ("b", &on, None), ("c", &on, None)];
    let keep = set("web", vec![rule("keep", least(75))]);
    let refused = decide(&[(&keep, &none, 1, true)], &pods, OtherChecks::Agree);
    assert_eq!(
        reasons(&refused),
        ["[keep] blocked by min available policy: [min available]=3/4, [current available]=3/4"]
    );
    let allowed = decide(&[(&keep, &none, 0, true)], &pods, OtherChecks::Agree);
    assert_eq!(given(&allowed, 0), ["a"], "75 % of three pods are two");
}

#[test]
fn a_minimum_alone_sets_no_maximum() {
    let (on, none) = (labels(&[(SERVICE_AVAILABLE, "1")]), Grants::default());
    let min_available = vec![Limit::Amount(Amount::Pods(1))];
    let policy = AvailablePolicy { min_available, ..AvailablePolicy::default() };
    let keep = set("web", vec![rule("keep", RuleCheck::Available(policy))]);
    let pods = [("a", &on, Some("1")), ("b", &on, Some("2"))];
    let settlement = decide(&[(&keep, &none, 2, true)], &pods, OtherChecks::Agree);
    assert_eq!(given(&settlement, 0), ["a"]);
    assert_eq!(
        reasons(&settlement),
        ["[keep] blocked by min available policy: [min available]=1/4, [current available]=1/4"]
    );
}

#[test]
fn room_is_granted_in_all_budgets_at_once_when_all_other_checks_pass() {
    let on = labels(&[(SERVICE_AVAILABLE, "1")]);
    let none = Grants::default();
    let (one, zero) = (set("one", vec![rule("budget", most(1))]), set("zero", vec![rule("other", most(0))]));
    let pods = [("a", &on, Some("1")), ("b", &on, None)];
    let refused = decide(&[(&one, &none, 0, true)], &pods, OtherChecks::Refuse);
    assert_eq!(
        (given(&refused, 0), reasons(&refused)),
        (vec![], vec!["there is room, which is granted when no other check refuses"])
    );
    assert_eq!(given(&decide(&[(&one, &none, 0, true)], &pods, OtherChecks::Unknown), 0), Vec::<&str>::new());

    let both = decide(&[(&one, &none, 0, true), (&zero, &none, 0, true)], &pods, OtherChecks::Agree);
    assert_eq!(both.new_grants, [None, None]);
    let other: Vec<&RuleRefusal> = both.verdicts.iter().flat_map(|verdict| &verdict.refusals).collect();
    assert_eq!((other.len(), other[1].rule_name.as_str()), (2, "other"));

    let labelled = set(
        "one",
        vec![rule("budget", most(1)), rule("ready", RuleCheck::Labels(selector(&[("ready", "yes")])))],
    );
    let unlabelled = decide(&[(&labelled, &none, 0, true)], &pods, OtherChecks::Agree);
    assert_eq!(
        (unlabelled.new_grants.clone(), reasons(&unlabelled).len()),
        (vec![None], 2),
        "both refusals are told"
    );
}

#[test]
fn a_grant_stays_while_its_operation_requests_it() {
    let on = labels(&[(SERVICE_AVAILABLE, "1")]);
    let none = Grants::default();
    let one = set("one", vec![rule("budget", most(1))]);
    let pods = [("a", &on, Some("1")), ("b", &on, Some("2"))];
    let stored_grants =
        decide(&[(&one, &none, 0, true)], &pods, OtherChecks::Agree).new_grants[0].clone().unwrap();
    assert_eq!(stored_grants.grants().len(), 1);
    let again = decide(&[(&one, &stored_grants, 0, true)], &pods, OtherChecks::Agree);
    assert_eq!((&again.new_grants, again.rooms[0].granted), (&vec![None], 1));
    // Somebody refuses after all: the operation is to ask anew, and not before that is there room again.
    let refused = decide(&[(&one, &stored_grants, 0, true)], &pods, OtherChecks::Refuse);
    assert_eq!((refused.new_grants, refused.renew), (vec![None], vec![(0, 0)]));
    let unheard = decide(&[(&one, &stored_grants, 0, true)], &pods, OtherChecks::Unknown);
    assert!(unheard.renew.is_empty(), "a new controller takes nothing for a refusal that it hasn't heard");
    let renewed = [("a", &on, Some("3")), ("b", &on, Some("2"))];
    assert_eq!(given(&decide(&[(&one, &stored_grants, 0, true)], &renewed, OtherChecks::Agree), 0), ["b"]);
    // The stored_grants of another one, and pods from before: they may look as they did before they were let through.
    let stale = decide(&[(&one, &stored_grants, 0, false)], &renewed, OtherChecks::Agree);
    assert_eq!((stale.new_grants, stale.rooms[0].granted), (vec![None], 1));
    // What has room in one rule set, and by another one's decision none in the other.
    let zero = set("zero", vec![rule("other", most(0))]);
    let half =
        decide(&[(&one, &stored_grants, 0, true), (&zero, &none, 0, true)], &pods[..1], OtherChecks::Agree);
    assert_eq!((half.new_grants, half.renew), (vec![None, None], vec![(0, 0)]));
    // A pod that goes already makes no difference a second time.
    let mut twice = on.clone();
    twice.insert("x".to_owned(), "y".to_owned());
    let two = [check_request("1"), CheckRequest { operation: "b".to_owned(), ..check_request("5") }];
    let member = RuleMember { pod: pod("a", &twice), check_requests: &two, sets: &[0], ends_workload: false };
    let budget = RuleBudget { set: &one, stored_grants: &stored_grants, missing: 0, is_current: true };
    let second = settle("me", &[budget], &[member], &NoWebhookAnswers, &|_, _| OtherChecks::Agree);
    assert_eq!(second.new_grants[0].as_ref().unwrap().grants().len(), 2);
    assert_eq!(second.rooms[0].granted, 1);
}
