//! Measures CloneSets on simulated pods: updates in place and scale-ins with hooks, scale-out, writes, memory.
//!
//! Everything except the kubelets is real. An operator in the load generator answers the hooks at once. The load generator
//! runs on the same machine and shares its CPUs.

mod operator;
mod set;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use podward_support::{PodwardOptions, ServiceKind};
use serde::{Deserialize, Serialize};

use crate::audit::{self, AgentWrites};
use crate::bare_writes::BareWrites;
use crate::simulated::SimulatedPodward;
use crate::usage::Usage;
use set::{BenchSet, create_bare};

/// How the controller names itself in the audit log.
const AGENT: &str = "podward-cloneset-controller/";
/// The namespace of the set that is updated and scaled in, to whose pods the bare writes go.
const UPDATES: &str = "updates";
/// The time in which a set at rest is observed.
const REST: Duration = Duration::from_secs(30);
/// The number of runs of the scale-out.
const ROUNDS: usize = 3;

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct CloneSetsOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The sizes of the sets that are updated in place. The last one is scaled in.
    pub updates: Vec<usize>,
    /// The number of pods that are created.
    pub scale_out: usize,
    /// The size of the set at rest.
    pub rest: usize,
}

impl Default for CloneSetsOptions {
    fn default() -> Self {
        Self { profile: "bench-lite".to_owned(), updates: vec![100, 500], scale_out: 1000, rest: 5000 }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloneSetsReport {
    /// The updates in place.
    pub updates: Vec<UpdateReport>,
    /// The number of pods that were deleted through the hook.
    pub scale_in_pods: usize,
    /// The time until all of them were gone, in seconds.
    pub scale_in_seconds: f64,
    /// The writes to pods for each of them.
    pub scale_in_writes: f64,
    /// The number of pods that were created.
    pub scale_out_pods: usize,
    /// The time until the set had created all of them, in seconds: one value for each run.
    pub scale_out_seconds: Vec<f64>,
    /// The time in which a client created as many without a set, in seconds: one value for each run.
    pub bare_seconds: Vec<f64>,
    /// The number of pods of the set at rest.
    pub rest_pods: usize,
    /// The resident memory of the leader at rest, in MiB.
    pub rest_rss_mib: f64,
    /// The peak of the resident memory of the leader, in MiB.
    pub peak_rss_mib: f64,
    /// The writes of the controller within 30 s at rest.
    pub rest_writes: u64,
    /// What the API server allows without Podward.
    pub bare: BareWrites,
}

/// An update in place of all pods at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateReport {
    /// The number of pods.
    pub pods: usize,
    /// The time from the new template until all pods were updated and Normal, in seconds.
    pub seconds: f64,
    /// The writes of the controller to a pod.
    pub writes_per_pod: f64,
    /// Of them, those that were refused.
    pub refused_per_pod: f64,
    /// The writes of the status of the set.
    pub status_writes: u64,
    /// The CPU time of the controller, in milliseconds per pod.
    pub cpu_ms_per_pod: f64,
}

/// Starts a test cluster, measures, and ends it. Calls `say` with the progress.
///
/// # Errors
/// Fails if the test cluster or Podward does not start, or a set does not become what it should.
pub async fn run(options: &CloneSetsOptions, say: impl Fn(&str)) -> Result<CloneSetsReport> {
    let services = PodwardOptions {
        profile: options.profile.clone(),
        traffic_controllers: 0,
        cloneset_controllers: 1,
        ..PodwardOptions::default()
    };
    let cluster = SimulatedPodward::start(SimulatedPodward::audited("load", 10), services, &say).await?;
    let audit = cluster.audit()?;
    let controller = Usage::of(&cluster.podward, ServiceKind::ClonesetController)?;

    let mut updates = Vec::new();
    let set = BenchSet::create(&cluster.client(), UPDATES, true).await?;
    for (round, pods) in options.updates.iter().copied().enumerate() {
        say(&format!("{pods} pods are created, and updated in place"));
        set.scale(pods).await?;
        set.until_normal(pods).await?;
        let image = if round % 2 == 0 { "v2" } else { "v1" };
        updates.push(update(&set, &controller, &audit, pods, image).await?);
    }
    say("bare writes");
    let api_server = Usage::of_api_server(&cluster.test_cluster)?;
    let bare = BareWrites::measure(&cluster.client(), UPDATES, "", &api_server).await?;
    let scale_in_pods = options.updates.last().copied().unwrap_or_default();
    say(&format!("{scale_in_pods} pods are deleted"));
    let mark = audit::mark(&audit)?;
    let begun = Instant::now();
    set.scale(0).await?;
    set.until_normal(0).await?;
    let scale_in_seconds = begun.elapsed().as_secs_f64();
    set.settle().await;
    let scale_in_writes = audit::writes_of(&audit, mark, AGENT)?.pods as f64 / scale_in_pods.max(1) as f64;

    let (mut scale_out_seconds, mut bare_seconds) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        say(&format!("{} pods are created by a client, and by a set", options.scale_out));
        let namespace = format!("bare-{round}");
        bare_seconds.push(create_bare(&cluster.client(), &namespace, options.scale_out).await?);
        let set = BenchSet::create(&cluster.client(), &format!("out-{round}"), false).await?;
        let begun = Instant::now();
        set.scale(options.scale_out).await?;
        set.until_exist(options.scale_out).await?;
        scale_out_seconds.push(begun.elapsed().as_secs_f64());
        set.until_normal(options.scale_out).await?;
        set.delete().await?;
    }

    say(&format!("a set of {} pods is at rest", options.rest));
    let set = BenchSet::create(&cluster.client(), "rest", false).await?;
    set.scale(options.rest).await?;
    set.until_normal(options.rest).await?;
    set.settle().await;
    let mark = audit::mark(&audit)?;
    tokio::time::sleep(REST).await;
    let AgentWrites { pods, sets, others, .. } = audit::writes_of(&audit, mark, AGENT)?;
    let report = CloneSetsReport {
        updates,
        scale_in_pods,
        scale_in_seconds,
        scale_in_writes,
        scale_out_pods: options.scale_out,
        scale_out_seconds,
        bare_seconds,
        rest_pods: options.rest,
        rest_rss_mib: controller.rss_mib()?,
        peak_rss_mib: controller.peak_rss_mib()?,
        rest_writes: pods + sets + others,
        bare,
    };
    cluster.end().await?;
    Ok(report)
}

async fn update(
    set: &BenchSet,
    controller: &Usage,
    audit: &Path,
    pods: usize,
    image: &str,
) -> Result<UpdateReport> {
    set.settle().await;
    let (mark, cpu) = (audit::mark(audit)?, controller.cpu_ms()?);
    let begun = Instant::now();
    set.update(image).await?;
    set.until_updated(pods, image).await?;
    let seconds = begun.elapsed().as_secs_f64();
    set.settle().await;
    let AgentWrites { pods: writes, refused, sets, .. } = audit::writes_of(audit, mark, AGENT)?;
    let each = |count: f64| count / pods as f64;
    Ok(UpdateReport {
        pods,
        seconds,
        writes_per_pod: each(writes as f64),
        refused_per_pod: each(refused as f64),
        status_writes: sets,
        cpu_ms_per_pod: each(controller.cpu_ms()? - cpu),
    })
}
