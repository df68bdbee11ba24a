//! What single rules say, row by row.

use std::collections::BTreeMap;

use podward_core::hooks::Selector;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_AVAILABLE, Stage};
use podward_core::rules::{
    Amount, Answer, Answers, Asking, AvailablePolicy, Budget, Check, CheckStage, ExpFunc, Ledger, Limit,
    Member, NoAnswers, Others, Refusal, Rule, RuleSet, Settlement, Subject, askings, settle,
};
use podward_core::{
    CheckResult, Checks, ConditionStatus, Consumers, Facts, Objection, PodView, PostCheckRejection,
    UnixNanos, plan,
};

use crate::rule_world::Labels;

fn labels(entries: &[(&str, &str)]) -> Labels {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn selector(entries: &[(&str, &str)]) -> Selector {
    Selector::new(labels(entries), []).unwrap()
}

fn rule(name: &str, check: Check) -> Rule {
    Rule { name: name.to_owned(), stage: Some(CheckStage::PreCheck), check, ..Rule::default() }
}

fn most(pods: u32) -> Check {
    Check::Available(AvailablePolicy {
        max_unavailable: vec![Limit::Amount(Amount::Pods(pods))],
        min_available: Vec::new(),
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

fn asking(at: &str) -> Asking {
    Asking { stage: CheckStage::PreCheck, operation: "a".to_owned(), asked_at: at.to_owned() }
}

fn pod<'a>(name: &'a str, labels: &'a Labels) -> Subject<'a> {
    Subject { namespace: "shop", name, uid: name, labels, skip: None }
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
    assert_eq!(askings(&pod), [asking("8")]);
    pod.remove(&Stage::OperationType.key("a"));
    assert!(askings(&pod).is_empty(), "half announced");
    let mut done: Labels = [("operated", "7"), ("done-operation-type", "update"), ("post-check", "soon")]
        .iter()
        .map(label)
        .collect();
    let found = askings(&done);
    assert_eq!((found[0].stage, found[0].since()), (CheckStage::PostCheck, i64::MAX), "it is the last");
    done.insert(Stage::PostChecked.key("a"), "9".to_owned());
    assert!(askings(&done).is_empty());
}

struct Says(BTreeMap<&'static str, Answer>);

impl Answers for Says {
    fn answer(&self, _: &RuleSet, rule: &Rule, _: &Subject<'_>, _: &Asking) -> Option<Answer> {
        self.0.get(rule.name.as_str()).cloned()
    }
}

#[test]
fn every_refusal_is_told() {
    let rules = vec![
        rule("budget", most(1)),
        rule("ready", Check::Labels(selector(&[("ready", "yes")]))),
        rule("yes", Check::Webhook),
        rule("no", Check::Webhook),
        rule("silent", Check::Webhook),
        rule("broken", Check::Unreadable("can't be read".to_owned())),
        rule("nothing", Check::Nothing),
        Rule { disabled: true, ..rule("off", Check::Webhook) },
        Rule { stage: Some(CheckStage::PostCheck), ..rule("later", Check::Webhook) },
        Rule { stage: RuleSet::stage_of(Some("Lunch")), ..rule("never", Check::Webhook) },
    ];
    let labels = labels(&[(SERVICE_AVAILABLE, "1")]);
    let no = "x".repeat(600);
    let says = Says(BTreeMap::from([("yes", Answer::Approved), ("no", Answer::Rejected(no))]));
    let judgement = set("web", rules).judge(&pod("web-0", &labels), &asking("1"), &says);
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
    let refuses = Check::Unreadable("no".to_owned());
    let filtered = Rule { filter: Some(selector(&[("tier", "front")])), ..rule("filtered", refuses.clone()) };
    let conditional = Rule { conditional: true, ..rule("conditional", refuses.clone()) };
    let set = set("web", vec![filtered, conditional, rule("plain", refuses)]);
    let refused = |labels: &Labels, skip: Option<&str>| {
        let pod = Subject { skip, ..pod("web-0", labels) };
        let refusals = set.judge(&pod, &asking("1"), &NoAnswers).refusals;
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

/// Pods (name, labels, time of asking) under `sets`, all of which select them.
fn decide(
    sets: &[(&RuleSet, &Ledger, u32, bool)],
    pods: &[(&str, &Labels, Option<&str>)],
    others: Others,
) -> Settlement {
    let budgets: Vec<Budget<'_>> = sets
        .iter()
        .map(|(set, ledger, missing, is_current)| Budget {
            set,
            ledger,
            missing: *missing,
            is_current: *is_current,
        })
        .collect();
    let asked: Vec<Vec<Asking>> =
        pods.iter().map(|(_, _, at)| at.map(asking).into_iter().collect()).collect();
    let places: Vec<usize> = (0..sets.len()).collect();
    let members: Vec<Member<'_>> = pods
        .iter()
        .zip(&asked)
        .map(|((name, labels, _), askings)| Member { pod: pod(name, labels), askings, sets: &places })
        .collect();
    settle("me", &budgets, &members, &NoAnswers, &|_, _| others)
}

fn given(settlement: &Settlement, set: usize) -> Vec<&str> {
    settlement.ledgers[set].iter().flat_map(Ledger::grants).map(|grant| grant.pod.as_str()).collect()
}

fn reasons(settlement: &Settlement) -> Vec<&str> {
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
    let none = Ledger::default();
    let pods = [("a", &on, Some("1")), ("b", &off, None), ("c", &on, None), ("d", &off, Some("2"))];
    let one = set("web", vec![rule("budget", most(2))]);
    let full = decide(&[(&one, &none, 0, true)], &pods, Others::Agree);
    assert_eq!(
        reasons(&full),
        ["[budget] blocked by max unavailable policy: [max unavailable]=2/4, [current unavailable]=2/4"]
    );
    assert!(full.verdicts[1].refusals.is_empty(), "what is unavailable may go");
    assert_eq!(full.ledgers, [None]);

    let three = set("web", vec![rule("budget", most(3))]);
    let missing = decide(&[(&three, &none, 1, true)], &pods, Others::Agree);
    assert!(reasons(&missing)[0].ends_with("[current unavailable]=2/4, [missing replicas]=1"), "{missing:?}");
    let room = decide(&[(&three, &none, 0, true)], &pods, Others::Agree);
    assert_eq!((given(&room, 0), room.ledgers[0].as_ref().unwrap().holder()), (vec!["a"], "me"));

    let keep = AvailablePolicy {
        max_unavailable: Vec::new(),
        min_available: vec![Limit::Amount(Amount::Percent(50))],
    };
    let keep = set("web", vec![rule("keep", Check::Available(keep))]);
    let kept = decide(&[(&keep, &none, 0, true)], &pods, Others::Agree);
    assert_eq!(
        reasons(&kept),
        ["[keep] blocked by min available policy: [min available]=2/4, [current available]=2/4"]
    );
}

#[test]
fn room_is_given_when_nobody_else_refuses_and_everywhere_at_once() {
    let on = labels(&[(SERVICE_AVAILABLE, "1")]);
    let none = Ledger::default();
    let (one, zero) = (set("one", vec![rule("budget", most(1))]), set("zero", vec![rule("other", most(0))]));
    let pods = [("a", &on, Some("1")), ("b", &on, None)];
    let refused = decide(&[(&one, &none, 0, true)], &pods, Others::Refuse);
    assert_eq!(
        (given(&refused, 0), reasons(&refused)),
        (vec![], vec!["there is room, which is given once nobody else refuses"])
    );
    assert_eq!(given(&decide(&[(&one, &none, 0, true)], &pods, Others::Unheard), 0), Vec::<&str>::new());

    let both = decide(&[(&one, &none, 0, true), (&zero, &none, 0, true)], &pods, Others::Agree);
    assert_eq!(both.ledgers, [None, None]);
    let other: Vec<&Refusal> = both.verdicts.iter().flat_map(|verdict| &verdict.refusals).collect();
    assert_eq!((other.len(), other[1].rule_name.as_str()), (2, "other"));

    let labelled = set(
        "one",
        vec![rule("budget", most(1)), rule("ready", Check::Labels(selector(&[("ready", "yes")])))],
    );
    let unlabelled = decide(&[(&labelled, &none, 0, true)], &pods, Others::Agree);
    assert_eq!(
        (unlabelled.ledgers.clone(), reasons(&unlabelled).len()),
        (vec![None], 2),
        "both refusals are told"
    );
}

#[test]
fn what_was_given_stays_while_it_is_asked_for() {
    let on = labels(&[(SERVICE_AVAILABLE, "1")]);
    let none = Ledger::default();
    let one = set("one", vec![rule("budget", most(1))]);
    let pods = [("a", &on, Some("1")), ("b", &on, Some("2"))];
    let ledger = decide(&[(&one, &none, 0, true)], &pods, Others::Agree).ledgers[0].clone().unwrap();
    assert_eq!(ledger.grants().len(), 1);
    let again = decide(&[(&one, &ledger, 0, true)], &pods, Others::Agree);
    assert_eq!((&again.ledgers, again.rooms[0].granted), (&vec![None], 1));
    // Somebody refuses after all: the operation is to ask anew, and not before that is there room again.
    let refused = decide(&[(&one, &ledger, 0, true)], &pods, Others::Refuse);
    assert_eq!((refused.ledgers, refused.renew), (vec![None], vec![(0, 0)]));
    let unheard = decide(&[(&one, &ledger, 0, true)], &pods, Others::Unheard);
    assert!(unheard.renew.is_empty(), "a new controller takes nothing for a refusal that it hasn't heard");
    let renewed = [("a", &on, Some("3")), ("b", &on, Some("2"))];
    assert_eq!(given(&decide(&[(&one, &ledger, 0, true)], &renewed, Others::Agree), 0), ["b"]);
    // The ledger of another one, and pods from before: they may look as they did before they were let through.
    let stale = decide(&[(&one, &ledger, 0, false)], &renewed, Others::Agree);
    assert_eq!((stale.ledgers, stale.rooms[0].granted), (vec![None], 1));
    // What has room in one rule set, and by another one's decision none in the other.
    let zero = set("zero", vec![rule("other", most(0))]);
    let half = decide(&[(&one, &ledger, 0, true), (&zero, &none, 0, true)], &pods[..1], Others::Agree);
    assert_eq!((half.ledgers, half.renew), (vec![None, None], vec![(0, 0)]));
    // A pod that goes already makes no difference a second time.
    let mut twice = on.clone();
    twice.insert("x".to_owned(), "y".to_owned());
    let two = [asking("1"), Asking { operation: "b".to_owned(), ..asking("5") }];
    let member = Member { pod: pod("a", &twice), askings: &two, sets: &[0] };
    let budget = Budget { set: &one, ledger: &ledger, missing: 0, is_current: true };
    let second = settle("me", &[budget], &[member], &NoAnswers, &|_, _| Others::Agree);
    assert_eq!(second.ledgers[0].as_ref().unwrap().grants().len(), 2);
    assert_eq!(second.rooms[0].granted, 1);
}

/// Only a rule that says no to a result objects; who can't tell keeps it waiting without a word to its operator.
#[test]
fn objections_are_of_those_who_say_no_to_a_result() {
    let wanted = Selector::new([("good".to_owned(), "yes".to_owned())].into(), []).unwrap();
    let at = |stage| {
        let rule =
            |name: &str, check| Rule { name: name.to_owned(), stage: Some(stage), check, ..Rule::default() };
        vec![
            rule("labels", Check::Labels(wanted.clone())),
            rule("unreadable", Check::Unreadable("nobody knows".to_owned())),
            rule("webhook", Check::Webhook),
        ]
    };
    let of = |stage, policy, answer: Option<Answer>| {
        let set = RuleSet { post_check_rejection: policy, ..set("web", at(stage)) };
        let (asking, labels) = (Asking { stage, ..asking("7") }, labels(&[]));
        let judged = match answer {
            Some(answer) => set.judge(&pod("a", &labels), &asking, &Says([("webhook", answer)].into())),
            None => set.judge(&pod("a", &labels), &asking, &NoAnswers),
        };
        assert_eq!(judged.refusals.len() + judged.passed.len(), 3);
        let told = judged.objections.into_iter();
        told.map(|Objection { by, reason }| (by, reason.is_some())).collect::<Vec<_>>()
    };
    let (post, rollback) = (CheckStage::PostCheck, PostCheckRejection::Rollback);
    let expected = |webhook: Option<bool>| {
        let mut all = vec![("rule web/labels".to_owned(), true), ("rule web/unreadable".to_owned(), false)];
        all.extend(webhook.map(|says_no| ("rule web/webhook".to_owned(), says_no)));
        all
    };
    let says = |text: &str| text.to_owned();
    assert_eq!(of(post, rollback, None), expected(Some(false)), "not asked yet");
    assert_eq!(of(post, rollback, Some(Answer::Waiting(says("running")))), expected(Some(false)));
    assert_eq!(of(post, rollback, Some(Answer::Rejected(says("no")))), expected(Some(true)));
    assert_eq!(of(post, rollback, Some(Answer::Approved)), expected(None));
    assert_eq!(of(post, PostCheckRejection::Hold, Some(Answer::Rejected(says("no")))), []);
    assert_eq!(of(CheckStage::PreCheck, rollback, Some(Answer::Rejected(says("no")))), []);
}

struct Refuses;

impl Checks for Refuses {
    fn pre_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Wait("rule budget: no room".to_owned())
    }

    fn post_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Pass
    }

    fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
        Vec::new()
    }
}

/// Rules and hooks are asked side by side, and the condition names both.
#[test]
fn rules_and_hooks_are_both_named() {
    use podward_core::hooks::{DeadlinePolicy, FailurePolicy, GateTiming, Hook, HookSet, NoAnswers, Phase};

    let hook = Hook {
        name: "backup".to_owned(),
        pod_selector: Selector::everything(),
        namespace_selector: Selector::everything(),
        phases: vec![Phase::PreCheck],
        operation_types: Vec::new(),
        order: 0,
        deadline_nanoseconds: 1_000_000_000,
        deadline_policy: DeadlinePolicy::Hold,
        failure_policy: FailurePolicy::Fail,
        post_check_rejection: PostCheckRejection::Hold,
        prepare_timing: GateTiming::AfterGate,
        complete_timing: GateTiming::BeforeGate,
    };
    let known = HookSet::new([hook]);
    let hooks: Vec<_> = known.iter().cloned().collect();
    let consumers = Consumers { hooks: &hooks, known: &known, answers: &NoAnswers };
    let mut labels = labels(&[(CONTROL_LABEL, CONTROL_VALUE), (SERVICE_AVAILABLE, "1")]);
    labels.insert(Stage::Operating.key("a"), "1".to_owned());
    labels.insert(Stage::OperationType.key("a"), "update".to_owned());
    labels.insert(Stage::PreCheck.key("a"), "1".to_owned());
    let pod = PodView {
        labels: &labels,
        available_conditions: None,
        finalizers: &[],
        has_gate: true,
        gate: Some(ConditionStatus::True),
        ready: true,
        terminating: false,
        facts: Facts::default(),
    };
    let plan = plan(&pod, &consumers, &Refuses, UnixNanos(2));
    assert!(!plan.labels.set.contains_key(&Stage::PreChecked.key("a")));
    let message = plan.explain(&pod, &Refuses).message;
    assert!(
        message.contains("rule budget: no room") && message.contains("hook backup: PRE_CHECK"),
        "{message}"
    );
}
