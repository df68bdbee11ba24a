//! `cargo xtask test`: builds the programs of test clusters, then runs all tests.

mod report;

use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use podward_testbed::Part;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::{console, prepare};
use report::TestReport;

/// The packages and the names of tests that mostly wait, on clusters of their own. They run beside others.
const BESIDE: [(&str, &str); 2] = [("podward-install", "install"), ("podward-nodes", "nodes")];
/// The package and the name of the tests that keep all processors busy. They run after all others.
const LAST: (&str, &str) = ("podward-lifecycle", "lifecycle");

/// Run all tests, including those that need a real cluster.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Run the tests that need a cluster against the cluster of this kubeconfig (kind, k3d, cloud) instead of starting
    /// test clusters
    #[arg(long, value_name = "FILE", env = "PODWARD_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Run only tests whose name contains this text
    filter: Option<String>,
}

impl Test {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let mut environment = Vec::new();
        if let Some(file) = &self.kubeconfig {
            // Each test program runs in the folder of its package, so a relative path would not work.
            let file = file.canonicalize().with_context(|| format!("no kubeconfig {}", file.display()))?;
            environment.push(("PODWARD_KUBECONFIG", file.into_os_string()));
        } else {
            let parts = [&Part::ALL[..], &Part::REGISTRIES].concat();
            let supervisor = prepare::test_cluster(&parts, true).await?.supervisor;
            environment.push(("PODWARD_TESTBED_BIN", supervisor.into_os_string()));
            // Clusters inherit it. Collecting garbage takes a sixth of the CPU time of an API server otherwise.
            environment.push(("GOGC", "300".into()));
        }
        let cargo_test = |arguments: &[&str]| {
            let mut command = podward_images::cargo();
            command.envs(environment.clone()).args(["test", "--workspace", "--no-fail-fast"]).args(arguments);
            command
        };
        let built = console::run(&mut cargo_test(&["--no-run"]), "cargo test").await?;
        ensure!(built.success(), "a crate does not build; see the messages above");

        // By its name and not by its package: other features would be built.
        let filter = Vec::from_iter(self.filter.as_deref());
        let others = BESIDE.iter().chain([&LAST]);
        let most = others.flat_map(|(package, _)| ["--exclude", package]).chain(filter.clone());
        let beside = BESIDE.iter().flat_map(|(_, name)| ["--test", name]).chain(filter.clone());
        let last = ["--test", LAST.1].into_iter().chain(filter);
        let mut beside_lines = Vec::new();
        let mut report = TestReport::default();
        let mut tell = |line: String| {
            println!("{line}");
            report.line(&line);
        };
        let (most, beside) = tokio::try_join!(
            read_lines(cargo_test(&Vec::from_iter(most)), &mut tell),
            read_lines(cargo_test(&Vec::from_iter(beside)), |line| beside_lines.push(line)),
        )?;
        beside_lines.into_iter().for_each(&mut tell);
        let last = read_lines(cargo_test(&Vec::from_iter(last)), &mut tell).await?;
        println!("\n{report}");
        let Some(status) = [most, beside, last].into_iter().find(|status| !status.success()) else {
            // A misspelled filter must not look like a success.
            ensure!(!report.is_empty(), "no test name contains {:?}", self.filter.unwrap_or_default());
            return Ok(ExitCode::SUCCESS);
        };
        // Without this, the summary would say "0 failed".
        ensure!(
            report.has_failed(),
            "cargo test ended with {status}: a test program crashed; see the messages above"
        );
        Ok(ExitCode::FAILURE)
    }
}

/// Runs `command`, and hands the lines of its output to `handle`.
async fn read_lines(mut command: Command, mut handle: impl FnMut(String)) -> Result<ExitStatus> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await.context("cannot read the output of cargo test")? {
            handle(line);
        }
    }
    child.wait().await.context("cannot wait for cargo test")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use podward_images::workspace_dir;

    fn has_tests(folder: &Path) -> bool {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
            if path.is_dir() {
                return has_tests(&path);
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.lines().any(|line| matches!(line.trim(), "#[test]" | "#[tokio::test]"))
        })
    }

    #[test]
    fn no_crate_switches_its_unit_tests_off() {
        let mut skipped = Vec::new();
        for folder in ["crates", "tests"] {
            for package in fs::read_dir(workspace_dir().join(folder)).unwrap() {
                let package = package.unwrap().path();
                let Ok(manifest) = fs::read_to_string(package.join("Cargo.toml")) else { continue };
                let library = manifest.split("\n[").find(|part| part.starts_with("lib]"));
                if library.is_some_and(|part| part.contains("\ntest = false"))
                    && has_tests(&package.join("src"))
                {
                    skipped.push(package);
                }
            }
        }
        assert_eq!(skipped, [""; 0].map(std::path::PathBuf::from));
    }
}
