//! What people are told of rules that refuse.

use podward_core::rules::{Asking, Check, Refusal};

use super::Rules;
use super::checks::PodRules;
use super::webhook::shortened;

/// An event has room for so many refusals.
const MOST: usize = 2;
/// Characters of a reason there.
const REASON: usize = 200;

impl Rules {
    /// Who refuses `asking` of a pod of `namespace`, why, and what comes next, as far as it fits into an event. `rules` is what rules said
    /// to the pod.
    pub(crate) fn words(&self, namespace: &str, rules: &PodRules, asking: &Asking) -> String {
        let refusals = match rules.refusals(asking) {
            Ok(refusals) => refusals,
            Err(why) => return why.to_owned(),
        };
        let state = self.shared.state.lock();
        let words = refusals.iter().take(MOST).map(|(set, refusal)| {
            let found = state.index.get(namespace, set);
            let rule = found.and_then(|set| set.rules.iter().find(|rule| rule.name == refusal.rule_name));
            sentence(namespace, set, refusal, rule.map(|rule| &rule.check))
        });
        let mut words: Vec<String> = words.collect();
        match refusals.len().saturating_sub(MOST) {
            0 => {}
            1 => words.push("and one more refuses".to_owned()),
            more => words.push(format!("and {more} more refuse")),
        }
        words.join("; ")
    }
}

fn sentence(namespace: &str, set: &str, refusal: &Refusal, check: Option<&Check>) -> String {
    let Refusal { rule_name, reason } = refusal;
    let kind = check.map(|check| format!(" ({})", check.kind())).unwrap_or_default();
    let next = check.map(|check| format!(" [next: {}]", check.next_step())).unwrap_or_default();
    let reason = shortened(reason, REASON);
    format!("rule {rule_name}{kind} of PodTransitionRule {namespace}/{set} refuses it: {reason}{next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whose_it_is_why_and_what_comes_next() {
        let check = Check::Labels(podward_core::hooks::Selector::everything());
        let told = sentence("shop", "web", &Refusal::new("backed-up", "no backup"), Some(&check));
        let begins = "rule backed-up (labelCheck) of PodTransitionRule shop/web refuses it: no backup [next: the pod goes on";
        assert!(told.starts_with(begins), "{told}");
        let long = Refusal::new("r", "x".repeat(500));
        assert!(sentence("shop", "web", &long, None).len() < 300);
    }
}
