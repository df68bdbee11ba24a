//! The program behind a test cluster. It runs the cluster's supervisor, and PID 1 of its namespaces. The library
//! starts it; users run `cargo xtask testbed`.

use std::process::ExitCode;

fn main() -> ExitCode {
    podward_testbed::supervise(std::env::args_os().skip(1))
}
