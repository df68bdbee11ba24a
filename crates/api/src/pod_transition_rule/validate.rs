//! Validation of a `PodTransitionRule`. The schema of the resource contains a part of these checks. This module
//! contains all errors, with the field, and warnings about valid rules that are probably mistakes.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use podward_core::PostCheckRejection;
use podward_core::keys::POST_CHECK_REJECTION;

use super::{
    AdaptivePolicy, AvailablePolicy, MAX_NAME, MAX_RULES, Parameter, PodTransitionRule, RuleStage,
    TransitionRule, TransitionRuleWebhook, WebhookFailurePolicy, WebhookUrl, ca_certificates,
};
use crate::selector::compile;
use crate::text::excerpt;

const MAX_PARAMETERS: usize = 128;
/// A request to a webhook contains the keys and the fixed values of its parameters for each pod, and has at most a
/// megabyte.
const MAX_FIXED_BYTES: usize = 64 * 1024;
const MAX_INTERVAL: i64 = 86_400;
const MAX_TIMEOUT: i64 = 604_800;
/// The name of a pod's annotation contains the name of the object, and its length is limited to this number of bytes.
const MAX_ANNOTATED: usize = 63;

/// An error or a warning about a field of a `PodTransitionRule`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleFinding {
    /// The field, for example `spec.rules[2].webhook.clientConfig.url`.
    pub field: String,
    /// The problem, and what is valid.
    pub problem: String,
}

impl fmt::Display for RuleFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// All errors and warnings about a `PodTransitionRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFindings {
    /// The reasons why the object is invalid.
    pub errors: Vec<RuleFinding>,
    /// Probable mistakes in valid fields.
    pub warnings: Vec<RuleFinding>,
}

impl RuleFindings {
    fn error(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.errors.push(RuleFinding { field: field.into(), problem: problem.into() });
    }

    fn warning(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.warnings.push(RuleFinding { field: field.into(), problem: problem.into() });
    }
}

impl PodTransitionRule {
    /// Returns all errors and warnings.
    #[must_use]
    pub fn check(&self) -> RuleFindings {
        let mut findings = RuleFindings::default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if name.len() > MAX_ANNOTATED {
            let problem = format!(
                "longer than {MAX_ANNOTATED} characters: pods cannot have the annotation that states why they wait"
            );
            findings.warning("metadata.name", problem);
        }
        match &self.spec.selector {
            None => findings.error("spec.selector", "is required; {} selects all pods of the namespace"),
            Some(selector) => check_selector(&mut findings, "spec.selector", selector),
        }
        let rules = &self.spec.rules;
        if rules.len() > MAX_RULES {
            findings.error("spec.rules", format!("contains more than {MAX_RULES} rules"));
        }
        if rules.is_empty() {
            findings.warning("spec.rules", "is empty: every pod passes");
        }
        let mut names = BTreeSet::new();
        for (index, rule) in rules.iter().take(MAX_RULES).enumerate() {
            let field = format!("spec.rules[{index}]");
            check_name(&mut findings, &format!("{field}.name"), &rule.name);
            if !rule.name.is_empty() && !names.insert(rule.name.as_str()) {
                let problem = format!("{:?} is the name of another rule of this object", excerpt(&rule.name));
                findings.error(format!("{field}.name"), problem);
            }
            check_rule(&mut findings, &field, rule);
        }
        self.check_rejection(&mut findings);
        findings
    }

    /// Checks the annotation that makes operators roll back. It is an annotation because KusionStack defines the
    /// resource.
    fn check_rejection(&self, findings: &mut RuleFindings) {
        let Some(text) = self.rejection() else { return };
        let field = format!("metadata.annotations[{POST_CHECK_REJECTION}]");
        match PostCheckRejection::parse(text) {
            Some(PostCheckRejection::Hold) => return,
            Some(PostCheckRejection::Rollback) => {}
            None => {
                let problem = format!("{:?} must be Hold (the default) or Rollback", excerpt(text));
                return findings.error(field, problem);
            }
        }
        let is_asked =
            |rule: &TransitionRule| !rule.disabled && rule.parsed_stage() == Some(RuleStage::PostCheck);
        let post_checks: Vec<(usize, &TransitionRule)> =
            self.spec.rules.iter().take(MAX_RULES).enumerate().filter(|(_, rule)| is_asked(rule)).collect();
        if post_checks.is_empty() {
            findings.warning(field, "Rollback has no effect: no enabled rule has the stage PostCheck");
        }
        for (index, rule) in post_checks {
            if rule
                .webhook
                .as_ref()
                .is_some_and(|webhook| webhook.failure_policy == WebhookFailurePolicy::Ignore)
            {
                let problem = format!(
                    "must be Fail with {POST_CHECK_REJECTION}: Rollback: with Ignore (the default), a refused result \
                     would be accepted while the webhook is unreachable"
                );
                findings.error(format!("spec.rules[{index}].webhook.failurePolicy"), problem);
            }
        }
    }
}

