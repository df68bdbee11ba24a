//! The clusters of a test run. Each is started when the first test wants it.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use podward_support::{Cluster, DemoImages, Installation, Kind, Options, Podward};
use podward_testbed::{Bed, BedBuilder, Part, Shape, ToolsError, build_program, preflight};
use tokio::sync::{OnceCell, RwLock};

use crate::collector::Collector;

/// Names the cluster to use instead of a `node` bed.
const KUBECONFIG: &str = "PODWARD_KUBECONFIG";
/// How long a killed controller keeps its lease. Short, since tests wait for it.
const LEASE_SECONDS: u32 = 4;

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
    /// Each service as a process that tests start and end.
    Processes(Box<Podward>),
    /// By Helm.
    Installed(Installation),
}

impl Running {
    /// What helps to see what its services did.
    pub(crate) async fn last_words(&self) -> String {
        match self {
            Self::Processes(podward) => podward.last_words(),
            Self::Installed(installation) => installation.last_words().await,
        }
    }
}

/// What a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// A real node.
    Node,
    /// Simulated nodes, and Podward with `--strict`.
    Simulated,
    /// A real node with Podward installed by Helm, all of its services: Services hold pods.
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

    async fn start_node() -> Result<Self> {
        let images = DemoImages::default();
        // Pods are held by whom the tests say, and by nobody else.
        let mut options = Options {
            controllers: 2,
            traffic_controllers: 0,
            lease_seconds: LEASE_SECONDS,
            ..Options::default()
        };
        let cluster = match user_cluster() {
            Some(kubeconfig) => {
                eprintln!("{}", images.how_to_load());
                Cluster::existing(&kubeconfig, None).await?
            }
            None => node_bed("e2e-node", &images, &options.profile).await?,
        };
        let collector = Collector::start(&cluster).await.context("start a collector of traces")?;
        let kinds = [Kind::MutatingWebhook, Kind::ValidatingWebhook, Kind::LifecycleController];
        options.more = kinds.map(|kind| (kind, format!("--otlp-endpoint={}", collector.url()))).to_vec();
        let environment = Self::with_podward(cluster, options, images).await?;
        Ok(Self { collector: Some(collector), ..environment })
    }

    async fn start_serving() -> Result<Self> {
        require(&Part::ALL).await?;
        let images = DemoImages::default();
        let builder = with_images("e2e-serving", &images, "dev").await?.audit_log(true);
        let builder = Installation::prepare(builder, "dev").await?;
        let cluster = Cluster::of_bed(Arc::new(builder.start().await.context("start a bed of shape node")?));
        let lease = format!("lifecycle-controller.leaseDurationSeconds={LEASE_SECONDS}");
        let waits =
            ["traffic-controller.waits.dnsTtlSeconds=4", "traffic-controller.waits.surgeWaitSeconds=20"];
        let installed = Installation::install(&cluster, &[&lease, waits[0], waits[1]]).await;
        let running = kept(&cluster, installed.map(Running::Installed))?;
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
            ..Options::default()
        };
        Self::with_podward(cluster, options, DemoImages::default()).await
    }

    async fn with_podward(cluster: Cluster, options: Options, images: DemoImages) -> Result<Self> {
        let started = Podward::start(&cluster, options).await;
        let running = kept(&cluster, started.map(Box::new).map(Running::Processes))?;
        Ok(Self { cluster, running, images, collector: None, access: RwLock::default() })
    }

    /// Ends it. After a failure logs are kept, and said where.
    pub(crate) async fn end(&self, failed: bool) -> Result<()> {
        if failed && let Some(bed) = self.cluster.bed() {
            bed.keep_logs();
            eprintln!("logs of the bed {} are kept in {}", bed.name(), bed.logs_dir().display());
        }
        match (self.cluster.bed(), &self.running) {
            (Some(bed), _) => bed.down().await.with_context(|| format!("end the bed {}", bed.name())),
            (None, Running::Processes(podward)) => podward.shutdown().await,
            (None, Running::Installed(_)) => Ok(()),
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

/// A bed with a real node that has the demo's images.
async fn node_bed(name: &str, images: &DemoImages, profile: &str) -> Result<Cluster> {
    require(&[Part::ControlPlane, Part::Node]).await?;
    let bed = with_images(name, images, profile).await?.start().await;
    Ok(Cluster::of_bed(Arc::new(bed.context("start a bed of shape node")?)))
}

async fn with_images(name: &str, images: &DemoImages, profile: &str) -> Result<BedBuilder> {
    let built = images.build(profile).await?;
    Ok(built.into_iter().fold(Bed::builder(Shape::Node).name(name), BedBuilder::image))
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
