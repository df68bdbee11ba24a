//! Failures of one of three nodes, and of one of two API servers, while pods are drained: only requests to pods on a
//! dead node are lost, and nothing is stuck. `kubectl podward why` explains pods of a broken node.

mod explained;
mod failures;
mod spread_workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    podward_e2e::run([failures::tests(), explained::tests()].into_iter().flatten().collect())
}
