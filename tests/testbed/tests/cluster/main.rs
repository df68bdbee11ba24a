//! Tests of the test cluster, with the real programs. The first run builds them.

// A helper of a test fails as a test does.
#![allow(clippy::unwrap_used, clippy::panic)]

mod api_servers;
mod control_plane;
mod detached;
mod ends;
mod harness;
mod node;
mod nodes;
mod simulated;
mod support;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if let Ok(shape) = std::env::var(ends::OWNED_SHAPE) {
        harness::block_on(ends::own_until_killed(&shape));
        return ExitCode::SUCCESS;
    }
    let tests = [
        api_servers::tests(),
        control_plane::tests(),
        detached::tests(),
        ends::tests(),
        node::tests(),
        nodes::tests(),
        simulated::tests(),
    ];
    let conclusion = libtest_mimic::run(&Arguments::from_args(), tests.into_iter().flatten().collect());
    harness::block_on(simulated::end());
    conclusion.exit_code()
}
