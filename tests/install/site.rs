//! The test cluster with Podward installed with Helm.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, Client};
use podward_core::webhook_path::PathSecret;
use podward_e2e::ReachableWebhook;
use podward_images::{DemoImages, ServiceImages, build_program, workspace_dir};
use podward_support::{Cluster, Installation, ServiceKind, WAIT, pods::is_ready, webhook_paths, within};
use podward_testbed::{Part, Shape, TestCluster, TestClusterBuilder, preflight};
use tokio::process::Command;

/// The namespace of Podward.
pub(crate) const NAMESPACE: &str = Installation::NAMESPACE;
/// The services whose certificates are checked.
const WEBHOOKS: [&str; 2] = ["mutating-webhook", "validating-webhook"];

pub(crate) struct Site {
    test_cluster: Arc<TestCluster>,
    installation: Installation,
    /// The path of the plugin of kubectl.
    plugin: PathBuf,
    /// The image of the demo server.
    pub(crate) image: String,
}

impl Site {
    /// Starts a test cluster and installs Podward, as `docs/guides/installing.md` describes.
    pub(crate) async fn open() -> Result<Self> {
        let missing = preflight(&Part::ALL, true);
        ensure!(missing.is_empty(), "{missing:?}");
        build_program("podward-testbed", "dev").await.context("build the supervisor of test clusters")?;
        let plugin = build_program("kubectl-podward", "dev").await.context("build kubectl's plugin")?;
        let demo = DemoImages::default();
        let builder =
            Installation::prepare(TestCluster::builder(Shape::Node).name("install").audit_log(true), "dev")
                .await?;
        let builder = demo.build("dev").await?.into_iter().fold(builder, TestClusterBuilder::image);
        let test_cluster = Arc::new(builder.start().await.context("start a test cluster of shape node")?);
        let cluster = Cluster::of_test_cluster(test_cluster.clone());
        match Installation::install(&cluster, &["lifecycle-controller.leaseDurationSeconds=5"]).await {
            Ok(installation) => Ok(Self { test_cluster, installation, plugin, image: demo.v1 }),
            Err(error) => {
                end(&test_cluster, true).await?;
                Err(error)
            }
        }
    }

    /// Returns the image of a webhook, as `helm install` was told.
    pub(crate) fn webhook_image(&self) -> String {
        let ServiceImages { registry, tag } = ServiceImages::default();
        format!("validating-webhook ({registry}/podward/validating-webhook:{tag})")
    }

    /// Installs Podward again, and waits until it works.
    pub(crate) async fn install(&self) -> Result<()> {
        self.installation.install_again().await
    }

    pub(crate) fn client(&self) -> Client {
        self.test_cluster.client()
    }

    /// Upgrades to other values, and waits for the end.
    pub(crate) async fn upgrade(&self, values: &[&str]) -> Result<()> {
        self.installation.upgrade(values).await
    }

    /// Returns the file of the API server's audit log.
    pub(crate) fn audit_log(&self) -> Option<PathBuf> {
        self.test_cluster.audit_log()
    }

    /// Runs helm in Podward's namespace and returns its output.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.installation.helm(arguments).await
    }

    /// Runs kubectl in Podward's namespace and returns its output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.installation.kubectl(arguments).await
    }

    /// Runs the plugin of kubectl. It finds Podward's namespace by itself.
    pub(crate) async fn plugin(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.plugin);
        command.env("KUBECONFIG", self.test_cluster.kubeconfig()).kill_on_drop(true).stdin(Stdio::null());
        command.args(arguments).output().await.with_context(|| format!("run {}", self.plugin.display()))
    }

    /// Runs a command line as a user types it, with the test cluster's tools and the programs in `folder` on the
    /// path. Returns its output.
    pub(crate) async fn shell(&self, line: &str, folder: &Path) -> Result<String> {
        let tools = self.test_cluster.tools().bin("kubectl");
        let mut folders = vec![folder.to_owned()];
        folders.extend(tools.parent().map(Path::to_owned));
        folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", std::env::join_paths(folders)?);
        command
            .current_dir(workspace_dir())
            .env("KUBECONFIG", self.test_cluster.kubeconfig())
            .kill_on_drop(true);
        let output = command.stdin(Stdio::null()).output().await.with_context(|| format!("run {line}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{line} ended with {}: {}", output.status, text(&output.stderr));
        Ok(text(&output.stdout))
    }

    /// Waits until the certificates of both webhooks have changed, and returns them.
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
            let wait = podward_support::await_condition(secrets.clone(), &name, is_new);
            let patience = WAIT.max(Duration::from_secs(100));
            let secret = within(patience, || format!("a new certificate in Secret {name}"), async {
                wait.await.context("watch a Secret")
            });
            *found = secret.await?.as_ref().and_then(certificate).context("the Secret is gone")?;
        }
        Ok(found)
    }

    /// Returns the secret that the webhook configurations use in their paths.
    pub(crate) async fn path(&self) -> Result<PathSecret> {
        Ok(webhook_paths(self.client()).await?.current)
    }

    /// Returns all replicas of both webhooks.
    pub(crate) async fn webhooks(&self) -> Result<Vec<ReachableWebhook>> {
        let ca = self.installation.authority().await?;
        let mut all = Vec::new();
        for kind in [ServiceKind::MutatingWebhook, ServiceKind::ValidatingWebhook] {
            for pod in
                self.installation.pods(kind).await?.iter().filter(|pod| is_ready(pod) && !is_leaving(pod))
            {
                let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
                let address = address.context("a pod without an address")?.parse()?;
                let (cluster, server_name) =
                    (self.installation.cluster().clone(), format!("{kind}.{NAMESPACE}.svc"));
                all.push(ReachableWebhook {
                    cluster,
                    address: SocketAddr::new(address, 9443),
                    ca: ca.clone(),
                    server_name,
                });
            }
        }
        Ok(all)
    }

    /// Returns information on a failure.
    pub(crate) async fn evidence(&self) -> String {
        self.installation.diagnostics().await
    }

    /// Ends the test cluster. After a failure it keeps the logs.
    pub(crate) async fn end(&self, failed: bool) -> Result<()> {
        end(&self.test_cluster, failed).await
    }
}

/// Returns true if a pod is being deleted. It can be Ready until its end.
fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

async fn end(test_cluster: &TestCluster, failed: bool) -> Result<()> {
    if failed {
        test_cluster.keep_logs();
        eprintln!(
            "logs of the test cluster {} are kept in {}",
            test_cluster.name(),
            test_cluster.logs_dir().display()
        );
    }
    test_cluster.down().await.with_context(|| format!("end the test cluster {}", test_cluster.name()))
}
