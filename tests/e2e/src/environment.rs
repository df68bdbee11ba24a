//! The clusters of a test run. Each is started when the first test needs it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use podward_images::build_program;
use podward_images::{DemoImages, QueueWorkerImage};
use podward_support::demo::cloneset::WITH_CLONESETS;
use podward_support::demo::registry::WITH_BRIDGE;
use podward_support::{Cluster, Installation, PodwardOptions, Replicas, ServiceKind};
use podward_testbed::{Part, Shape, TestCluster, TestClusterBuilder, ToolsError, preflight};
use tokio::sync::{OnceCell, RwLock};

use crate::{collector::Collector, podward::Podward};

/// The variable with the kubeconfig of a cluster to use instead of a test cluster of shape `node`.
const KUBECONFIG: &str = "PODWARD_KUBECONFIG";
/// The time that a killed controller keeps its Lease, in seconds. It is short, because tests wait for it.
const LEASE_SECONDS: u32 = 4;
/// The time that operations wait for busy pods on simulated nodes, in seconds. It is short, because a test waits for
/// it. On the real node it has its default.
pub const MAX_BUSY_SECONDS: u32 = 8;
/// The cargo profile of the tested programs.
const PROFILE: &str = "dev";

/// Returns the kubeconfig of an existing cluster, if the tests use one.
pub(crate) fn user_cluster() -> Option<PathBuf> {
    std::env::var_os(KUBECONFIG).map(PathBuf::from)
}

/// A cluster with Podward.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) cluster: Cluster,
    pub(crate) running: RunningPodward,
    pub(crate) images: DemoImages,
    /// The collector of the traces of Podward's services, if the cluster has one.
    pub(crate) collector: Option<Collector>,
    /// Tests that share Podward hold it for reading. Tests that disturb Podward hold it for writing.
    pub(crate) access: RwLock<()>,
}

/// The way in which Podward runs.
#[derive(Debug)]
pub(crate) enum RunningPodward {
    /// The services are managed one by one, for tests that stop and start them.
    Divided(Podward),
    /// Installed with Helm, for tests that change the installation.
    Whole(Installation),
}

impl RunningPodward {
    /// Returns information on what the services did.
    pub(crate) async fn diagnostics(&self) -> String {
        match self {
            Self::Divided(podward) => podward.diagnostics().await,
            Self::Whole(installation) => installation.diagnostics().await,
        }
    }
}

/// The environment that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestPlace {
    /// A real node with Podward installed with Helm, without the traffic-controller; or an existing cluster.
    Node,
    /// Simulated nodes, and Podward with `--strict`, which tries deletions in the name of their requesters, and with
    /// `--drop-managed-fields`.
    Simulated,
    /// A real node with all services of Podward installed with Helm. Services hold pods.
    Serving,
    /// The same with three real nodes and two API servers. The kubelet and the kube-proxy of node3 use the second API
    /// server. Podward runs on node1.
    Nodes,
}

static NODE: EnvironmentSlot = EnvironmentSlot::new();
static SIMULATED: EnvironmentSlot = EnvironmentSlot::new();
static SERVING: EnvironmentSlot = EnvironmentSlot::new();
static NODES: EnvironmentSlot = EnvironmentSlot::new();

/// An environment that is started once. A failure is stored, so that the next tests do not wait for it again.
struct EnvironmentSlot(OnceCell<Result<Arc<Environment>, String>>);

impl EnvironmentSlot {
    const fn new() -> Self {
        Self(OnceCell::const_new())
    }
}

impl Environment {
    /// Returns the environment, and starts it if necessary.
    pub(crate) async fn get(place: TestPlace) -> Result<Arc<Self>> {
        let slot = match place {
            TestPlace::Node => &NODE,
            TestPlace::Simulated => &SIMULATED,
            TestPlace::Serving => &SERVING,
            TestPlace::Nodes => &NODES,
        };
        let started = slot.0.get_or_init(|| async {
            let started = match place {
                TestPlace::Node => Self::start_node().await,
                TestPlace::Simulated => Self::start_simulated().await,
                TestPlace::Serving => Self::start_serving().await,
                TestPlace::Nodes => Self::start_nodes().await,
            };
            started.map(Arc::new).map_err(|error| format!("{error:#}"))
        });
        started.await.clone().map_err(|error| anyhow::anyhow!("no cluster to test on: {error}"))
    }

