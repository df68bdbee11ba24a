//! The bed, with Podward installed by Helm.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use podward_support::{DemoImages, ServiceImages, WAIT, within};
use podward_testbed::{Bed, Part, Shape, build_program, preflight, workspace_dir};
use tokio::process::Command;

/// Where Podward is.
pub(crate) const NAMESPACE: &str = "podward-system";
/// The services whose certificates are looked at.
const WEBHOOKS: [&str; 2] = ["mutating-webhook", "validating-webhook"];

pub(crate) struct Site {
    bed: Bed,
    values: Vec<String>,
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
        let (services, demo) = (ServiceImages::default(), DemoImages::default());
        let mut builder = Bed::builder(Shape::Node).name("install").dns(true);
        for (_, image) in services.build("dev").await? {
            builder = builder.image(image);
        }
        for image in demo.build("dev").await? {
            builder = builder.image(image);
        }
        let bed = builder.start().await.context("start a bed of shape node")?;
        let values = [
            format!("global.image.registry={}", services.registry),
            format!("global.image.tag={}", services.tag),
            "lifecycle-controller.leaseDurationSeconds=5".to_owned(),
        ];
        let site = Self { bed, values: values.to_vec(), plugin, image: demo.v1 };
        if let Err(error) = site.install().await {
            let evidence = site.evidence().await;
            site.end(true).await?;
            return Err(error.context(evidence));
        }
        Ok(site)
    }

    /// Installs Podward, and waits until it is there.
    pub(crate) async fn install(&self) -> Result<()> {
        let mut arguments =
            vec!["install", "podward", "charts/podward", "--create-namespace", "--wait", "--timeout", "3m"];
        arguments.extend(self.values());
        self.helm(&arguments).await.map(drop)
    }

    fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().flat_map(|value| ["--set", value])
    }

    pub(crate) fn client(&self) -> Client {
        self.bed.client()
    }

    /// Upgrades to other values, and waits until that is done.
    pub(crate) async fn upgrade(&self, values: &[&str]) -> Result<()> {
        let mut arguments = vec!["upgrade", "podward", "charts/podward", "--wait", "--timeout", "3m"];
        arguments.extend(self.values());
        arguments.extend(values.iter().flat_map(|value| ["--set", *value]));
        self.helm(&arguments).await.map(drop)
    }

    /// Runs helm in Podward's namespace; gives what it prints.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.run("helm", arguments).await
    }

    /// Runs kubectl in Podward's namespace; gives what it prints.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.run("kubectl", arguments).await
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
        self.output(command, line.to_owned()).await
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.bed.tools().bin(program));
        command.args(["--namespace", NAMESPACE]).args(arguments);
        self.output(command, format!("{program} {}", arguments.join(" "))).await
    }

    async fn output(&self, mut command: Command, asked: String) -> Result<String> {
        command.current_dir(workspace_dir()).env("KUBECONFIG", self.bed.kubeconfig()).kill_on_drop(true);
        command.stdin(Stdio::null());
        let output = command.output().await.with_context(|| format!("run {asked}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{asked} ended with {}: {}", output.status, text(&output.stderr));
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
        let mut all = Vec::new();
        for arguments in [
            &["get", "pods,secrets", "-o", "wide"][..],
            &["get", "events", "--sort-by=.lastTimestamp"],
            &["logs", "--prefix", "--tail=15", "--selector=app.kubernetes.io/part-of=podward"],
        ] {
            all.push(match self.kubectl(arguments).await {
                Ok(text) => text,
                Err(error) => format!("{error:#}"),
            });
        }
        all.join("\n")
    }

    /// Ends it. After a failure logs are kept.
    pub(crate) async fn end(&self, failed: bool) -> Result<()> {
        if failed {
            self.bed.keep_logs();
            eprintln!("logs of the bed {} are kept in {}", self.bed.name(), self.bed.logs_dir().display());
        }
        self.bed.down().await.with_context(|| format!("end the bed {}", self.bed.name()))
    }
}
