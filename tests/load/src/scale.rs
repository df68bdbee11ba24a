//! Measures Podward with many opted-in pods at rest: memory, CPU time while kubelets report, and the time from the
//! start or the loss of a leader until the first decision.
//!
//! Everything except the kubelets is real, as in [`operations`](crate::operations). A few pods come into service
//! through Podward. The others are copies of one of them, so that Podward has nothing to write to them.

mod copies;
mod kubelets;
mod services;
mod succession;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::Api;
use podward_support::{PodwardOptions, TrafficLoop};
use serde::{Deserialize, Serialize};

use crate::audit::{self, Writes};
use crate::bare_writes::BareWrites;
use crate::fleet::{self, PodFleet};
use crate::simulated::SimulatedPodward;
use crate::usage::Usage;
use copies::Copies;
use kubelets::Kubelets;
use services::Services;
use succession::Candidates;

pub use services::ServiceMemory;
pub use succession::Succession;

const NAMESPACE: &str = "scale";
const LOOP: &str = "load-traffic";
/// The prefix of the pods that come into service through Podward. Operations are requested on them.
const OPERATED: &str = "operated";
/// The label selector of these pods. The traffic loop manages only them, because nothing happens to the others.
const OPERATED_SELECTOR: &str = "app=operated";
const OPERATED_PODS: usize = 4;
/// The number of pods that are not opted in, to which the bare writes go.
const BYSTANDERS: usize = 100;
/// The default of the lifecycle-controller and of the chart.
const LEASE_SECONDS: u32 = 10;
/// How often kwok renews the Lease of each node, and the load generator writes its status.
const NODE_INTERVAL: Duration = Duration::from_secs(10);
/// kwok in the audit log.
const KWOK: &str = "kwok/";

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct ScaleOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The number of pods that are opted in and in service.
    pub pods: usize,
    /// The wanted number of writes to pods/status each second, in the second measurement of CPU time.
    pub pod_statuses_per_second: u32,
    /// The time for which CPU time is measured.
    pub rest: Duration,
}