    /// Returns the environments that were started.
    pub(crate) fn started() -> impl Iterator<Item = Arc<Self>> {
        [&NODE, &SIMULATED, &SERVING, &NODES]
            .into_iter()
            .filter_map(|slot| slot.0.get()?.as_ref().ok().cloned())
    }

    /// Starts the environment in which only the tests' own consumers hold pods.
    async fn start_node() -> Result<Self> {
        match user_cluster() {
            Some(kubeconfig) => Self::start_beside(&kubeconfig).await,
            None => Self::start_installed().await,
        }
    }

    async fn start_installed() -> Result<Self> {
        let images = DemoImages::default();
        let worker = QueueWorkerImage::default().build(PROFILE).await?;
        let cluster = cluster_to_install_on("e2e-node", &images, |builder| builder.image(worker)).await?;
        let collector = Collector::start(&cluster).await.context("start a collector of traces")?;
        let endpoint = format!("global.tracing.endpoint={}", collector.url());
        // Helm separates values at commas.
        let log = PodwardOptions::default().log.replace(',', r"\,");
        let log = format!("global.defaults.log.level={log}");
        let lease = lease_value();
        let values = [
            endpoint.as_str(),
            &log,
            &lease,
            "traffic-controller.enabled=false",
            // With one replica, a webhook is down when its pod is.
            "mutating-webhook.replicas=1",
            "validating-webhook.replicas=1",
            // Services stop at once when they are told to, because tests measure how soon another replica takes over.
            "global.defaults.drain.delaySeconds=0",
            // The CA of the cluster, which issues client certificates.
            "lifecycle-controller.extraArgs={--client-ca=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt}",
        ];
        let installed = async {
            let installation = Installation::install(&cluster, &values).await?;
            Replicas::of(installation).await
        };
        let podward = kept(&cluster, installed.await.map(Podward::Installed))?;
        Ok(Self { collector: Some(collector), ..Self::with(podward, images) })
    }

    async fn start_beside(kubeconfig: &Path) -> Result<Self> {
        let images = DemoImages::default();
        eprintln!("{}", images.how_to_load());
        let cluster = Cluster::existing(kubeconfig, None).await?;
        let collector = Collector::start(&cluster).await.context("start a collector of traces")?;
        let kinds =
            [ServiceKind::MutatingWebhook, ServiceKind::ValidatingWebhook, ServiceKind::LifecycleController];
        let options = PodwardOptions {
            controllers: 2,
            traffic_controllers: 0,
            lease_seconds: LEASE_SECONDS,
            more: kinds.map(|kind| (kind, format!("--otlp-endpoint={}", collector.url()))).to_vec(),
            ..PodwardOptions::default()
        };
        let environment = Self::with_processes(cluster, options, images).await?;
        Ok(Self { collector: Some(collector), ..environment })
    }

    async fn start_serving() -> Result<Self> {
        let images = DemoImages::default();
        let cluster =
            cluster_to_install_on("e2e-serving", &images, |builder| builder.audit_log(true)).await?;
        let collector = Collector::start(&cluster).await.context("start a collector of traces")?;
        let endpoint = format!("global.tracing.endpoint={}", collector.url());
        let lease = lease_value();
        let values = [
            lease.as_str(),
            endpoint.as_str(),
            "traffic-controller.waits.dnsTtlSeconds=4",
            "traffic-controller.waits.surgeWaitSeconds=20",
            WITH_BRIDGE,
            WITH_CLONESETS,
        ];
        let installed = Installation::install(&cluster, &values).await;
        let running = kept(&cluster, installed.map(RunningPodward::Whole))?;
        Ok(Self { cluster, running, images, collector: Some(collector), access: RwLock::default() })
    }

    async fn start_nodes() -> Result<Self> {
        let images = DemoImages::default();
        let described =
            |builder: TestClusterBuilder| builder.nodes(3).api_servers(2).second_api_server("node3");
        let cluster = cluster_to_install_on("e2e-nodes", &images, described).await?;
        let on_first = r"global.defaults.nodeSelector.kubernetes\.io/hostname=node1";
        let installed = Installation::install(&cluster, &[&lease_value(), on_first]).await;
        let running = kept(&cluster, installed.map(RunningPodward::Whole))?;
        Ok(Self { cluster, running, images, collector: None, access: RwLock::default() })
    }

