//! Attacks on Podward. Each test is named after the attack or its failure.

mod forged_reviews;
mod hooks;
mod rule_webhooks;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [forged_reviews::tests(), hooks::tests(), rule_webhooks::tests()];
    modules.into_iter().flatten().collect()
}
