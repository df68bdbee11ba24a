//! Measures the traffic-controller while it reads many kube-proxies, because the rules for many pods that are to leave
//! service are not written.
//!
//! API server, controllers and webhooks are real, nodes and pods are simulated, as in
//! [`operations`](crate::operations). The kube-proxies are simulated by one process, which is not measured. They answer
//! with a page of the size of the real one. Their syncs fail, so all of them are read again and again.

mod page;
mod proxies;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use podward_support::{Cluster, Podward, PodwardOptions, ServiceKind, TrafficLoop, WAIT, within};
use podward_testbed::{Shape, TestCluster};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use self::proxies::{COMMAND as KUBE_PROXIES, serve as serve_kube_proxies};
use self::proxies::{KubeProxies, Reads};
use crate::fleet::{self, PodFleet};
use crate::usage::Usage;

const NAMESPACE: &str = "evidence";
const LOOP: &str = "load-traffic";
const SERVICE: &str = "held";
/// The number of pods that stay in service, because the last endpoint of a Service waits for a replacement.
const STAYING: usize = 10;
/// The number of concurrent requests.
const MAX_CONCURRENT: usize = 20;
/// The pause between two looks at the slices.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct EvidenceOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The number of nodes, each with a kube-proxy.
    pub nodes: usize,
    /// The number of pods that are held.
    pub pods: usize,
    /// The time between the last change of a slice and the measurement.
    pub warm_up: Duration,
    /// The time of the measurement. A pod is held for a minute after its slice has changed.
    pub duration: Duration,
    /// The time of the measurement at rest.
    pub rest: Duration,
}