    async fn start_simulated() -> Result<Self> {
        require(&[Part::ControlPlane, Part::Kwok]).await?;
        let test_cluster = TestCluster::builder(Shape::Simulated).name("e2e-simulated").start().await;
        let cluster = Cluster::of_test_cluster(Arc::new(
            test_cluster.context("start a test cluster of shape simulated")?,
        ));
        let collector = Collector::start(&cluster).await.context("start a collector of traces")?;
        let traced = |kind| (kind, format!("--otlp-endpoint={}", collector.url()));
        let options = PodwardOptions {
            strict: true,
            check_deletes_as_requester: true,
            controllers: 2,
            // A usual setting. On the real node deletes are answered at once.
            wait_seconds: 3,
            traffic_controllers: 0,
            bridges: 2,
            cloneset_controllers: 2,
            lease_seconds: LEASE_SECONDS,
            more: vec![
                (ServiceKind::LifecycleController, format!("--max-busy={MAX_BUSY_SECONDS}")),
                // The pods of all other environments have managed fields.
                (ServiceKind::MutatingWebhook, "--drop-managed-fields".to_owned()),
                traced(ServiceKind::LifecycleController),
                traced(ServiceKind::ServiceDiscoveryBridge),
                traced(ServiceKind::ClonesetController),
            ],
            ..PodwardOptions::default()
        };
        let environment = Self::with_processes(cluster, options, DemoImages::default()).await?;
        Ok(Self { collector: Some(collector), ..environment })
    }

    async fn with_processes(cluster: Cluster, options: PodwardOptions, images: DemoImages) -> Result<Self> {
        let started = podward_support::Podward::start(&cluster, options).await;
        let podward = kept(&cluster, started.map(Box::new).map(Podward::Processes))?;
        Ok(Self::with(podward, images))
    }

    fn with(podward: Podward, images: DemoImages) -> Self {
        let (cluster, running) = (podward.cluster().clone(), RunningPodward::Divided(podward));
        Self { cluster, running, images, collector: None, access: RwLock::default() }
    }

    /// Ends the environment. After a failure it keeps the logs and prints their folder.
    pub(crate) async fn end(&self, failed: bool) -> Result<()> {
        if failed && let Some(test_cluster) = self.cluster.test_cluster() {
            test_cluster.keep_logs();
            eprintln!(
                "logs of the test cluster {} are kept in {}",
                test_cluster.name(),
                test_cluster.logs_dir().display()
            );
        }
        match (self.cluster.test_cluster(), &self.running) {
            (Some(test_cluster), _) => test_cluster
                .down()
                .await
                .with_context(|| format!("end the test cluster {}", test_cluster.name())),
            (None, RunningPodward::Divided(Podward::Processes(podward))) => podward.shutdown().await,
            (None, _) => Ok(()),
        }
    }
}

/// Keeps the logs of a cluster on which Podward did not start.
fn kept<T>(cluster: &Cluster, started: Result<T>) -> Result<T> {
    if started.is_err()
        && let Some(test_cluster) = cluster.test_cluster()
    {
        test_cluster.keep_logs();
    }
    started.with_context(|| format!("start Podward; logs are in {}", cluster.logs_dir().display()))
}

/// Returns the duration of the Lease as a value of the chart.
fn lease_value() -> String {
    format!("lifecycle-controller.leaseDurationSeconds={LEASE_SECONDS}")
}

/// Starts a test cluster with real nodes that have the images of Podward and of the demo, as `described`.
async fn cluster_to_install_on(
    name: &str,
    images: &DemoImages,
    described: impl FnOnce(TestClusterBuilder) -> TestClusterBuilder,
) -> Result<Cluster> {
    require(&Part::ALL).await?;
    let demo = images.build(PROFILE).await?;
    let builder = described(TestCluster::builder(Shape::Node).name(name));
    let builder =
        Installation::prepare(demo.into_iter().fold(builder, TestClusterBuilder::image), PROFILE).await?;
    Ok(Cluster::of_test_cluster(Arc::new(
        builder.start().await.context("start a test cluster of shape node")?,
    )))
}

/// Checks all requirements of a test cluster and builds the supervisor program.
async fn require(parts: &[Part]) -> Result<()> {
    let missing = preflight(parts, true);
    if !missing.is_empty() {
        return Err(ToolsError::Missing(missing).into());
    }
    build_program("podward-testbed", "dev").await.context("build the supervisor of test clusters")?;
    Ok(())
}
