//! `cargo xtask test`: prepares what tests against a real cluster need, then runs all tests.

mod report;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::future::try_join_all;
use podward_testbed::Part;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::{console, prepare};
use report::Report;

/// The programs that take longest, some ten minutes each.
const LONG: [&str; 2] = ["e2e", "serving"];

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
        let mut environment = Vec::new();
        if let Some(file) = &self.kubeconfig {
            // The tests run in folders of their own.
            let file = file.canonicalize().with_context(|| format!("no kubeconfig {}", file.display()))?;
            environment.push(("PODWARD_KUBECONFIG", file));
        } else {
            environment.push(("PODWARD_TESTBED_BIN", prepare::bed(&Part::ALL, true).await?.keeper));
        }
        let cargo = || {
            let mut command = podward_testbed::cargo();
            command.args(["test", "--workspace", "--no-fail-fast"]).envs(environment.iter().cloned());
            command
        };
        let built = console::run(cargo().arg("--no-run"), "cargo test").await?;
        ensure!(built.success(), "the tests don't build");

        let mut lanes = Vec::new();
        for targets in self.lanes().await? {
            let mut command = cargo();
            command.args(targets).args(&self.filter);
            lanes.push(command);
        }
        let report = Mutex::default();
        let ended = try_join_all(lanes.iter_mut().map(|lane| run(lane, &report))).await?;
        let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("\n{report}");
        if ended.iter().all(ExitStatus::success) {
            // A filter with a typing error must not look like a success.
            ensure!(!report.is_empty(), "no test has {} in its name", self.filter.unwrap_or_default());
            return Ok(ExitCode::SUCCESS);
        }
        // Without this the last words would be "0 failed".
        ensure!(report.has_failed(), "cargo test failed, and no test did: a test program died");
        Ok(ExitCode::FAILURE)
    }

    /// The arguments for each `cargo test` of those that run side by side.
    ///
    /// Tests on clusters mostly wait, so the longest programs run beside the others, each with clusters of its own. A cluster of
    /// the user is one, and Podward is there once: then they take turns.
    async fn lanes(&self) -> Result<Vec<Vec<String>>> {
        if self.kubeconfig.is_some() {
            return Ok(vec![Vec::new()]);
        }
        let mut others: Vec<_> = ["--lib", "--bins"].map(str::to_owned).into();
        for name in test_programs().await?.into_iter().filter(|name| !LONG.contains(&name.as_str())) {
            others.extend(["--test".to_owned(), name]);
        }
        let mut lanes: Vec<_> = LONG.map(|name| vec!["--test".to_owned(), name.to_owned()]).into();
        // Cargo runs the examples of the documentation with nothing else.
        lanes.extend([others, vec!["--doc".to_owned()]]);
        Ok(lanes)
    }
}

/// The names of all programs of integration tests.
async fn test_programs() -> Result<BTreeSet<String>> {
    let mut command = podward_testbed::cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::inherit());
    let output = command.output().await.context("cannot start cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata ended with {}", output.status);
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("read what cargo metadata says")?;
    let targets = metadata.packages.into_iter().flat_map(|package| package.targets);
    Ok(targets
        .filter(|target| target.kind.iter().any(|kind| kind == "test"))
        .map(|target| target.name)
        .collect())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

/// Runs one `cargo test`, passes on what it prints, and tells `report` of it.
async fn run(command: &mut Command, report: &Mutex<Report>) -> Result<ExitStatus> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await.context("cannot read what the tests say")? {
            println!("{line}");
            report.lock().unwrap_or_else(PoisonError::into_inner).line(&line);
        }
    }
    child.wait().await.context("cannot wait for cargo test")
}
