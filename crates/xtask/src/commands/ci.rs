//! `cargo xtask ci`: what a change must pass.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use super::test::Test;
use crate::console;

const CLIPPY: [&str; 6] = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
/// The check for advisories is left out: it needs a database from the network, and would fail changes that have
/// nothing to do with it.
const DENY: [&str; 5] = ["deny", "check", "bans", "licenses", "sources"];

/// Formatting, lints, dependencies, tests: what a change must pass.
#[derive(Debug, Args)]
pub(crate) struct Ci {
    #[command(flatten)]
    test: Test,
}

struct Outcome {
    name: &'static str,
    verdict: Verdict,
    took: Duration,
}

#[derive(PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    /// Not run, and what to do to have it run.
    Left(&'static str),
}

impl Ci {
    /// Runs every check, also when an earlier one failed, so that one run tells everything.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let mut outcomes =
            vec![check("formatting", &["fmt", "--all", "--check"]).await?, check("lints", &CLIPPY).await?];
        outcomes.push(if has_deny().await {
            check("dependencies", &DENY).await?
        } else {
            let how = "cargo-deny is not installed: `cargo install --locked cargo-deny`";
            Outcome { name: "dependencies", verdict: Verdict::Left(how), took: Duration::ZERO }
        });
        let started = Instant::now();
        let tested = self.test.run().await.unwrap_or_else(|error| console::failure(&error));
        let verdict = if tested == ExitCode::SUCCESS { Verdict::Passed } else { Verdict::Failed };
        outcomes.push(Outcome { name: "tests", verdict, took: started.elapsed() });

        println!();
        for Outcome { name, verdict, took } in &outcomes {
            let seconds = took.as_secs();
            match verdict {
                Verdict::Passed => println!("{name:<14} passed in {seconds} s"),
                Verdict::Failed => println!("{name:<14} FAILED after {seconds} s"),
                Verdict::Left(how) => println!("{name:<14} not checked: {how}"),
            }
        }
        let failed = outcomes.iter().any(|outcome| outcome.verdict == Verdict::Failed);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

async fn check(name: &'static str, arguments: &[&str]) -> Result<Outcome> {
    println!("== {name}: cargo {}", arguments.join(" "));
    let started = Instant::now();
    let status = console::run(podward_testbed::cargo().args(arguments), "cargo").await?;
    let verdict = if status.success() { Verdict::Passed } else { Verdict::Failed };
    Ok(Outcome { name, verdict, took: started.elapsed() })
}

async fn has_deny() -> bool {
    let mut command = podward_testbed::cargo();
    command.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}
