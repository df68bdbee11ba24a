//! `cargo xtask test`: prepares what tests against a real cluster need, then runs all tests.

mod lanes;
mod output;
mod report;

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::future::try_join_all;
use podward_testbed::Part;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{console, prepare};
use lanes::Lane;
use output::Output;
use report::Report;

/// Run all tests, those against a real cluster too.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Run them against the cluster of this kubeconfig (kind, k3d, cloud) instead of test beds of our own
    #[arg(long, value_name = "FILE", env = "PODWARD_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Run only tests with this in their name
    filter: Option<String>,
}

impl Test {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let environment = if let Some(file) = &self.kubeconfig {
            // The tests run in folders of their own.
            let file = file.canonicalize().with_context(|| format!("no kubeconfig {}", file.display()))?;
            ("PODWARD_KUBECONFIG", file)
        } else {
            ("PODWARD_TESTBED_BIN", prepare::bed(&Part::ALL, true).await?.keeper)
        };
        // Tests find everything compiled, and leave the processors to those that they run beside.
        let mut build = podward_testbed::cargo();
        build.args(["test", "--workspace", "--no-run"]);
        if !console::run(&mut build, "cargo").await?.success() {
            return Ok(ExitCode::FAILURE);
        }
        let report = Mutex::new(Report::default());
        let mut successful = true;
        for lanes in lanes::all().await? {
            let lanes = lanes.iter().map(|lane| self.run_lane(lane, &environment, &report));
            successful &= try_join_all(lanes).await?.into_iter().all(|successful| successful);
        }
        let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("\n{report}");
        if successful {
            // A filter with a typing error must not look like a success.
            ensure!(!report.is_empty(), "no test has {} in its name", self.filter.unwrap_or_default());
            return Ok(ExitCode::SUCCESS);
        }
        // Without this the last words would be "0 failed".
        ensure!(report.has_failed(), "cargo test failed: a test program died");
        Ok(ExitCode::FAILURE)
    }

    /// Runs the tests of a lane; tells whether all of them passed.
    async fn run_lane(
        &self,
        lane: &Lane,
        (name, value): &(&str, PathBuf),
        report: &Mutex<Report>,
    ) -> Result<bool> {
        let mut successful = true;
        for arguments in lane {
            let mut command = podward_testbed::cargo();
            command.env(name, value).args(["test", "--workspace", "--no-fail-fast"]).args(arguments);
            command.args(&self.filter).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.spawn().context("cannot start cargo test")?;
            let mut output = Output::default();
            if let Some(stdout) = child.stdout.take() {
                let mut lines = BufReader::new(stdout).lines();
                while let Some(line) = lines.next_line().await.context("cannot read what the tests say")? {
                    report.lock().unwrap_or_else(PoisonError::into_inner).line(&line);
                    print(&output.line(line));
                }
            }
            print(&output.rest());
            successful &= child.wait().await.context("cannot wait for cargo test")?.success();
        }
        Ok(successful)
    }
}

fn print(lines: &[String]) {
    lines.iter().for_each(|line| println!("{line}"));
}
