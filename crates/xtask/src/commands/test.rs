//! `cargo xtask test`: builds the programs of test clusters, then runs all tests.

mod report;

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use podward_testbed::Part;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::prepare;
use report::TestReport;

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
        let mut command = podward_images::cargo();
        if let Some(file) = &self.kubeconfig {
            // Each test program runs in the folder of its package, so a relative path would not work.
            let file = file.canonicalize().with_context(|| format!("no kubeconfig {}", file.display()))?;
            command.env("PODWARD_KUBECONFIG", file);
        } else {
            let parts = [&Part::ALL[..], &Part::REGISTRIES].concat();
            command.env("PODWARD_TESTBED_BIN", prepare::test_cluster(&parts, true).await?.supervisor);
        }
        command.args(["test", "--workspace", "--no-fail-fast"]).args(&self.filter);
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
        let mut report = TestReport::default();
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            while let Some(line) = lines.next_line().await.context("cannot read the output of cargo test")? {
                println!("{line}");
                report.line(&line);
            }
        }
        let status = child.wait().await.context("cannot wait for cargo test")?;
        println!("\n{report}");
        if status.success() {
            // A misspelled filter must not look like a success.
            ensure!(!report.is_empty(), "no test name contains {:?}", self.filter.unwrap_or_default());
            return Ok(ExitCode::SUCCESS);
        }
        // Without this, the summary would say "0 failed".
        ensure!(
            report.has_failed(),
            "cargo test ended with {status}: a crate does not build, or a test program crashed; see the messages above"
        );
        Ok(ExitCode::FAILURE)
    }
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
