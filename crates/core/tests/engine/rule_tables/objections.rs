//! Objections of rules, and conditions that name rules and hooks.

use super::*;

/// Only a rule that says no to a result objects; who can't tell keeps it waiting without a word to its operator.
#[test]
fn objections_name_the_checks_that_refuse_a_result() {
    let wanted = Selector::new([("good".to_owned(), "yes".to_owned())].into(), []).unwrap();
    let at = |stage| {
        let rule =
            |name: &str, check| Rule { name: name.to_owned(), stage: Some(stage), check, ..Rule::default() };
        vec![
            rule("labels", RuleCheck::Labels(wanted.clone())),
            rule("unreadable", RuleCheck::Unreadable("nobody knows".to_owned())),
            rule("webhook", RuleCheck::Webhook),
        ]
    };
    let of = |stage, policy, answer: Option<WebhookAnswer>| {
        let set = RuleSet { post_check_rejection: policy, ..set("web", at(stage)) };
        let (check_request, labels) = (CheckRequest { stage, ..check_request("7") }, labels(&[]));
        let judged = match answer {
            Some(answer) => {
                set.evaluate(&pod("a", &labels), &check_request, &Says([("webhook", answer)].into()))
            }
            None => set.evaluate(&pod("a", &labels), &check_request, &NoWebhookAnswers),
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
    assert_eq!(of(post, rollback, Some(WebhookAnswer::Waiting(says("running")))), expected(Some(false)));
    assert_eq!(of(post, rollback, Some(WebhookAnswer::Rejected(says("no")))), expected(Some(true)));
    assert_eq!(of(post, rollback, Some(WebhookAnswer::Approved)), expected(None));
    assert_eq!(of(post, PostCheckRejection::Hold, Some(WebhookAnswer::Rejected(says("no")))), []);
    assert_eq!(of(CheckStage::PreCheck, rollback, Some(WebhookAnswer::Rejected(says("no")))), []);
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
    use podward_core::hooks::{
        DeadlinePolicy, FailurePolicy, GateTiming, Hook, HookPhase, HookSet, NoHookAnswers,
    };

    let hook = Hook {
        name: "backup".to_owned(),
        pod_selector: Selector::everything(),
        namespace_selector: Selector::everything(),
        phases: vec![HookPhase::PreCheck],
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
    let consumers = PodHooks { hooks: &hooks, known: &known, answers: &NoHookAnswers };
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
        facts: PodFacts::default(),
    };
    let plan = plan(&pod, &consumers, &Refuses, UnixNanos(2));
    assert!(!plan.labels.set.contains_key(&Stage::PreChecked.key("a")));
    let message = plan.explain(&pod, &Refuses).message;
    assert!(
        message.contains("rule budget: no room") && message.contains("hook backup: PRE_CHECK"),
        "{message}"
    );
}
