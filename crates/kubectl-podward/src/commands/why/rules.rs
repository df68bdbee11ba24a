//! Rules that refuse.

use std::collections::BTreeMap;

use kube::core::DeserializeGuard;
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::PodTransitionRuleStatus;
use podward_core::keys::{RULE_DETAIL_PREFIX, SKIP_RULES};
use podward_core::rules::{Asking, Check, Detail, NoAnswers, Rule, RuleSet, Subject, askings, skipped_rules};
use podward_core::{Operations, Pod, UnixNanos};

use super::report::{Report, Wait};

type Annotations = BTreeMap<String, String>;

/// A PodTransitionRule, as the core has it, and what it says of its pods.
#[derive(Debug)]
pub(super) struct RuleObject {
    set: RuleSet,
    status: PodTransitionRuleStatus,
}

impl RuleObject {
    /// One that can't be read refuses every pod of its namespace, as it does in the controller.
    pub(super) fn new(object: DeserializeGuard<PodTransitionRule>) -> Self {
        match object.0 {
            Ok(object) => Self { set: object.to_rule_set(), status: object.status.unwrap_or_default() },
            Err(error) => {
                let namespace = error.metadata.namespace.as_deref().unwrap_or_default();
                let name = error.metadata.name.as_deref().unwrap_or_default();
                let set = PodTransitionRule::unreadable(namespace, name, &error.error);
                Self { set, status: PodTransitionRuleStatus::default() }
            }
        }
    }

    /// What the controller has last said to the pod in this stage: in the status, or, where that has no room for it, on the pod.
    fn detail(&self, subject: &Subject<'_>, asking: &Asking, annotations: &Annotations) -> Option<Detail> {
        let is_it = |detail: &&Detail| detail.name == subject.name && detail.stage == asking.stage.as_str();
        let stored = self.status.details.iter().find(is_it).cloned();
        stored.or_else(|| {
            let text = annotations.get(&format!("{RULE_DETAIL_PREFIX}{}", self.set.name))?;
            serde_json::from_str(text).ok().filter(|detail: &Detail| detail.stage == asking.stage.as_str())
        })
    }

    /// The rules that refuse, and why. What can be told from the pod alone is, as it is at this moment.
    fn refusals(
        &self,
        subject: &Subject<'_>,
        asking: &Asking,
        annotations: &Annotations,
    ) -> Vec<(&Rule, String)> {
        let judgement = self.set.judge(subject, asking, &NoAnswers);
        let detail = self.detail(subject, asking, annotations);
        let said = |rule: &Rule| {
            let Some(detail) = &detail else {
                return Some("the controller has not said anything of it yet".to_owned());
            };
            let info = detail.reject_info.iter().find(|info| info.rule_name == rule.name);
            info.map(|info| info.reason.clone())
        };
        let rules = self.set.rules.iter().enumerate();
        let refused = rules.filter_map(|(place, rule)| {
            let is_asked = judgement.budgets.contains(&place) || judgement.webhooks.contains(&rule.name);
            let live = || judgement.refusals.iter().find(|refusal| refusal.rule_name == rule.name);
            let why = match &rule.check {
                Check::Available(_) | Check::Webhook if is_asked => said(rule),
                Check::Available(_) | Check::Webhook | Check::Nothing => None,
                Check::Labels(_) | Check::Unreadable(_) => live().map(|refusal| refusal.reason.clone()),
            };
            Some((rule, why?))
        });
        refused.collect()
    }
}

/// What rules say to the operations of `pod`.
pub(super) fn look(
    report: &mut Report,
    pod: &Pod,
    annotations: &Annotations,
    operations: &Operations<'_>,
    rules: &[RuleObject],
) {
    let view = pod.view();
    let skip = annotations.get(SKIP_RULES).map(String::as_str);
    let (namespace, name, uid) = (&pod.metadata.namespace, &pod.metadata.name, &pod.metadata.uid);
    let subject = Subject { namespace, name, uid, labels: view.labels, skip };
    for asking in askings(view.labels) {
        for object in rules.iter().filter(|object| object.set.selects(view.labels)) {
            for (rule, why) in object.refusals(&subject, &asking, annotations) {
                let (kind, next) = (rule.check.kind(), rule.check.next_step());
                report.waits.push(wait(&asking, operations, (&object.set.name, &rule.name), kind, why, next));
                add_skippable(report, skip, &rule.name);
            }
        }
    }
}

/// The same from what was last written to the pod, for somebody who may not read rules.
pub(super) fn look_at_annotations(
    report: &mut Report,
    pod: &Pod,
    annotations: &Annotations,
    operations: &Operations<'_>,
    error: &str,
) {
    let asked = askings(pod.view().labels);
    for asking in &asked {
        let details = annotations.iter().filter_map(|(key, text)| {
            let detail: Detail = serde_json::from_str(text).ok()?;
            Some((key.strip_prefix(RULE_DETAIL_PREFIX)?, detail))
        });
        for (set, detail) in details.filter(|(_, detail)| detail.stage == asking.stage.as_str()) {
            for info in detail.reject_info {
                let next = "whoever may read PodTransitionRules can tell";
                let rule = (set, info.rule_name.as_str());
                report.waits.push(wait(asking, operations, rule, "unknown", info.reason, next));
            }
        }
    }
    if !asked.is_empty() {
        let namespace = &pod.metadata.namespace;
        report.notes.push(format!(
            "the PodTransitionRules of {namespace} could not be read: {error}. What is told of rules is what was last written to the pod"
        ));
    }
}

fn wait(
    asking: &Asking,
    operations: &Operations<'_>,
    (set, rule): (&str, &str),
    kind: &str,
    why: String,
    next: &str,
) -> Wait {
    let since = Some(asking.since()).filter(|since| *since != i64::MAX);
    Wait {
        operation: asking.operation.clone(),
        operation_type: operations.type_of(&asking.operation).unwrap_or_default().into_owned(),
        stage: asking.stage.as_str(),
        who: format!("rule {set}/{rule}"),
        kind: kind.to_owned(),
        why,
        since: since.map(|since| UnixNanos(since).to_rfc3339()),
        until: None,
        at_most: None,
        next: next.to_owned(),
    }
}

fn add_skippable(report: &mut Report, skip: Option<&str>, rule: &str) {
    if report.skippable.is_empty() {
        report.skippable = skip.map(skipped_rules).unwrap_or_default();
    }
    if !report.skippable.iter().any(|known| known == rule) {
        report.skippable.push(rule.to_owned());
    }
}
