//! What rules must be like. The resource's schema says part of it too; this says all of it, with the field, and what is allowed but
//! can't be meant.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use podward_core::PostCheckRejection;
use podward_core::keys::POST_CHECK_REJECTION;

use super::{
    AdaptivePolicy, AvailablePolicy, FailurePolicy, MAX_NAME, MAX_RULES, Parameter, PodTransitionRule,
    RuleStage, TransitionRule, TransitionRuleWebhook, WebhookUrl, ca_certificates,
};
use crate::selector::compile;
use crate::words::shortened;

const MAX_PARAMETERS: usize = 128;
const MAX_INTERVAL: i64 = 86_400;
const MAX_TIMEOUT: i64 = 604_800;
/// A pod's annotation is named after the object, and its name has that many characters.
const MAX_ANNOTATED: usize = 63;

/// Something that is wrong with a rule object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The field: `spec.rules[2].webhook.clientConfig.url`.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// All that is wrong with a rule object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The rules can't be followed.
    pub errors: Vec<Finding>,
    /// They can, but it can't be what is meant.
    pub warnings: Vec<Finding>,
}

impl Findings {
    fn error(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.errors.push(Finding { field: field.into(), problem: problem.into() });
    }

    fn warning(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.warnings.push(Finding { field: field.into(), problem: problem.into() });
    }
}

impl PodTransitionRule {
    /// Looks for all that is wrong.
    #[must_use]
    pub fn check(&self) -> Findings {
        let mut findings = Findings::default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if name.len() > MAX_ANNOTATED {
            let problem = format!(
                "longer than {MAX_ANNOTATED} characters: the annotation that tells a pod what holds it can't be named so"
            );
            findings.warning("metadata.name", problem);
        }
        match &self.spec.selector {
            None => findings.error("spec.selector", "is required; {} selects every pod of the namespace"),
            Some(selector) => check_selector(&mut findings, "spec.selector", selector),
        }
        let rules = &self.spec.rules;
        if rules.len() > MAX_RULES {
            findings.error("spec.rules", format!("more than {MAX_RULES}"));
        }
        if rules.is_empty() {
            findings.warning("spec.rules", "there is none: every pod passes");
        }
        let mut names = BTreeSet::new();
        for (index, rule) in rules.iter().take(MAX_RULES).enumerate() {
            let field = format!("spec.rules[{index}]");
            check_name(&mut findings, &format!("{field}.name"), &rule.name);
            if !rule.name.is_empty() && !names.insert(rule.name.as_str()) {
                let problem =
                    format!("{:?} is the name of another rule of this object", shortened(&rule.name));
                findings.error(format!("{field}.name"), problem);
            }
            check_rule(&mut findings, &field, rule);
        }
        self.check_rejection(&mut findings);
        findings
    }

    /// The resource is KusionStack's, so it says by an annotation what operators are told.
    fn check_rejection(&self, findings: &mut Findings) {
        let Some(text) = self.rejection() else { return };
        let field = format!("metadata.annotations[{POST_CHECK_REJECTION}]");
        match PostCheckRejection::parse(text) {
            Some(PostCheckRejection::Hold) => return,
            Some(PostCheckRejection::Rollback) => {}
            None => {
                let problem =
                    format!("{:?} is neither Hold (the same as none) nor Rollback", shortened(text));
                return findings.error(field, problem);
            }
        }
        let is_asked =
            |rule: &TransitionRule| !rule.disabled && rule.asked_in() == Some(RuleStage::PostCheck);
        let judges: Vec<(usize, &TransitionRule)> =
            self.spec.rules.iter().take(MAX_RULES).enumerate().filter(|(_, rule)| is_asked(rule)).collect();
        if judges.is_empty() {
            findings.warning(
                field,
                "Rollback is about results, and no rule is asked about any: none has the stage PostCheck",
            );
        }
        for (index, rule) in judges {
            if rule.webhook.as_ref().is_some_and(|webhook| webhook.failure_policy == FailurePolicy::Ignore) {
                let problem = format!(
                    "with {POST_CHECK_REJECTION}: Rollback it can't be Ignore (the default): a result that the webhook has refused would \
                     be accepted when the webhook is away; say Fail"
                );
                findings.error(format!("spec.rules[{index}].webhook.failurePolicy"), problem);
            }
        }
    }
}

fn check_name(findings: &mut Findings, field: &str, name: &str) {
    if name.is_empty() {
        findings.error(field, "is required");
    } else if name.len() > MAX_NAME {
        findings.error(field, format!("longer than {MAX_NAME} bytes"));
    }
}