fn check_name(findings: &mut RuleFindings, field: &str, name: &str) {
    if name.is_empty() {
        findings.error(field, "is required");
    } else if name.len() > MAX_NAME {
        findings.error(field, format!("longer than {MAX_NAME} bytes"));
    }
}

fn check_rule(findings: &mut RuleFindings, field: &str, rule: &TransitionRule) {
    if rule.parsed_stage().is_none() {
        let stage = excerpt(rule.stage.as_deref().unwrap_or_default());
        let problem = format!("{stage:?} is neither PreCheck nor PostCheck: the rule is never checked");
        findings.warning(format!("{field}.stage"), problem);
    }
    if !rule.conditions.is_empty() {
        let problem = "conditions are not supported: the rule is never checked";
        findings.warning(format!("{field}.conditions"), problem);
    }
    if let Some(selector) = rule.filter.as_ref().and_then(|filter| filter.label_selector.as_ref()) {
        check_selector(findings, &format!("{field}.filter.labelSelector"), selector);
    }
    let checks = [rule.available_policy.is_some(), rule.label_check.is_some(), rule.webhook.is_some()];
    if checks.into_iter().filter(|is_set| *is_set).count() != 1 {
        findings.error(field, "exactly one of availablePolicy, labelCheck and webhook must be set");
    }
    if let Some(policy) = &rule.available_policy {
        check_available(findings, &format!("{field}.availablePolicy"), policy);
    }
    if let Some(check) = &rule.label_check {
        check_selector(findings, &format!("{field}.labelCheck.requires"), &check.requires);
    }
    if let Some(webhook) = &rule.webhook {
        check_webhook(findings, &format!("{field}.webhook"), webhook);
    }
}

fn check_selector(findings: &mut RuleFindings, field: &str, selector: &LabelSelector) {
    if let Err(error) = compile(selector) {
        findings.error(field, error.to_string());
    }
}

fn check_available(findings: &mut RuleFindings, field: &str, policy: &AvailablePolicy) {
    let AvailablePolicy {
        max_unavailable_value,
        max_unavailable_policy,
        min_available_value,
        min_available_policy,
    } = policy;
    let is_set = max_unavailable_value.is_some()
        || min_available_value.is_some()
        || max_unavailable_policy.is_some()
        || min_available_policy.is_some();
    if !is_set {
        let problem = "at least one of maxUnavailableValue, minAvailableValue, maxUnavailablePolicy and \
                       minAvailablePolicy must be set";
        findings.error(field, problem);
    }
    let most = check_value(findings, &format!("{field}.maxUnavailableValue"), max_unavailable_value.as_ref());
    if matches!(most, Some(Amount::Pods(0) | Amount::Percent(0))) {
        let problem = "with 0, no available pod can ever pass";
        findings.warning(format!("{field}.maxUnavailableValue"), problem);
    }
    let fewest = check_value(findings, &format!("{field}.minAvailableValue"), min_available_value.as_ref());
    if fewest == Some(Amount::Percent(100)) {
        let problem = "with 100%, no available pod can ever pass";
        findings.warning(format!("{field}.minAvailableValue"), problem);
    }
    check_function(findings, &format!("{field}.maxUnavailablePolicy"), max_unavailable_policy.as_ref());
    check_function(findings, &format!("{field}.minAvailablePolicy"), min_available_policy.as_ref());
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Amount {
    Pods(i32),
    Percent(u8),
}

fn check_value(findings: &mut RuleFindings, field: &str, value: Option<&IntOrString>) -> Option<Amount> {
    let amount = match value? {
        IntOrString::Int(pods) => Some(Amount::Pods(*pods)).filter(|_| *pods >= 0),
        IntOrString::String(text) => percent(text).map(Amount::Percent),
    };
    if amount.is_none() {
        let found = match value? {
            IntOrString::Int(pods) => pods.to_string(),
            IntOrString::String(text) => format!("{:?}", excerpt(text)),
        };
        findings.error(
            field,
            format!("{found} must be a number of at least 0, or a percentage from \"0%\" to \"100%\""),
        );
    }
    amount
}

fn percent(text: &str) -> Option<u8> {
    let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|percent| *percent <= 100)
}

