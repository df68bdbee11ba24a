//! kubectl, as people run it.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use podward_support::Cluster;
use podward_testbed::build_program;
use tokio::process::Command;

/// What kubectl came to.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// What it was asked.
    pub asked: String,
    /// With what it ended; 0 is success.
    pub code: Option<i32>,
    /// What it printed, on either stream.
    pub said: String,
}

impl Kubectl {
    pub(crate) async fn run(
        cluster: &Cluster,
        user: Option<&Path>,
        namespace: &str,
        args: &[&str],
    ) -> Result<Self> {
        let program =
            cluster.bed().map_or_else(|| PathBuf::from("kubectl"), |bed| bed.tools().bin("kubectl"));
        Self::run_program(program, "kubectl", cluster, user, namespace, args).await
    }

    /// Podward's plugin.
    pub(crate) async fn run_plugin(
        cluster: &Cluster,
        user: Option<&Path>,
        namespace: &str,
        args: &[&str],
    ) -> Result<Self> {
        let program = build_program("kubectl-podward", "dev").await.context("build kubectl's plugin")?;
        Self::run_program(program, "kubectl podward", cluster, user, namespace, args).await
    }

    async fn run_program(
        program: PathBuf,
        name: &str,
        cluster: &Cluster,
        user: Option<&Path>,
        namespace: &str,
        args: &[&str],
    ) -> Result<Self> {
        let kubeconfig = match cluster.bed() {
            Some(bed) => bed.kubeconfig(),
            None => user.context("no kubeconfig")?,
        };
        let mut command = Command::new(program);
        command.args(args).args(["--namespace", namespace]).env("KUBECONFIG", kubeconfig);
        let asked = format!("{name} {}", args.join(" "));
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
        let output = output.with_context(|| format!("run {asked}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        Ok(Self { asked, code: output.status.code(), said })
    }

    /// Wants it to have ended with success.
    ///
    /// # Errors
    /// When it didn't.
    pub fn succeeded(self) -> Result<Self> {
        ensure!(self.code == Some(0), "{} ended with {:?}: {}", self.asked, self.code, self.said);
        Ok(self)
    }

    /// Wants it to have been told "too many requests", and each of `texts` with that.
    ///
    /// # Errors
    /// When it wasn't.
    pub fn was_held(self, texts: &[&str]) -> Result<Self> {
        ensure!(self.code == Some(1), "{} ended with {:?}: {}", self.asked, self.code, self.said);
        for text in ["TooManyRequests"].iter().chain(texts) {
            ensure!(self.said.contains(text), "{} was not told {text:?}: {}", self.asked, self.said);
        }
        Ok(self)
    }
}
