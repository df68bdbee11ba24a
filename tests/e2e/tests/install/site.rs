//! The bed, with Podward installed by Helm.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use podward_support::{Cluster, DemoImages, Installation, WAIT, within};
use podward_testbed::{Bed, BedBuilder, Part, Shape, build_program, preflight, workspace_dir};
use tokio::process::Command;

/// Where Podward is.
pub(crate) const NAMESPACE: &str = Installation::NAMESPACE;
/// The services whose certificates are looked at.
const WEBHOOKS: [&str; 2] = ["mutating-webhook", "validating-webhook"];

pub(crate) struct Site {
    bed: Arc<Bed>,
    installation: Installation,
    /// kubectl's plugin.
    plugin: PathBuf,
    /// Of the demo server.
    pub(crate) image: String,
}

impl Site {
    /// Starts a bed and installs Podward, as `docs/installing.md` tells it.
    pub(crate) async fn open() -> Result<Self> {
        let missing = preflight(&Part::ALL, true);
        ensure!(missing.is_empty(), "{missing:?}");
        build_program("podward-testbed", "dev").await.context("build the keeper of beds")?;
        let plugin = build_program("kubectl-podward", "dev").await.context("build kubectl's plugin")?;
        let demo = DemoImages::default();
        let builder = Installation::prepare(Bed::builder(Shape::Node).name("install"), "dev").await?;
        let builder = demo.build("dev").await?.into_iter().fold(builder, BedBuilder::image);
        let bed = Arc::new(builder.start().await.context("start a bed of shape node")?);
        let cluster = Cluster::of_bed(bed.clone());
        match Installation::install(&cluster, &["lifecycle-controller.leaseDurationSeconds=5"]).await {
            Ok(installation) => Ok(Self { bed, installation, plugin, image: demo.v1 }),
            Err(error) => {
                end(&bed, true).await?;
                Err(error)
            }
        }
    }

    /// Installs Podward again, and waits until it is there.
    pub(crate) async fn install(&self) -> Result<()> {
        self.installation.install_again().await
    }

    pub(crate) fn client(&self) -> Client {
        self.bed.client()
    }

    /// Upgrades to other values, and waits until that is done.
    pub(crate) async fn upgrade(&self, values: &[&str]) -> Result<()> {
        self.installation.upgrade(values).await
    }

    /// Runs helm in Podward's namespace; gives what it prints.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.installation.helm(arguments).await
    }

    /// Runs kubectl in Podward's namespace; gives what it prints.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.installation.kubectl(arguments).await
    }

    /// Runs kubectl's plugin, which finds Podward by itself.
    pub(crate) async fn plugin(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.plugin);
        command.env("KUBECONFIG", self.bed.kubeconfig()).kill_on_drop(true).stdin(Stdio::null());
        command.args(arguments).output().await.with_context(|| format!("run {}", self.plugin.display()))
    }

    /// Runs a command line as somebody types it who has the bed's tools and the programs in `folder` at hand; gives what it prints.
    pub(crate) async fn shell(&self, line: &str, folder: &Path) -> Result<String> {
        let tools = self.bed.tools().bin("kubectl");
        let mut folders = vec![folder.to_owned()];
        folders.extend(tools.parent().map(Path::to_owned));
        folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", std::env::join_paths(folders)?);
        command.current_dir(workspace_dir()).env("KUBECONFIG", self.bed.kubeconfig()).kill_on_drop(true);
        let output = command.stdin(Stdio::null()).output().await.with_context(|| format!("run {line}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{line} ended with {}: {}", output.status, text(&output.stderr));
        Ok(text(&output.stdout))
    }

    /// The certificates of both webhooks, once each is another one than it was.
    pub(crate) async fn until_certificates_other_than(
        &self,
        were: &[Option<String>; 2],
    ) -> Result<[String; 2]> {
        let secrets: Api<Secret> = Api::namespaced(self.client(), NAMESPACE);
        let mut found = [String::new(), String::new()];
        for ((webhook, was), found) in WEBHOOKS.iter().zip(were).zip(&mut found) {
            let name = format!("{webhook}-tls");
            let certificate = |secret: &Secret| {
                let bytes = secret.data.as_ref()?.get("tls.crt")?;
                String::from_utf8(bytes.0.clone()).ok().filter(|text| Some(text) != was.as_ref())
            };
            let is_new = |secret: Option<&Secret>| secret.and_then(certificate).is_some();
            let wait = kube::runtime::wait::await_condition(secrets.clone(), &name, is_new);
            let patience = WAIT.max(Duration::from_secs(100));
            let secret = within(patience, || format!("a new certificate in Secret {name}"), async {
                wait.await.context("watch a Secret")
            });
            *found = secret.await?.as_ref().and_then(certificate).context("the Secret is gone")?;
        }
        Ok(found)
    }

    /// What helps to see why something failed.
    pub(crate) async fn evidence(&self) -> String {
        self.installation.last_words().await
    }

    /// Ends it. After a failure logs are kept.
    pub(crate) async fn end(&self, failed: bool) -> Result<()> {
        end(&self.bed, failed).await
    }
}

async fn end(bed: &Bed, failed: bool) -> Result<()> {
    if failed {
        bed.keep_logs();
        eprintln!("logs of the bed {} are kept in {}", bed.name(), bed.logs_dir().display());
    }
    bed.down().await.with_context(|| format!("end the bed {}", bed.name()))
}
