//! The size of the status of a PodTransitionRule.

use std::collections::BTreeMap;
use std::sync::Arc;

use podward_api::pod_transition_rule::{RuleState, TaskInfo, WebhookStatus};
use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::rules::{
    CheckRequest, CheckStage, OtherChecks, Rule, RuleBudget, RuleMember, RulePod, RuleSet, WebhookAnswer,
    WebhookAnswers, rule_reports, settle,
};
use serde_json::json;

use super::super::state::RuleRecord;
use super::super::state::compose_status;

const PODS: usize = 5000;
/// The pods with a check request.
const WITH_REQUEST: usize = 1500;
/// A character that takes six bytes in JSON.
const CONTROL: &str = "\u{1}";

/// Webhooks approve the first 500 pods, and refuse the others with a long reason.
struct LongAnswers;

impl WebhookAnswers for LongAnswers {
    fn answer(&self, _: &RuleSet, _: &Rule, pod: &RulePod<'_>, _: &CheckRequest) -> Option<WebhookAnswer> {
        let number: usize = pod.uid.parse().unwrap();
        Some(if number < 500 {
            WebhookAnswer::Approved
        } else {
            WebhookAnswer::Rejected(CONTROL.repeat(5000))
        })
    }
}

/// The largest number of rules, with the longest names: one with a budget, one that is invalid, and webhooks.
fn record() -> RuleRecord {
    let name = |number: usize| format!("{}{number:03}", CONTROL.repeat(250));
    let client = json!({"url": "https://a.example"});
    let webhook = |number: usize| json!({"name": name(number), "webhook": {"clientConfig": client}});
    let mut rules = vec![
        json!({"name": name(0), "availablePolicy": {"maxUnavailableValue": PODS}}),
        json!({
            "name": name(1), "availablePolicy": {"maxUnavailableValue": CONTROL.repeat(5000)},
            "filter": {"labelSelector": {"matchLabels": {"no": "pod"}}},
        }),
    ];
    rules.extend((2..64).map(webhook));
    let object = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {
            "name": "n".repeat(253), "namespace": "n".repeat(63), "uid": "u", "resourceVersion": "1", "generation": 1,
        },
        "spec": {"selector": {}, "rules": rules},
    });
    RuleRecord::new(serde_json::from_value(object).unwrap())
}

fn task(pods: usize) -> TaskInfo {
    TaskInfo {
        task_id: "t".repeat(1024),
        processing: (0..pods).map(|pod| format!("{pod:0253}")).collect(),
        approved: (pods..2 * pods).map(|pod| format!("{pod:0253}")).collect(),
        message: CONTROL.repeat(1024),
        requests: vec!["0123456789abcdef".to_owned(); 2 * pods],
        ..TaskInfo::default()
    }
}

#[test]
fn a_status_has_less_than_256_kib() {
    let record = record();
    let names: Vec<String> = (0..PODS).map(|pod| format!("{pod:0253}")).collect();
    let uids: Vec<String> = (0..PODS).map(|pod| format!("{pod:036}")).collect();
    let request = |pod: usize| CheckRequest {
        stage: CheckStage::PreCheck,
        operation: "o".repeat(63),
        asked_at: (1_700_000_000_000_000_000 + pod).to_string(),
    };
    let requests: Vec<Vec<CheckRequest>> =
        (0..PODS).map(|pod| (pod < WITH_REQUEST).then(|| request(pod)).into_iter().collect()).collect();
    let labels = BTreeMap::from([(SERVICE_AVAILABLE.to_owned(), "1".to_owned())]);
    let subject = |pod: usize| RulePod {
        namespace: "shop",
        name: &names[pod],
        uid: &uids[pod],
        labels: &labels,
        skip: None,
    };
    let members: Vec<RuleMember<'_>> = (0..PODS)
        .map(|pod| RuleMember {
            pod: subject(pod),
            check_requests: &requests[pod],
            sets: &[0],
            ends_workload: false,
        })
        .collect();
    let budget = RuleBudget { set: &record.set, stored_grants: &record.grants, missing: 0, is_current: true };
    let holder = "h".repeat(270);
    let settlement = settle(&holder, &[budget], &members, &LongAnswers, &|_, _| OtherChecks::Agree);
    let grants = Arc::new(settlement.new_grants[0].clone().unwrap());
    let report = rule_reports(&members, &settlement).remove(0);
    let state = |rule: &Rule, pods: &[usize]| {
        let tasks: Vec<TaskInfo> = pods.iter().map(|pods| task(*pods)).collect();
        let status = WebhookStatus { history: tasks[..tasks.len().min(16)].to_vec(), task_states: tasks };
        RuleState { name: rule.name.clone(), webhook_status: Some(status) }
    };
    // The webhooks of all rules have the largest number of tasks; in one case the first has a few with all pods.
    let webhooks = &record.set.rules[2..];
    for first in [&[2500, 100][..], &[4; 64]] {
        let mut states = vec![state(&webhooks[0], first)];
        states.extend(webhooks[1..].iter().map(|rule| state(rule, &[4; 64])));
        let status = compose_status(&record, &grants, report.clone(), states, Some(&holder)).unwrap();
        let bytes = serde_json::to_string(&status).unwrap().len();
        assert!(bytes < 256 * 1024, "{bytes}");
        assert!(bytes > 160 * 1024, "{bytes}: the worst case is worse");
        assert!(status.grants.len() >= 140, "{}", status.grants.len());
        assert_eq!(status.target_count, Some(5000));
        assert_eq!(status.waiting_count, u32::try_from(WITH_REQUEST - status.grants.len()).ok());
        assert!(status.targets.len() >= 100 && status.details.len() >= 10);
        assert!(!status.conditions[0].message.is_empty());
    }
    // The tasks of a single webhook are stored.
    let alone = vec![state(&webhooks[0], &[2500, 100])];
    let status = compose_status(&record, &grants, report, alone, None).unwrap();
    let task = &status.rule_states[0].webhook_status.as_ref().unwrap().task_states[0];
    assert!(task.processing.len() > 100 && task.requests.len() == task.processing.len());
    let bytes = serde_json::to_string(&status).unwrap().len();
    assert!((220 * 1024..256 * 1024).contains(&bytes), "{bytes}");
}
