//! The clusters of a test run. Each is started when the first test wants it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use podward_support::{Cluster, DemoImages, Installation, Kind, Options, Replicas, WorkerImage};
use podward_testbed::{Bed, BedBuilder, Image, Part, Shape, ToolsError, build_program, preflight};
use tokio::sync::{OnceCell, RwLock};

use crate::{collector::Collector, podward::Podward};

/// Names the cluster to use instead of a `node` bed.
const KUBECONFIG: &str = "PODWARD_KUBECONFIG";
/// How long a killed controller keeps its lease. Short, since tests wait for it.
const LEASE_SECONDS: u32 = 4;
/// How long operations wait for busy pods on simulated nodes. Short, since a test waits for it; on the real node it is as by default.
pub const MAX_BUSY_SECONDS: u32 = 8;
/// The cargo profile of what is tested.
const PROFILE: &str = "dev";

/// The cluster of the user, if the tests are to use one.
pub(crate) fn user_cluster() -> Option<PathBuf> {
    std::env::var_os(KUBECONFIG).map(PathBuf::from)
}

/// A cluster with Podward on it.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) cluster: Cluster,
    pub(crate) running: Running,
    pub(crate) images: DemoImages,
    /// Gets the traces of Podward's services, where there is one.
    pub(crate) collector: Option<Collector>,
    /// Held for reading by tests that share Podward, for writing by those that disturb it.
    pub(crate) access: RwLock<()>,
}

/// How Podward runs.
#[derive(Debug)]
pub(crate) enum Running {
    /// Its services are there one by one, for tests that end and start them.
    Divided(Podward),
    /// Installed by Helm, for tests that change what they like about it.
    Whole(Installation),
}

impl Running {
    /// What helps to see what its services did.
    pub(crate) async fn last_words(&self) -> String {
        match self {
            Self::Divided(podward) => podward.last_words().await,
            Self::Whole(installation) => installation.last_words().await,
        }
    }
}

/// What a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// A real node with Podward installed by Helm, without the traffic-controller; or the cluster of the user.
    Node,
    /// Simulated nodes, and Podward with `--strict`.
    Simulated,
    /// A real node with all services of Podward installed by Helm: Services hold pods.
    Serving,
}

static NODE: Slot = Slot::new();
static SIMULATED: Slot = Slot::new();
static SERVING: Slot = Slot::new();

/// Started once; a failure is remembered, so that it isn't waited for again by every test.
struct Slot(OnceCell<Result<Arc<Environment>, String>>);

impl Slot {
    const fn new() -> Self {
        Self(OnceCell::const_new())
    }
}

impl Environment {
    /// The environment, started if it wasn't.
    pub(crate) async fn get(place: Where) -> Result<Arc<Self>> {
        let slot = match place {
            Where::Node => &NODE,
            Where::Simulated => &SIMULATED,
            Where::Serving => &SERVING,
        };
        let started = slot.0.get_or_init(|| async {
            let started = match place {
                Where::Node => Self::start_node().await,
                Where::Simulated => Self::start_simulated().await,
                Where::Serving => Self::start_serving().await,
            };
            started.map(Arc::new).map_err(|error| format!("{error:#}"))
        });
        started.await.clone().map_err(|error| anyhow::anyhow!("no cluster to test on: {error}"))
    }

    /// The environments that were started.
    pub(crate) fn started() -> impl Iterator<Item = Arc<Self>> {
        [&NODE, &SIMULATED, &SERVING].into_iter().filter_map(|slot| slot.0.get()?.as_ref().ok().cloned())
    }

    /// Pods are held by whom the tests say, and by nobody else.
    async fn start_node() -> Result<Self> {
        match user_cluster() {
            Some(kubeconfig) => Self::start_beside(&kubeconfig).await,
            None => Self::start_installed().await,
        }
    }

