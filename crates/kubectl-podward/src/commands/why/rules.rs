//! Operations that wait for rules.

use std::collections::BTreeMap;

use kube::Resource;
use kube::core::DeserializeGuard;
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::PodTransitionRuleStatus;
use podward_core::keys::{RULE_DETAIL_PREFIX, SKIP_RULES};
use podward_core::rules::{
    CheckRequest, NoWebhookAnswers, Rule, RuleCheck, RuleDetail, RulePod, RuleSet, SkippedRules,
    check_requests, skipped_rules,
};
use podward_core::{Operations, Pod, UnixNanos};

use super::report::{OperationWait, WhyReport};

type Annotations = BTreeMap<String, String>;

/// A PodTransitionRule and its status.
#[derive(Debug)]
pub(super) struct RuleWithStatus {
    set: RuleSet,
    status: PodTransitionRuleStatus,
}

impl RuleWithStatus {
    /// Converts a PodTransitionRule; `None` if it is being deleted, and so does not apply.
    pub(super) fn applying(object: DeserializeGuard<PodTransitionRule>) -> Option<Self> {
        object.meta().deletion_timestamp.is_none().then(|| Self::new(object))
    }

    /// Converts a PodTransitionRule. One that cannot be parsed refuses every pod of its namespace, as in the
    /// controller.
    fn new(object: DeserializeGuard<PodTransitionRule>) -> Self {
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

    /// Returns the controller's last result for the pod in this stage. It is in the status, or on the pod if the status
    /// is full.
    fn detail(
        &self,
        subject: &RulePod<'_>,
        request: &CheckRequest,
        annotations: &Annotations,
    ) -> Option<RuleDetail> {
        let is_it =
            |detail: &&RuleDetail| detail.name == subject.name && detail.stage == request.stage.as_str();
        let stored = self.status.details.iter().find(is_it).cloned();
        stored.or_else(|| {
            let text = annotations.get(&format!("{RULE_DETAIL_PREFIX}{}", self.set.name))?;
            serde_json::from_str(text)
                .ok()
                .filter(|detail: &RuleDetail| detail.stage == request.stage.as_str())
        })
    }

    /// Returns the rules that refuse, and the reasons. Rules that depend only on the pod are evaluated now.
    fn refusals(
        &self,
        subject: &RulePod<'_>,
        request: &CheckRequest,
        annotations: &Annotations,
    ) -> Vec<(&Rule, String)> {
        let judgement = self.set.evaluate(subject, request, &NoWebhookAnswers);
        let detail = self.detail(subject, request, annotations);
        let stored_reason = |rule: &Rule| {
            let Some(detail) = &detail else {
                return Some("the controller has not checked it yet".to_owned());
            };
            let info = detail.reject_info.iter().find(|info| info.rule_name == rule.name);
            info.map(|info| info.reason.clone())
        };
        let rules = self.set.rules.iter().enumerate();
        let refused = rules.filter_map(|(place, rule)| {
            let is_asked = judgement.budgets.contains(&place) || judgement.webhooks.contains(&rule.name);
            let live = || judgement.refusals.iter().find(|refusal| refusal.rule_name == rule.name);
            let why = match &rule.check {
                RuleCheck::Available(_) | RuleCheck::Webhook if is_asked => stored_reason(rule),
                RuleCheck::Available(_) | RuleCheck::Webhook | RuleCheck::Nothing => None,
                RuleCheck::Labels(_) | RuleCheck::Unreadable(_) => {
                    live().map(|refusal| refusal.reason.clone())
                }
            };
            Some((rule, why?))
        });
        refused.collect()
    }
}

/// Adds the rules that refuse operations of `pod`.
pub(super) fn add_waits(
    report: &mut WhyReport,
    pod: &Pod,
    annotations: &Annotations,
    operations: &Operations<'_>,
    rules: &[RuleWithStatus],
) {
    let view = pod.view();
    let skip = annotations.get(SKIP_RULES).map(String::as_str);
    let (namespace, name, uid) = (&pod.metadata.namespace, &pod.metadata.name, &pod.metadata.uid);
    let skipped = skip.map(SkippedRules::parse);
    let subject = RulePod { namespace, name, uid, labels: view.labels, skip: skipped.as_ref() };
    for request in check_requests(view.labels) {
        for object in rules.iter().filter(|object| object.set.selects(view.labels)) {
            for (rule, why) in object.refusals(&subject, &request, annotations) {
                let (kind, next) = (rule.check.kind(), rule.check.next_step());
                report.waits.push(wait(
                    &request,
                    operations,
                    (&object.set.name, &rule.name),
                    kind,
                    why,
                    next,
                ));
                add_skippable(report, skip, &rule.name);
            }
        }
    }
}

/// Adds the refusals that are stored on the pod, for a user who may not read PodTransitionRules.
pub(super) fn add_waits_from_annotations(
    report: &mut WhyReport,
    pod: &Pod,
    annotations: &Annotations,
    operations: &Operations<'_>,
    error: &str,
) {
    let requests = check_requests(pod.view().labels);
    for request in &requests {
        let details = annotations.iter().filter_map(|(key, text)| {
            let detail: RuleDetail = serde_json::from_str(text).ok()?;
            Some((key.strip_prefix(RULE_DETAIL_PREFIX)?, detail))
        });
        for (set, detail) in details.filter(|(_, detail)| detail.stage == request.stage.as_str()) {
            for info in detail.reject_info {
                let next = "ask a user who may read PodTransitionRules";
                let rule = (set, info.rule_name.as_str());
                report.waits.push(wait(request, operations, rule, "unknown", info.reason, next));
            }
        }
    }
    if !requests.is_empty() {
        let namespace = &pod.metadata.namespace;
        report.notes.push(format!(
            "the PodTransitionRules of {namespace} could not be read: {error}. The refusals above are \
             those that were last stored on the pod"
        ));
    }
}

fn wait(
    request: &CheckRequest,
    operations: &Operations<'_>,
    (set, rule): (&str, &str),
    kind: &str,
    why: String,
    next: &str,
) -> OperationWait {
    let since = Some(request.since()).filter(|since| *since != i64::MAX);
    OperationWait {
        operation: request.operation.clone(),
        operation_type: operations.type_of(&request.operation).unwrap_or_default().into_owned(),
        stage: request.stage.as_str(),
        who: format!("rule {set}/{rule}"),
        kind: kind.to_owned(),
        why,
        since: since.map(|since| UnixNanos(since).to_rfc3339()),
        until: None,
        at_most: None,
        next: next.to_owned(),
    }
}

fn add_skippable(report: &mut WhyReport, skip: Option<&str>, rule: &str) {
    if report.skippable.is_empty() {
        report.skippable = skip.map(skipped_rules).unwrap_or_default();
    }
    if !report.skippable.iter().any(|known| known == rule) {
        report.skippable.push(rule.to_owned());
    }
}