fn check_rule(findings: &mut Findings, field: &str, rule: &TransitionRule) {
    if rule.asked_in().is_none() {
        let stage = shortened(rule.stage.as_deref().unwrap_or_default());
        let problem = format!("{stage:?} is neither PreCheck nor PostCheck: the rule is never asked");
        findings.warning(format!("{field}.stage"), problem);
    }
    if !rule.conditions.is_empty() {
        let problem =
            "no condition is known, and a rule whose conditions are not met is passed by: it is never asked";
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

fn check_selector(findings: &mut Findings, field: &str, selector: &LabelSelector) {
    if let Err(error) = compile(selector) {
        findings.error(field, error.to_string());
    }
}

fn check_available(findings: &mut Findings, field: &str, policy: &AvailablePolicy) {
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
        findings.error(field, "at least one of maxUnavailableValue and minAvailableValue must be set");
    }
    let most = check_value(findings, &format!("{field}.maxUnavailableValue"), max_unavailable_value.as_ref());
    if matches!(most, Some(Amount::Pods(0) | Amount::Percent(0))) {
        let problem = "0 lets no pod that is available pass, ever";
        findings.warning(format!("{field}.maxUnavailableValue"), problem);
    }
    let fewest = check_value(findings, &format!("{field}.minAvailableValue"), min_available_value.as_ref());
    if fewest == Some(Amount::Percent(100)) {
        let problem = "100% lets no pod that is available pass, ever";
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

fn check_value(findings: &mut Findings, field: &str, value: Option<&IntOrString>) -> Option<Amount> {
    let amount = match value? {
        IntOrString::Int(pods) => Some(Amount::Pods(*pods)).filter(|_| *pods >= 0),
        IntOrString::String(text) => percent(text).map(Amount::Percent),
    };
    if amount.is_none() {
        let found = match value? {
            IntOrString::Int(pods) => pods.to_string(),
            IntOrString::String(text) => format!("{:?}", shortened(text)),
        };
        findings.error(
            field,
            format!("{found} is neither a number from 0 on nor a percentage from \"0%\" to \"100%\""),
        );
    }
    amount
}

fn percent(text: &str) -> Option<u8> {
    let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|percent| *percent <= 100)
}

fn check_function(findings: &mut Findings, field: &str, policy: Option<&AdaptivePolicy>) {
    let Some(function) = policy.and_then(|policy| policy.exp_func.as_ref()) else { return };
    for (name, text) in [("coeff", &function.coeff), ("pow", &function.pow)] {
        let Some(text) = text else { continue };
        if !text.parse::<f64>().is_ok_and(f64::is_finite) {
            let problem = format!("{:?} is not a number", shortened(text));
            findings.error(format!("{field}.expFunc.{name}"), problem);
        }
    }
}

fn check_webhook(findings: &mut Findings, field: &str, webhook: &TransitionRuleWebhook) {
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
            let problem = "shorter than intervalSeconds: a task is over before it is asked for";
            findings.warning(format!("{field}.timeoutSeconds"), problem);
        }
        if poll.raw_query_key.len() > MAX_NAME {
            findings.error(format!("{field}.rawQueryKey"), format!("longer than {MAX_NAME} bytes"));
        }
    }
    if webhook.parameters.len() > MAX_PARAMETERS {
        findings.error(format!("{field}.parameters"), format!("more than {MAX_PARAMETERS}"));
    }
    let mut keys = BTreeSet::new();
    for (index, parameter) in webhook.parameters.iter().take(MAX_PARAMETERS).enumerate() {
        let field = format!("{field}.parameters[{index}]");
        if !keys.insert(parameter.key.as_str()) {
            let problem = format!("{:?} is there twice; the last one counts", shortened(&parameter.key));
            findings.warning(format!("{field}.key"), problem);
        }
        check_parameter(findings, &field, parameter);
    }
}

fn check_target(findings: &mut Findings, field: &str, url: &str, ca_bundle: &str) {
    let url = WebhookUrl::parse(url);
    let certificates = ca_certificates(ca_bundle);
    if let (Ok(url), Ok(certificates)) = (&url, &certificates)
        && !url.is_https()
        && !certificates.is_empty()
    {
        findings.warning(format!("{field}.caBundle"), "the URL is not https: nothing is checked against it");
    }
    if let Err(problem) = url {
        findings.error(format!("{field}.url"), problem);
    }
    if let Err(problem) = certificates {
        findings.error(format!("{field}.caBundle"), problem);
    }
}

fn check_parameter(findings: &mut Findings, field: &str, parameter: &Parameter) {
    if !parameter.value.is_empty() {
        if parameter.value_from.is_some() {
            findings.warning(format!("{field}.valueFrom"), "not looked at, because there is a value");
        }
        return;
    }
    match parameter.path() {
        None => findings.error(field, "either value or valueFrom.fieldRef.fieldPath must be set"),
        Some(Ok(_)) => {}
        Some(Err(problem)) => findings.error(format!("{field}.valueFrom.fieldRef.fieldPath"), problem),
    }
}
