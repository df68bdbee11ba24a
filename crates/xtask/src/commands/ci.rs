//! `cargo xtask ci`: the checks that a change must pass.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use super::cycles;
use super::fuzz::Fuzz;
use super::test::Test;
use crate::console;

const CLIPPY: [&str; 6] = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
/// Advisories are not checked: they need a database from the network, and a new advisory would fail unrelated changes.
const DENY: [&str; 5] = ["deny", "check", "bans", "licenses", "sources"];

/// Check formatting, lints, dependencies and import cycles, run all tests, and fuzz for a minute.
#[derive(Debug, Args)]
pub(crate) struct Ci {
    #[command(flatten)]
    test: Test,
}

struct CheckOutcome {
    name: &'static str,
    result: CheckResult,
    took: Duration,
}

#[derive(PartialEq, Eq)]
enum CheckResult {
    Passed,
    Failed,
    /// The check was not run. The text says what it needs.
    Skipped(&'static str),
}

impl Ci {
    /// Runs every check, even if an earlier one failed, so that one run shows all failures.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let mut outcomes =
            vec![check("formatting", &["fmt", "--all", "--check"]).await?, check("lints", &CLIPPY).await?];
        outcomes.push(if has_deny().await {
            check("dependencies", &DENY).await?
        } else {
            let how = "cargo-deny is not installed: `cargo install --locked cargo-deny`";
            CheckOutcome { name: "dependencies", result: CheckResult::Skipped(how), took: Duration::ZERO }
        });
        outcomes.push(import_cycles().await);
        outcomes.push(fuzzing().await);
        // The tests are last, so that their failures are at the end of the output.
        let started = Instant::now();
        let tested = self.test.run().await.unwrap_or_else(|error| console::failure(&error));
        let result = passed_if(tested == ExitCode::SUCCESS);
        outcomes.push(CheckOutcome { name: "tests", result, took: started.elapsed() });

        println!();
        // What was not checked is at the end, so that nobody overlooks it.
        outcomes.sort_by_key(|outcome| matches!(outcome.result, CheckResult::Skipped(_)));
        for CheckOutcome { name, result, took } in &outcomes {
            let seconds = took.as_secs();
            match result {
                CheckResult::Passed => println!("{name:<14} passed in {seconds} s"),
                CheckResult::Failed => println!("{name:<14} FAILED after {seconds} s"),
                CheckResult::Skipped(how) => println!("{name:<14} NOT CHECKED: {how}"),
            }
        }
        let failed = outcomes.iter().any(|outcome| outcome.result == CheckResult::Failed);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Runs cargo with `arguments`.
async fn check(name: &'static str, arguments: &[&str]) -> Result<CheckOutcome> {
    println!("== {name}: cargo {}", arguments.join(" "));
    let started = Instant::now();
    let status = console::run(podward_images::cargo().args(arguments), "cargo").await?;
    Ok(CheckOutcome { name, result: passed_if(status.success()), took: started.elapsed() })
}

async fn import_cycles() -> CheckOutcome {
    let name = "import cycles";
    println!("== {name}: cargo xtask cycles");
    let started = Instant::now();
    let result = match cycles::report(&[]).await {
        Ok(0) => CheckResult::Passed,
        Ok(_) => CheckResult::Failed,
        Err(error) => {
            console::failure(&error);
            CheckResult::Failed
        }
    };
    CheckOutcome { name, result, took: started.elapsed() }
}

async fn fuzzing() -> CheckOutcome {
    let name = "fuzzing";
    println!("== {name}: cargo xtask fuzz");
    let started = Instant::now();
    let fuzzed = Fuzz::of_ci().run().await.unwrap_or_else(|error| console::failure(&error));
    CheckOutcome { name, result: passed_if(fuzzed == ExitCode::SUCCESS), took: started.elapsed() }
}

fn passed_if(passed: bool) -> CheckResult {
    if passed { CheckResult::Passed } else { CheckResult::Failed }
}

async fn has_deny() -> bool {
    let mut command = podward_images::cargo();
    command.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}
