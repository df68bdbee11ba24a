//! kubectl, as people run it.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use podward_support::Cluster;
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
        let (program, kubeconfig) = match cluster.bed() {
            Some(bed) => (bed.tools().bin("kubectl"), bed.kubeconfig().to_owned()),
            None => (PathBuf::from("kubectl"), user.context("no kubeconfig")?.to_owned()),
        };
        let mut command = Command::new(program);
        command.args(["--namespace", namespace]).args(args).env("KUBECONFIG", kubeconfig);
        let asked = format!("kubectl {}", args.join(" "));
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
