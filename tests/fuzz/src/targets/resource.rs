//! LifecycleHooks, PodTransitionRules and CloneSets, as the services read them from the API server. Their schemas limit
//! them, but not everywhere, and not those that were stored before.

use std::collections::BTreeMap;

use podward_api::pod_transition_rule::{FieldPath, WebhookUrl, ca_certificates};
use podward_api::{CloneSet, CloneSetSpec, LifecycleHook, PodTransitionRule};
use podward_core::rules::{CheckRequest, NoWebhookAnswers, RulePod, check_requests};
use serde_json::Value;

use super::samples;
use crate::input::Input;
use crate::outcome::Outcome;
use crate::target::{Format, Target};

pub(super) fn target() -> Target {
    let seeds = samples::HOOKS.map(|name| Input::new(0, samples::hook(name).to_string()));
    let mut seeds = Vec::from(seeds);
    seeds.push(Input::new(1, samples::rule().to_string()));
    seeds.push(Input::new(2, samples::clone_set().to_string()));
    let pods = samples::pods();
    let pod = pods[3].clone();
    let labels: BTreeMap<String, String> =
        serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default();
    let requests = check_requests(&labels);
    Target::new("resource", Format::Json, seeds, move |input| match input.variant % 3 {
        0 => hook(input, &labels),
        1 => rule(input, &pod, &labels, &requests),
        _ => clone_set(input),
    })
}

fn hook(input: &Input, labels: &BTreeMap<String, String>) -> Result<Outcome, String> {
    let mut outcome = Outcome::of(0);
    let hook: LifecycleHook = match serde_json::from_slice(&input.body) {
        Ok(hook) => hook,
        Err(error) => {
            outcome.text(&error.to_string());
            return Ok(outcome);
        }
    };
    match hook.to_hook() {
        Ok(compiled) => {
            outcome.add((compiled.concerns(labels, labels), compiled.is_consumer(), compiled.phases.len()));
        }
        Err(invalid) => outcome.text(&invalid.to_string()),
    }
    Ok(outcome)
}

fn rule(
    input: &Input,
    pod: &Value,
    labels: &BTreeMap<String, String>,
    requests: &[CheckRequest],
) -> Result<Outcome, String> {
    let mut outcome = Outcome::of(1);
    let rule: PodTransitionRule = match serde_json::from_slice(&input.body) {
        Ok(rule) => rule,
        Err(error) => {
            outcome.text(&error.to_string());
            return Ok(outcome);
        }
    };
    let found = rule.check();
    for finding in found.errors.iter().take(4) {
        outcome.text(&finding.to_string());
    }
    outcome.size(found.warnings.len());
    let set = rule.to_rule_set();
    let subject = RulePod { namespace: "shop", name: "web-0", uid: "7", labels, skip: None };
    for request in requests {
        let decision = set.evaluate(&subject, request, &NoWebhookAnswers);
        outcome.size(decision.refusals.len());
        outcome.size(decision.budgets.len());
    }
    for limit in set.rules.iter().filter_map(|rule| match &rule.check {
        podward_core::rules::RuleCheck::Available(policy) => Some(policy),
        _ => None,
    }) {
        for pods in [0, 1, 5000, u32::MAX] {
            outcome.size(usize::try_from(limit.most_unavailable(pods)).unwrap_or_default());
            outcome.size(usize::try_from(limit.fewest_available(pods)).unwrap_or_default());
        }
    }
    for rule in &rule.spec.rules {
        let Some(webhook) = &rule.webhook else { continue };
        let client = &webhook.client_config;
        outcome.add(WebhookUrl::parse(&client.url).is_ok());
        outcome.add(ca_certificates(&client.ca_bundle).is_ok());
        for parameter in &webhook.parameters {
            let path = parameter.value_from.as_ref().and_then(|source| source.field_ref.as_ref());
            let Some(path) = path.and_then(|path| FieldPath::parse(&path.field_path).ok()) else { continue };
            outcome.size(path.read(pod).len());
        }
    }
    Ok(outcome)
}

fn clone_set(input: &Input) -> Result<Outcome, String> {
    let mut outcome = Outcome::of(2);
    let set: CloneSet = match serde_json::from_slice(&input.body) {
        Ok(set) => set,
        Err(error) => {
            outcome.text(&error.to_string());
            return Ok(outcome);
        }
    };
    match set.check() {
        Ok(()) => {
            let template = set.pod_template().map_err(|error| format!("checked, but {error}"))?;
            let claims = set.volume_claims().map_err(|error| format!("checked, but {error}"))?;
            outcome.size(template.spec.map_or(0, |pod| pod.containers.len()));
            outcome.size(claims.len());
        }
        Err(invalid) => outcome.text(&invalid.to_string()),
    }
    let again = serde_json::to_value(&set.spec).and_then(serde_json::from_value::<CloneSetSpec>);
    match again.map_err(|error| error.to_string())? == set.spec {
        true => Ok(outcome),
        false => Err("a spec differs when it is written and read again".to_owned()),
    }
}
