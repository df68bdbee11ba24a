//! `cargo xtask test`: prepares what tests against a real cluster need, then runs all tests.

mod report;

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use podward_testbed::Part;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::prepare;
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
        let mut command = podward_testbed::cargo();
        if let Some(file) = &self.kubeconfig {
            // The tests run in folders of their own.
            let file = file.canonicalize().with_context(|| format!("no kubeconfig {}", file.display()))?;
            command.env("PODWARD_KUBECONFIG", file);
        } else {
            command.env("PODWARD_TESTBED_BIN", prepare::bed(&Part::ALL, true).await?.keeper);
        }
        command.args(["test", "--workspace", "--no-fail-fast"]).args(&self.filter);
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
        let mut report = Report::default();
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            while let Some(line) = lines.next_line().await.context("cannot read what the tests say")? {
                println!("{line}");
                report.line(&line);
            }
        }
        let status = child.wait().await.context("cannot wait for cargo test")?;
        println!("\n{report}");
        if status.success() {
            // A filter with a typing error must not look like a success.
            ensure!(!report.is_empty(), "no test has {} in its name", self.filter.unwrap_or_default());
            return Ok(ExitCode::SUCCESS);
        }
        // Without this the last words would be "0 failed".
        ensure!(
            report.has_failed(),
            "cargo test ended with {status}: something doesn't build, or a test program died"
        );
        Ok(ExitCode::FAILURE)
    }
}
