//! The program behind a test bed: its keeper and the PID 1 of its namespaces. The library starts it; see
//! `cargo xtask testbed` for what people use.

use std::process::ExitCode;

fn main() -> ExitCode {
    podward_testbed::supervise(std::env::args_os().skip(1))
}