fn check_function(findings: &mut RuleFindings, field: &str, policy: Option<&AdaptivePolicy>) {
    let Some(function) = policy.and_then(|policy| policy.exp_func.as_ref()) else { return };
    for (name, text) in [("coeff", &function.coeff), ("pow", &function.pow)] {
        let Some(text) = text else { continue };
        if !text.parse::<f64>().is_ok_and(f64::is_finite) {
            let problem = format!("{:?} is not a number", excerpt(text));
            findings.error(format!("{field}.expFunc.{name}"), problem);
        }
    }
}

fn check_webhook(findings: &mut RuleFindings, field: &str, webhook: &TransitionRuleWebhook) {
    let client = format!("{field}.clientConfig");
    check_target(findings, &client, &webhook.client_config.url, &webhook.client_config.ca_bundle);
    if let Some(poll) = &webhook.client_config.poll {
        let field = format!("{client}.poll");
        check_target(findings, &field, &poll.url, &poll.ca_bundle);
        for (name, seconds, most) in [
            ("intervalSeconds", poll.interval_seconds, MAX_INTERVAL),
            ("timeoutSeconds", poll.timeout_seconds, MAX_TIMEOUT),
        ] {
            if !(1..=most).contains(&seconds) {
                findings.error(format!("{field}.{name}"), format!("{seconds} is not between 1 and {most}"));
            }
        }
        if poll.timeout_seconds >= 1 && poll.timeout_seconds < poll.interval_seconds {
            let problem = "shorter than intervalSeconds: a task times out before its first poll";
            findings.warning(format!("{field}.timeoutSeconds"), problem);
        }
        if poll.raw_query_key.len() > MAX_NAME {
            findings.error(format!("{field}.rawQueryKey"), format!("longer than {MAX_NAME} bytes"));
        }
    }
    if webhook.parameters.len() > MAX_PARAMETERS {
        findings
            .error(format!("{field}.parameters"), format!("contains more than {MAX_PARAMETERS} parameters"));
    }
    let fixed: usize =
        webhook.parameters.iter().map(|parameter| parameter.key.len() + parameter.value.len()).sum();
    if fixed > MAX_FIXED_BYTES {
        let problem = format!("the keys and fixed values have more than {MAX_FIXED_BYTES} bytes together");
        findings.error(format!("{field}.parameters"), problem);
    }
    let mut keys = BTreeSet::new();
    for (index, parameter) in webhook.parameters.iter().take(MAX_PARAMETERS).enumerate() {
        let field = format!("{field}.parameters[{index}]");
        if !keys.insert(parameter.key.as_str()) {
            let problem = format!("{:?} occurs twice; the last one is used", excerpt(&parameter.key));
            findings.warning(format!("{field}.key"), problem);
        }
        check_parameter(findings, &field, parameter);
    }
}

fn check_target(findings: &mut RuleFindings, field: &str, url: &str, ca_bundle: &str) {
    let url = WebhookUrl::parse(url);
    let certificates = ca_certificates(ca_bundle);
    if let (Ok(url), Ok(certificates)) = (&url, &certificates)
        && !url.is_https()
        && !certificates.is_empty()
    {
        findings.warning(format!("{field}.caBundle"), "has no effect, because the URL is not https");
    }
    if let Err(problem) = url {
        findings.error(format!("{field}.url"), problem);
    }
    if let Err(problem) = certificates {
        findings.error(format!("{field}.caBundle"), problem);
    }
}

fn check_parameter(findings: &mut RuleFindings, field: &str, parameter: &Parameter) {
    if !parameter.value.is_empty() {
        if parameter.value_from.is_some() {
            findings.warning(format!("{field}.valueFrom"), "has no effect, because value is set");
        }
        return;
    }
    match parameter.path() {
        None => findings.error(field, "either value or valueFrom.fieldRef.fieldPath must be set"),
        Some(Ok(_)) => {}
        Some(Err(problem)) => findings.error(format!("{field}.valueFrom.fieldRef.fieldPath"), problem),
    }
}
