//! Attacks on Podward. Each test is named after the attack or its failure.

mod forged_reviews;
mod hooks;
mod rule_webhooks;
mod writer_rights;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    let modules = [forged_reviews::tests(), hooks::tests(), rule_webhooks::tests(), writer_rights::tests()];
    modules.into_iter().flatten().collect()
}
