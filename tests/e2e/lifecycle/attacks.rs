//! Attacks on Podward. Each test is named after the attack or its failure.

mod forged_reviews;

use podward_e2e::Test;

pub(crate) fn tests() -> Vec<Test> {
    forged_reviews::tests()
}