impl Default for EvidenceOptions {
    fn default() -> Self {
        EvidenceOptions {
            profile: "bench-lite".to_owned(),
            nodes: 1000,
            pods: 200,
            warm_up: Duration::from_secs(5),
            duration: Duration::from_secs(40),
            rest: Duration::from_secs(10),
        }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EvidenceReport {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of pods that were held throughout.
    pub held_pods: usize,
    /// The duration of the measurement, in seconds.
    pub seconds: f64,
    /// The CPU time of the traffic-controller in each second of the measurement, in seconds: the number of cores.
    pub cores: f64,
    /// The same at rest before, with all nodes and pods.
    pub cores_at_rest: f64,
    /// The resident memory of the traffic-controller at the end of the measurement, in MiB.
    pub rss_mib: f64,
    /// The peak of its resident memory, in MiB.
    pub peak_rss_mib: f64,
    /// The same as `rss_mib`, at rest before.
    pub rss_at_rest_mib: f64,
    /// The number of kube-proxies whose metrics were read in the measurement.
    pub proxies_read: usize,
    /// The number of reads in each second, of all kube-proxies together.
    pub reads_per_second: f64,
    /// The number of reads of the kube-proxy that was read least.
    pub fewest_reads: u64,
    /// The number of answers to the lifecycle-controller in each second.
    pub answers_per_second: f64,
}

/// Starts a test cluster, measures, and ends it. Calls `say` with the progress.
///
/// # Errors
/// Fails if the test cluster or Podward does not start, or a pod was not held until the end of the measurement.
pub async fn run(options: &EvidenceOptions, say: impl Fn(&str)) -> Result<EvidenceReport> {
    say(&format!("starting a simulated cluster with {} nodes", options.nodes));
    let test_cluster = TestCluster::builder(Shape::Simulated)
        .name("evidence")
        .simulated_nodes(options.nodes)
        .start()
        .await?;
    let test_cluster = Arc::new(test_cluster);
    let cluster = Cluster::of_test_cluster(test_cluster.clone());
    let client = cluster.client();
    give_addresses(&client).await?;
    say("starting Podward");
    let arguments = ["--kube-proxy-metrics-url", "auto"];
    let services = PodwardOptions {
        profile: options.profile.clone(),
        more: arguments.map(|argument| (ServiceKind::TrafficController, argument.to_owned())).into(),
        ..PodwardOptions::default()
    };
    let podward = Podward::start(&cluster, services).await?;

    say(&format!("making {} pods and a Service", options.pods + STAYING));
    let fleet = PodFleet::start(&client, NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let traffic = TrafficLoop::start(Api::namespaced(client.clone(), NAMESPACE), fleet::OPTED_IN, LOOP);
    create_service(&client).await?;
    let names = fleet.make_bare(SERVICE, options.pods + STAYING, true).await?;
    fleet.until_available(&names).await?;
    fleet.settle().await;
    // Before, the pods would not have become available.
    let proxies = KubeProxies::start(&cluster).await?;
    let meter = EvidenceMeter { podward: &podward, proxies: &proxies };
    let at_rest = meter.measure(options.rest).await?;

    let held = &names[..options.pods];
    say(&format!("{} operations at once", held.len()));
    fleet.begin_all(held).await?;
    until_not_ready(&client, held.len()).await?;
    tokio::time::sleep(options.warm_up).await;
    say(&format!("measuring for {} s", options.duration.as_secs()));
    let busy = meter.measure(options.duration).await?;
    let operating = fleet.operating(held);
    ensure!(
        operating == 0,
        "{operating} of {} pods were not held until the end: measure for a shorter time",
        held.len()
    );

    let report = EvidenceReport {
        nodes: options.nodes,
        held_pods: held.len(),
        seconds: busy.seconds,
        cores: busy.cores,
        cores_at_rest: at_rest.cores,
        rss_mib: busy.rss_mib,
        peak_rss_mib: busy.peak_rss_mib,
        rss_at_rest_mib: at_rest.rss_mib,
        proxies_read: busy.reads.len(),
        reads_per_second: busy.reads.values().sum::<u64>() as f64 / busy.seconds,
        fewest_reads: busy.reads.values().copied().min().unwrap_or_default(),
        answers_per_second: busy.answers / busy.seconds,
    };
    drop((traffic, podward));
    test_cluster.down().await?;
    Ok(report)
}

/// Sets the InternalIP of each node to an address of loopback of its own.
async fn give_addresses(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let names = nodes.list_metadata(&ListParams::default()).await.context("list the nodes")?;
    let names = names.items.into_iter().filter_map(|node| node.metadata.name).enumerate();
    futures::stream::iter(names)
        .map(|(index, name)| {
            let nodes = &nodes;
            async move {
                let address = proxies::address(index)?;
                let patch = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
                let patched =
                    nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await;
                patched.map(drop).with_context(|| format!("set the address of node {name}"))
            }
        })
        .buffer_unordered(MAX_CONCURRENT)
        .try_collect()
        .await
}

async fn create_service(client: &Client) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = serde_json::from_value(json!({
        "metadata": {"name": SERVICE},
        "spec": {"selector": {"app": SERVICE}, "ports": [{"port": 80}]},
    }))?;
    services.create(&PostParams::default(), &service).await.context("make the Service")?;
    Ok(())
}

/// Waits until the slices show `count` endpoints as not ready.
async fn until_not_ready(client: &Client, count: usize) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    let wait = async {
        loop {
            let listed = slices.list(&ListParams::default()).await.context("list the EndpointSlices")?;
            let endpoints = listed.items.iter().flat_map(|slice| &slice.endpoints);
            let states = endpoints.map(|endpoint| endpoint.conditions.as_ref()?.ready);
            if states.filter(|ready| *ready == Some(false)).count() >= count {
                return Ok(());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    within(WAIT, || format!("{count} endpoints that are not ready"), wait).await
}

/// Measures the traffic-controller.
struct EvidenceMeter<'a> {
    podward: &'a Podward,
    proxies: &'a KubeProxies,
}

/// The traffic-controller during a measurement.
struct TrafficUsage {
    seconds: f64,
    cores: f64,
    rss_mib: f64,
    peak_rss_mib: f64,
    /// The kube-proxies that were read.
    reads: Reads,
    answers: f64,
}

impl EvidenceMeter<'_> {
    async fn measure(&self, duration: Duration) -> Result<TrafficUsage> {
        let usage = Usage::of(self.podward, ServiceKind::TrafficController)?;
        let (reads_before, answers) = (self.proxies.reads().await?, self.answers().await?);
        let (begun, cpu) = (Instant::now(), usage.cpu_ms()?);
        tokio::time::sleep(duration).await;
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), usage.cpu_ms()? - cpu);
        let mut reads = self.proxies.reads().await?;
        for (address, reads) in &mut reads {
            *reads -= reads_before.get(address).copied().unwrap_or_default();
        }
        reads.retain(|_, reads| *reads > 0);
        Ok(TrafficUsage {
            seconds,
            cores: cpu / 1e3 / seconds,
            rss_mib: usage.rss_mib()?,
            peak_rss_mib: usage.peak_rss_mib()?,
            reads,
            answers: self.answers().await? - answers,
        })
    }

    /// Returns the number of answers to the lifecycle-controller.
    async fn answers(&self) -> Result<f64> {
        let services = self.podward.services(ServiceKind::TrafficController);
        let metrics = services.first().context("no traffic-controller is running")?.metrics().await?;
        let lines = metrics.lines().filter_map(|line| line.strip_prefix("podward_traffic_answers_total{"));
        Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }
}
