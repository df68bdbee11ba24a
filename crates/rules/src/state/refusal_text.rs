//! Refusals as the text of an event.

use podward_api::shortened;
use podward_core::rules::{CheckRequest, RuleCheck, RuleRefusal};

use super::pod_rules::PodRules;
use super::rule_cache::RuleCache;

/// Refusals in one event.
const MAX_REFUSALS: usize = 2;
/// Characters of a reason in an event.
const MAX_REASON: usize = 200;

/// Returns which rules refuse `request` of a pod of `namespace`, why, and what comes next, shortened for an event.
/// `rules` are the results for the pod.
pub(crate) fn refusal_text(
    cache: &RuleCache,
    namespace: &str,
    rules: &PodRules,
    request: &CheckRequest,
) -> String {
    let refusals = match rules.refusals(request) {
        Ok(refusals) => refusals,
        Err(why) => return why.to_owned(),
    };
    let texts = refusals.iter().take(MAX_REFUSALS).map(|(set, refusal)| {
        let found = cache.index.get(namespace, set);
        let rule = found.and_then(|set| set.rules.iter().find(|rule| rule.name == refusal.rule_name));
        one_refusal(namespace, set, refusal, rule.map(|rule| &rule.check))
    });
    let mut texts: Vec<String> = texts.collect();
    match refusals.len().saturating_sub(MAX_REFUSALS) {
        0 => {}
        1 => texts.push("and one more refuses".to_owned()),
        more => texts.push(format!("and {more} more refuse")),
    }
    texts.join("; ")
}

fn one_refusal(namespace: &str, set: &str, refusal: &RuleRefusal, check: Option<&RuleCheck>) -> String {
    let RuleRefusal { rule_name, reason, .. } = refusal;
    let kind = check.map(|check| format!(" ({})", check.kind())).unwrap_or_default();
    let next = check.map(|check| format!(" [next: {}]", check.next_step())).unwrap_or_default();
    let reason = shortened(reason, MAX_REASON);
    format!("rule {rule_name}{kind} of PodTransitionRule {namespace}/{set} refuses it: {reason}{next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_rule_reason_and_next_step() {
        let check = RuleCheck::Labels(podward_core::hooks::Selector::everything());
        let text = one_refusal("shop", "web", &RuleRefusal::new("backed-up", "no backup"), Some(&check));
        let begins = "rule backed-up (labelCheck) of PodTransitionRule shop/web refuses it: no backup \
                      [next: the pod continues";
        assert!(text.starts_with(begins), "{text}");
        let long = RuleRefusal::new("r", "x".repeat(500));
        assert!(one_refusal("shop", "web", &long, None).len() < 300);
    }
}