    async fn start_installed() -> Result<Self> {
        let images = DemoImages::default();
        let worker = WorkerImage::default().build(PROFILE).await?;
        let cluster = bed_to_install_on("e2e-node", &images, vec![worker], false).await?;
        let collector = Collector::start(&cluster).await.context("start a collector of traces")?;
        let endpoint = format!("global.tracing.endpoint={}", collector.url());
        // Commas part values.
        let log = Options::default().log.replace(',', r"\,");
        let log = format!("global.defaults.log.level={log}");
        let lease = lease_value();
        let values = [
            endpoint.as_str(),
            &log,
            &lease,
            "traffic-controller.enabled=false",
            // So that a webhook is away when its pod is.
            "mutating-webhook.replicas=1",
            "validating-webhook.replicas=1",
            // A service that is told to end does so at once: it is measured how soon another takes over.
            "global.defaults.drain.delaySeconds=0",
            // That of the cluster, which has certificates for clients.
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
        let kinds = [Kind::MutatingWebhook, Kind::ValidatingWebhook, Kind::LifecycleController];
        let options = Options {
            controllers: 2,
            traffic_controllers: 0,
            lease_seconds: LEASE_SECONDS,
            more: kinds.map(|kind| (kind, format!("--otlp-endpoint={}", collector.url()))).to_vec(),
            ..Options::default()
        };
        let environment = Self::with_processes(cluster, options, images).await?;
        Ok(Self { collector: Some(collector), ..environment })
    }

    async fn start_serving() -> Result<Self> {
        let images = DemoImages::default();
        let cluster = bed_to_install_on("e2e-serving", &images, Vec::new(), true).await?;
        let lease = lease_value();
        let waits =
            ["traffic-controller.waits.dnsTtlSeconds=4", "traffic-controller.waits.surgeWaitSeconds=20"];
        let installed = Installation::install(&cluster, &[&lease, waits[0], waits[1]]).await;
        let running = kept(&cluster, installed.map(Running::Whole))?;
        Ok(Self { cluster, running, images, collector: None, access: RwLock::default() })
    }

    async fn start_simulated() -> Result<Self> {
        require(&[Part::ControlPlane, Part::Kwok]).await?;
        let bed = Bed::builder(Shape::Simulated).name("e2e-simulated").start().await;
        let cluster = Cluster::of_bed(Arc::new(bed.context("start a bed of shape simulated")?));
        let options = Options {
            strict: true,
            controllers: 2,
            // As people may have it; on the real node deletes are answered at once.
            wait_seconds: 3,
            traffic_controllers: 0,
            lease_seconds: LEASE_SECONDS,
            more: vec![(Kind::LifecycleController, format!("--max-busy={MAX_BUSY_SECONDS}"))],
            ..Options::default()
        };
        Self::with_processes(cluster, options, DemoImages::default()).await
    }

    async fn with_processes(cluster: Cluster, options: Options, images: DemoImages) -> Result<Self> {
        let started = podward_support::Podward::start(&cluster, options).await;
        let podward = kept(&cluster, started.map(Box::new).map(Podward::Processes))?;
        Ok(Self::with(podward, images))
    }

    fn with(podward: Podward, images: DemoImages) -> Self {
        let (cluster, running) = (podward.cluster().clone(), Running::Divided(podward));
        Self { cluster, running, images, collector: None, access: RwLock::default() }
    }

    /// Ends it. After a failure logs are kept, and said where.
    pub(crate) async fn end(&self, failed: bool) -> Result<()> {
        if failed && let Some(bed) = self.cluster.bed() {
            bed.keep_logs();
            eprintln!("logs of the bed {} are kept in {}", bed.name(), bed.logs_dir().display());
        }
        match (self.cluster.bed(), &self.running) {
            (Some(bed), _) => bed.down().await.with_context(|| format!("end the bed {}", bed.name())),
            (None, Running::Divided(Podward::Processes(podward))) => podward.shutdown().await,
            (None, _) => Ok(()),
        }
    }
}

/// Keeps the logs of a cluster on which Podward didn't start.
fn kept<T>(cluster: &Cluster, started: Result<T>) -> Result<T> {
    if started.is_err()
        && let Some(bed) = cluster.bed()
    {
        bed.keep_logs();
    }
    started.with_context(|| format!("start Podward; logs are in {}", cluster.logs_dir().display()))
}

/// How long the leader may be silent, as the chart is told.
fn lease_value() -> String {
    format!("lifecycle-controller.leaseDurationSeconds={LEASE_SECONDS}")
}

/// A bed with a real node that has the images of Podward, the demo's, and `more`.
async fn bed_to_install_on(
    name: &str,
    images: &DemoImages,
    more: Vec<Image>,
    audit_log: bool,
) -> Result<Cluster> {
    require(&Part::ALL).await?;
    let demo = images.build(PROFILE).await?;
    let builder = Bed::builder(Shape::Node).name(name).audit_log(audit_log);
    let builder =
        Installation::prepare(demo.into_iter().chain(more).fold(builder, BedBuilder::image), PROFILE).await?;
    Ok(Cluster::of_bed(Arc::new(builder.start().await.context("start a bed of shape node")?)))
}

/// Everything that is missing for a bed, all of it together, and the program that keeps beds.
async fn require(parts: &[Part]) -> Result<()> {
    let missing = preflight(parts, true);
    if !missing.is_empty() {
        return Err(ToolsError::Missing(missing).into());
    }
    build_program("podward-testbed", "dev").await.context("build the keeper of beds")?;
    Ok(())
}
