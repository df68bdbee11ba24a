//! Podward as users install it: with Helm, from images of this workspace, with its services reached through Services.

mod replicas;

use std::{process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{EvictParams, ListParams, Patch, PatchParams},
};
use nix::sys::signal::Signal;
use podward_images::{ServiceImages, workspace_dir};
use podward_testbed::{TestCluster, TestClusterBuilder};
use serde_json::json;
use tokio::process::Command;

pub use self::replicas::{Replica, Replicas};
use crate::{
    cluster::Cluster,
    pods::is_ready,
    podward::{NAMESPACE, ServiceKind, WebhookCanary, until_reachable},
    wait::{WAIT, within},
    watched::await_condition,
};

const RELEASE: &str = "podward";
const CHART: &str = "charts/podward";
/// The timeout of a Helm command.
const HELM_TIMEOUT: &str = "3m";
const PAUSE: Duration = Duration::from_millis(100);
/// The Secret with the authority of the services' certificates.
const AUTHORITY: &str = "podward-ca";
/// The label that names the service of a pod.
const NAME_LABEL: &str = "app.kubernetes.io/name";
/// The message of the API server if a budget prevents an eviction.
const BUDGET: &str = "disruption budget";

/// A release of Podward on a test cluster with a real node. It ends with the cluster.
#[derive(Clone, Debug)]
pub struct Installation {
    cluster: Cluster,
    values: Vec<String>,
}

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSecurity {
    /// The level of an installation.
    Restricted,
    /// The level that the node-agent needs.
    Privileged,
}

impl PodSecurity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Privileged => "privileged",
        }
    }
}

impl Installation {
    /// The namespace of Podward.
    pub const NAMESPACE: &str = NAMESPACE;

    /// Adds what Podward needs to a test cluster: the images of its services, built in the cargo profile `profile`,
    /// and DNS.
    ///
    /// # Errors
    /// Fails if the images cannot be built.
    pub async fn prepare(builder: TestClusterBuilder, profile: &str) -> Result<TestClusterBuilder> {
        let images = ServiceImages::default().build(profile).await?;
        Ok(images.into_iter().fold(builder.dns(true), |builder, (_, image)| builder.image(image)))
    }

    /// Installs Podward as `docs/guides/installing.md` describes, with `values` for Helm's `--set`, and waits until
    /// it works.
    ///
    /// # Errors
    /// Fails if it does not work. The message contains the state of its pods.
    pub async fn install(cluster: &Cluster, values: &[&str]) -> Result<Self> {
        let images = ServiceImages::default();
        let mut all = vec![
            format!("global.image.registry={}", images.registry),
            format!("global.image.tag={}", images.tag),
            // The kube-proxy of a test cluster lets pods read its metrics.
            "traffic-controller.kubeProxyMetricsUrl=http://{node_ip}:10249/metrics".to_owned(),
            // Tests serve the webhooks of rules there. It is the address of the API server, too.
            format!("global.allowedAddresses[0]={}/32", cluster.service_address()),
        ];
        all.extend(values.iter().map(|value| (*value).to_owned()));
        let installation = Self { cluster: cluster.clone(), values: all };
        installation.install_again().await.map(|()| installation)
    }

    /// Installs the release again with the same values, after it was uninstalled.
    ///
    /// # Errors
    /// As for [`install`](Self::install).
    pub async fn install_again(&self) -> Result<()> {
        let installed = async {
            self.apply_namespace(PodSecurity::Restricted).await?;
            let arguments = ["install", RELEASE, CHART, "--wait", "--timeout", HELM_TIMEOUT];
            self.helm_with(&arguments, &[]).await?;
            self.until_ready().await
        };
        match installed.await {
            Ok(()) => Ok(()),
            // The cause comes first, because the rest is long.
            Err(error) => Err(anyhow!("{error:#}\n{}", self.diagnostics().await)),
        }
    }