impl Default for ScaleOptions {
    fn default() -> Self {
        ScaleOptions {
            profile: "bench-lite".to_owned(),
            pods: 10_000,
            pod_statuses_per_second: 100,
            rest: Duration::from_secs(60),
        }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScaleReport {
    /// The number of pods that are opted in and in service.
    pub pods: usize,
    /// The number of simulated nodes.
    pub nodes: usize,
    /// The time in which the pods were made, in seconds.
    pub making_seconds: f64,
    /// The memory of each service when all pods are in service, by service. The leader has seen them come one by one; a
    /// leader that lists them at its start is in [`start`](Self::start).
    pub memory: BTreeMap<String, ServiceMemory>,
    /// The services while the kubelets report their nodes.
    pub rest: RestReport,
    /// The services while the kubelets report their pods, too.
    pub pod_reports: RestReport,
    /// The same cluster without Podward's work.
    pub bare: BareWrites,
    /// From the start of a lifecycle-controller, while no other runs.
    pub start: Succession,
    /// From SIGTERM to the leader, which releases its Lease, while another replica runs.
    pub sigterm: Succession,
    /// From SIGKILL to the leader, whose Lease has to expire, while another replica runs.
    pub sigkill: Succession,
    /// From SIGKILL to the leader, which is started again like a container, while another replica runs.
    pub crash: Succession,
}

/// The services at rest: no operation is in progress, and Podward writes nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestReport {
    /// The duration of the measurement, in seconds.
    pub seconds: f64,
    /// Renewals of nodes' Leases each second.
    pub node_leases_per_second: f64,
    /// Writes of nodes' statuses each second.
    pub node_statuses_per_second: f64,
    /// Writes of pods' statuses each second.
    pub pod_statuses_per_second: f64,
    /// The CPU time of each service, in percent of a core.
    pub cpu_percent: BTreeMap<String, f64>,
    /// The CPU time of the API server, in percent of a core.
    pub api_server_cpu_percent: f64,
}

/// Starts a test cluster, measures, and ends it. Calls `say` with the progress.
///
/// # Errors
/// Fails if the test cluster or Podward does not start, a pod does not stay in service, Podward writes to pods or rules
/// at rest, or no leader decides.
pub async fn run(options: &ScaleOptions, say: impl Fn(&str)) -> Result<ScaleReport> {
    ensure!(options.pods > OPERATED_PODS, "more than {OPERATED_PODS} pods are needed");
    let nodes = fleet::nodes_for(options.pods + BYSTANDERS);
    let services = PodwardOptions {
        profile: options.profile.clone(),
        controllers: 2,
        lease_seconds: LEASE_SECONDS,
        ..PodwardOptions::default()
    };
    let cluster = SimulatedPodward::start(SimulatedPodward::audited("scale", nodes), services, &say).await?;
    let audit = cluster.audit()?;

    say(&format!("making {} pods that are opted in", options.pods));
    let begun = Instant::now();
    let fleet = PodFleet::start(&cluster.client(), NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let pods = Api::namespaced(cluster.client(), NAMESPACE);
    let _traffic = TrafficLoop::start(pods, OPERATED_SELECTOR, LOOP);
    let operated = fleet.make_bare(OPERATED, OPERATED_PODS, true).await?;
    fleet.make_bare("bystander", BYSTANDERS, false).await?;
    fleet.until_available(&operated).await?;
    fleet.settle().await;
    let client = kubelets::client(&cluster.test_cluster).await?;
    let copies = Copies::of(&operated[0], Api::namespaced(client.clone(), NAMESPACE), nodes).await?;
    let copied = copies.make(options.pods - OPERATED_PODS).await?;
    fleet.until_count_available(options.pods).await?;
    let making_seconds = begun.elapsed().as_secs_f64();
    fleet.settle().await;
    let services = Services::find(&cluster.podward).await?;
    let memory = services.memory()?;

    let api_server = Usage::of_api_server(&cluster.test_cluster)?;
    let kubelets = Kubelets::new(&client, NAMESPACE, copied).await?;
    let meter = RestMeter { services, api_server: &api_server, audit: &audit };
    say("at rest, while kubelets report nodes");
    let rest = meter.measure(&kubelets, 0, options.rest).await?;
    fleet.settle().await;
    say("at rest, while kubelets report nodes and pods");
    let pod_reports = meter.measure(&kubelets, options.pod_statuses_per_second, options.rest).await?;
    fleet.settle().await;
    say("bare writes");
    let bare = BareWrites::measure(&cluster.client(), NAMESPACE, fleet::BYSTANDERS, &api_server).await?;
    fleet.settle().await;

    let candidates = Candidates::new(&cluster.podward, &fleet);
    say("a start");
    let start = candidates.start(&operated[0]).await?;
    say("the leader is stopped");
    let sigterm = candidates.after_sigterm(&operated[1]).await?;
    say("the leader is killed");
    let sigkill = candidates.after_sigkill(&operated[2]).await?;
    say("the leader crashes");
    let crash = candidates.after_crash(&operated[3]).await?;
    let available = fleet.available();
    ensure!(available == options.pods, "{available} of {} pods are in service at the end", options.pods);

    let report = ScaleReport {
        pods: options.pods,
        nodes,
        making_seconds,
        memory,
        rest,
        pod_reports,
        bare,
        start,
        sigterm,
        sigkill,
        crash,
    };
    cluster.end().await?;
    Ok(report)
}

/// Measures the services at rest.
struct RestMeter<'a> {
    services: Services,
    api_server: &'a Usage,
    audit: &'a Path,
}

impl RestMeter<'_> {
    /// Measures for `time`, while the kubelets report their nodes, and `pods_per_second` of their pods.
    async fn measure(&self, kubelets: &Kubelets, pods_per_second: u32, time: Duration) -> Result<RestReport> {
        let mark = audit::mark(self.audit)?;
        let (cpu, api_server) = (self.services.cpu_ms()?, self.api_server.cpu_ms()?);
        let begun = Instant::now();
        let reports = kubelets.report(NODE_INTERVAL, pods_per_second, time).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let percent = |before: f64, after: f64| (after - before) / seconds / 10.0;
        let api_server_cpu_percent = percent(api_server, self.api_server.cpu_ms()?);
        let cpu_percent = self.services.cpu_ms()?.into_iter().map(|(service, after)| {
            let before = cpu.get(&service).copied().unwrap_or_default();
            (service, percent(before, after))
        });
        let cpu_percent = cpu_percent.collect();
        let renewals = audit::renewals_of(self.audit, mark, KWOK)?;
        ensure!(renewals > 0, "kwok has renewed no Lease of a node in {seconds:.0} s");
        let Writes { pods, status, rules, .. } = audit::since(self.audit, mark)?;
        let writes = pods + status + rules;
        ensure!(writes == 0.0, "Podward has made {writes} writes in {seconds:.0} s at rest");
        Ok(RestReport {
            seconds,
            node_leases_per_second: renewals as f64 / seconds,
            node_statuses_per_second: reports.nodes as f64 / seconds,
            pod_statuses_per_second: reports.pods as f64 / seconds,
            cpu_percent,
            api_server_cpu_percent,
        })
    }
}
