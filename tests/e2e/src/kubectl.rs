//! Runs kubectl.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use podward_images::build_program;
use podward_support::Cluster;
use tokio::process::Command;

/// The result of kubectl.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// The command line.
    pub asked: String,
    /// The exit code. 0 is success.
    pub code: Option<i32>,
    /// The output on both streams.
    pub said: String,
}

impl Kubectl {
    pub(crate) async fn run(
        cluster: &Cluster,
        user: Option<&Path>,
        namespace: &str,
        args: &[&str],
    ) -> Result<Self> {
        let program = cluster
            .test_cluster()
            .map_or_else(|| PathBuf::from("kubectl"), |test_cluster| test_cluster.tools().bin("kubectl"));
        let command = command(program, cluster, user, namespace, args)?;
        Self::run_command(command, format!("kubectl {}", args.join(" "))).await
    }

    /// Returns the command that runs Podward's plugin.
    pub(crate) async fn plugin(
        cluster: &Cluster,
        user: Option<&Path>,
        namespace: &str,
        args: &[&str],
    ) -> Result<Command> {
        let program = build_program("kubectl-podward", "dev").await.context("build kubectl's plugin")?;
        command(program, cluster, user, namespace, args)
    }

    /// Runs Podward's plugin.
    pub(crate) async fn run_plugin(
        cluster: &Cluster,
        user: Option<&Path>,
        namespace: &str,
        args: &[&str],
    ) -> Result<Self> {
        let command = Self::plugin(cluster, user, namespace, args).await?;
        Self::run_command(command, format!("kubectl podward {}", args.join(" "))).await
    }

    async fn run_command(mut command: Command, asked: String) -> Result<Self> {
        let output = command.output().await.with_context(|| format!("run {asked}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        Ok(Self { asked, code: output.status.code(), said })
    }

    /// Requires that the command succeeded.
    ///
    /// # Errors
    /// Fails if it did not.
    pub fn succeeded(self) -> Result<Self> {
        ensure!(self.code == Some(0), "{} ended with {:?}: {}", self.asked, self.code, self.said);
        Ok(self)
    }

    /// Requires that the API server responded with "too many requests", and that the output contains each of `texts`.
    ///
    /// # Errors
    /// Fails if it did not.
    pub fn was_held(self, texts: &[&str]) -> Result<Self> {
        ensure!(self.code == Some(1), "{} ended with {:?}: {}", self.asked, self.code, self.said);
        for text in ["TooManyRequests"].iter().chain(texts) {
            ensure!(self.said.contains(text), "the output of {} lacks {text:?}: {}", self.asked, self.said);
        }
        Ok(self)
    }
}

/// Returns a command for the cluster that ends with its handle.
fn command(
    program: PathBuf,
    cluster: &Cluster,
    user: Option<&Path>,
    namespace: &str,
    args: &[&str],
) -> Result<Command> {
    let kubeconfig = match cluster.test_cluster() {
        Some(test_cluster) => test_cluster.kubeconfig(),
        None => user.context("no kubeconfig")?,
    };
    let mut command = Command::new(program);
    // What follows `--` belongs to another program.
    let own = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
    let (own, others) = args.split_at(own);
    command.args(own).args(["--namespace", namespace]).args(others).env("KUBECONFIG", kubeconfig);
    command.stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}