    /// Creates the namespace, or changes what its pods may do.
    ///
    /// # Errors
    /// Fails if the API server refuses it.
    pub async fn apply_namespace(&self, level: PodSecurity) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client());
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": level.as_str()}},
        });
        let parameters = PatchParams::apply("podward-support").force();
        let made = namespaces.patch(NAMESPACE, &parameters, &Patch::Apply(&namespace)).await;
        made.map(drop).with_context(|| format!("make the namespace {NAMESPACE}"))
    }

    /// Upgrades the release to `values` in addition to those of the installation, and waits for the end.
    ///
    /// # Errors
    /// Fails if Helm fails.
    pub async fn upgrade(&self, values: &[&str]) -> Result<()> {
        self.helm_with(&["upgrade", RELEASE, CHART, "--wait", "--timeout", HELM_TIMEOUT], values)
            .await
            .map(drop)
    }

    /// Returns the cluster of the release.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the authority of the services' certificates, as PEM.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub async fn authority(&self) -> Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let secret = secrets.get(AUTHORITY).await.with_context(|| format!("read the Secret {AUTHORITY}"))?;
        let pem = secret.data.and_then(|mut data| data.remove("ca.crt"));
        let pem = pem.with_context(|| format!("the Secret {AUTHORITY} has no ca.crt"))?;
        String::from_utf8(pem.0).with_context(|| format!("read ca.crt of the Secret {AUTHORITY}"))
    }

    fn test_cluster(&self) -> Result<&Arc<TestCluster>> {
        self.cluster.test_cluster().context("Podward is installed on test clusters only")
    }

    /// Waits until the API server calls the webhooks, and the traffic-controller, if it is installed, is a hook.
    ///
    /// # Errors
    /// Fails if that takes too long.
    pub async fn until_ready(&self) -> Result<()> {
        self.until_webhooks_are_called().await?;
        let (client, hook) = (self.cluster.client(), ServiceKind::TrafficController.as_str());
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
        match deployments.get_opt(hook).await.with_context(|| format!("look for Deployment {hook}"))? {
            Some(_) => until_reachable(&client, hook).await,
            None => Ok(()),
        }
    }

    /// Waits until the API server calls the webhooks.
    ///
    /// # Errors
    /// Fails if that takes too long.
    pub async fn until_webhooks_are_called(&self) -> Result<()> {
        WebhookCanary::new(self.cluster.client()).until_called(WAIT).await
    }

    /// Scales a service to `replicas` pods, and waits until they are ready and no other pods of it exist.
    ///
    /// # Errors
    /// Fails if that takes too long.
    pub async fn scale(&self, kind: ServiceKind, replicas: i32) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let patch = json!({"spec": {"replicas": replicas}});
        let scaled = deployments.patch(kind.as_str(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        let generation = scaled.with_context(|| format!("scale Deployment {kind}"))?.metadata.generation;
        let is_scaled = |deployment: Option<&Deployment>| {
            let Some(status) = deployment.and_then(|deployment| deployment.status.as_ref()) else {
                return false;
            };
            status.observed_generation >= generation
                && status.replicas.unwrap_or_default() == replicas
                && status.ready_replicas.unwrap_or_default() == replicas
                && status.terminating_replicas.unwrap_or_default() == 0
        };
        let scaled = async {
            await_condition(deployments, kind.as_str(), is_scaled).await.context("watch a Deployment")?;
            // Some versions of Kubernetes do not count terminating pods.
            while self.pods(kind).await?.len() != usize::try_from(replicas).unwrap_or_default() {
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        };
        within(WAIT, || format!("{replicas} pods of {kind}"), scaled).await
    }

    /// Returns the pods of a service.
    ///
    /// # Errors
    /// Fails if they cannot be listed.
    pub async fn pods(&self, kind: ServiceKind) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let of_service = ListParams::default().labels(&format!("{NAME_LABEL}={kind}"));
        Ok(pods.list(&of_service).await.with_context(|| format!("list the pods of {kind}"))?.items)
    }

    /// Evicts a pod of a service, and waits until it is gone and its replacement is ready.
    ///
    /// # Errors
    /// Fails if something other than a disruption budget rejects the eviction, or it takes too long.
    pub async fn evict(&self, pod: &Pod) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let (name, service) = (pod.name_any(), pod.labels().get(NAME_LABEL).cloned().unwrap_or_default());
        let evicted = async {
            while let Err(error) = pods.evict(&name, &EvictParams::default()).await {
                let kube::Error::Api(status) = &error else { return Err(error.into()) };
                ensure!(status.code == 429 && status.message.contains(BUDGET), "{error}");
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        };
        within(WAIT, || format!("the eviction of pod {name}"), evicted).await?;
        let status = ["rollout", "status", &format!("deployment/{service}"), "--timeout=90s"];
        self.kubectl(&status).await.map(drop)
    }

    /// Kills the process of a service's pod, like a crash. The kubelet starts another one.
    ///
    /// # Errors
    /// Fails if the pod runs no container.
    pub async fn crash(&self, pod: &Pod) -> Result<()> {
        let killed = self.signal(&container_of(pod)?, Signal::SIGKILL).await;
        killed.with_context(|| format!("kill the process of pod {}", pod.name_any()))
    }

    /// Sends a signal to the process of a container.
    async fn signal(&self, container: &str, signal: Signal) -> Result<()> {
        let sent = self.test_cluster()?.signal_container(container, signal as i32).await;
        sent.with_context(|| format!("send {signal} to the container {container}"))
    }

    /// Waits until another process has replaced the one in `pod` and is ready.
    ///
    /// # Errors
    /// Fails if that takes too long.
    pub async fn until_restarted(&self, pod: &Pod) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let (name, before) = (pod.name_any(), restarts(pod));
        let is_back = |pod: Option<&Pod>| pod.is_some_and(|pod| restarts(pod) > before && is_ready(pod));
        let back = async { await_condition(pods, &name, is_back).await.map(drop).context("watch a pod") };
        within(WAIT, || format!("pod {name} to come back"), back).await
    }

    /// Runs helm in Podward's namespace and returns its output.
    ///
    /// # Errors
    /// Fails if helm fails. The message contains its output.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.run("helm", arguments).await
    }

    /// Runs kubectl in Podward's namespace and returns its output.
    ///
    /// # Errors
    /// Fails if kubectl fails. The message contains its output.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.run("kubectl", arguments).await
    }

    async fn helm_with(&self, arguments: &[&str], values: &[&str]) -> Result<String> {
        let values = self.values.iter().map(String::as_str).chain(values.iter().copied());
        let mut all = arguments.to_vec();
        all.extend(values.flat_map(|value| ["--set", value]));
        self.helm(&all).await
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let test_cluster = self.test_cluster()?;
        let mut command = Command::new(test_cluster.tools().bin(program));
        command.current_dir(workspace_dir()).env("KUBECONFIG", test_cluster.kubeconfig()).kill_on_drop(true);
        command.args(["--namespace", NAMESPACE]).args(arguments).stdin(Stdio::null());
        let asked = format!("{program} {}", arguments.join(" "));
        let output = command.output().await.with_context(|| format!("run {asked}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{asked} ended with {}: {}", output.status, text(&output.stderr));
        Ok(text(&output.stdout))
    }

    /// Returns information on a failure: pods, events, and the ends of the logs.
    pub async fn diagnostics(&self) -> String {
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
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

/// Returns the id of the container that a pod runs.
fn container_of(pod: &Pod) -> Result<String> {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
    let running = status.filter(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
    let id = running.and_then(|status| status.container_id.as_deref()?.strip_prefix("containerd://"));
    id.map(ToOwned::to_owned).with_context(|| format!("pod {} runs no container", pod.name_any()))
}
