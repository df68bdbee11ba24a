//! Measures operations on simulated pods: their duration, their writes, and the CPU time and memory of the
//! controller.
//!
//! Everything except the kubelets is real: API server, controller-manager, scheduler, webhooks over TLS, the
//! controller, and one traffic loop that holds every pod with a finalizer. The load generator runs on the same
//! machine and shares its CPUs.

use std::time::{Duration, Instant};

use anyhow::Result;
use podward_support::{Podward, PodwardOptions, ServiceKind, TrafficLoop};
use serde::{Deserialize, Serialize};

use crate::audit::{self, Writes};
use crate::bare_writes::BareWrites;
use crate::fleet::{self, PodFleet};
use crate::simulated::SimulatedPodward;
use crate::times::{Times, pause};
use crate::usage::Usage;

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct OperationsOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The number of operations one after the other.
    pub one_by_one: usize,
    /// The sizes of groups of concurrent operations. The largest is the number of pods that are opted in.
    pub at_once: Vec<usize>,
    /// The number of further pods, which are not opted in.
    pub bystanders: usize,
}

impl Default for OperationsOptions {
    fn default() -> Self {
        OperationsOptions {
            profile: "bench-lite".to_owned(),
            one_by_one: 50,
            at_once: vec![200, 1000],
            bystanders: 4000,
        }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationsReport {
    /// The median time from begin to `operate`, one by one, in milliseconds.
    pub begin_to_operate_ms: f64,
    /// The median time from finish to `service-available`, one by one, in milliseconds.
    pub finish_to_available_ms: f64,
    /// Podward's writes per operation, one by one.
    pub writes: Writes,
    /// The groups of concurrent operations.
    pub groups: Vec<OperationGroup>,
    /// The memory of the controller at rest with all pods, in MiB.
    pub controller_rss_mib: f64,
    /// The total number of pods.
    pub pods: usize,
    /// The same cluster without Podward's work.
    pub bare: BareWrites,
}

/// A group of concurrent operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationGroup {
    /// The number of operations.
    pub operations: usize,
    /// The time from the first begin until all pods had `operate`, in seconds.
    pub all_operate_seconds: f64,
    /// The time from the gate's change to False until the pod had `operate`: how long a pod serves nobody before it can be
    /// operated on.
    pub out_until_operate: Times,
    /// The time from the first finish until all pods were available, in seconds.
    pub all_available_seconds: f64,
    /// The CPU time of the controller in both phases, in milliseconds per operation.
    pub controller_cpu_ms: f64,
    /// The CPU time of both webhooks in both phases, in milliseconds per operation.
    pub webhooks_cpu_ms: f64,
    /// The CPU time of the API server in both phases, in milliseconds per operation.
    pub api_server_cpu_ms: f64,
    /// Podward's writes per operation.
    pub writes: Writes,
}

const NAMESPACE: &str = "load";
const LOOP: &str = "load-traffic";

/// Starts a test cluster, measures, and ends it. Calls `say` with the progress.
///
/// # Errors
/// Fails if the test cluster or Podward does not start, or an operation does not end.
pub async fn run(options: &OperationsOptions, say: impl Fn(&str)) -> Result<OperationsReport> {
    let opted_in = options.at_once.iter().copied().chain([options.one_by_one]).max().unwrap_or_default();
    // The traffic loop is the only consumer.
    let services = PodwardOptions {
        profile: options.profile.clone(),
        traffic_controllers: 0,
        ..PodwardOptions::default()
    };
    let cluster = SimulatedPodward::start(SimulatedPodward::audited("load", 10), services, &say).await?;
    let audit = cluster.audit()?;

    say(&format!("making {opted_in} pods that are opted in, and {} that are not", options.bystanders));
    let fleet = PodFleet::start(&cluster.client(), NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let pods = kube::Api::namespaced(cluster.client(), NAMESPACE);
    let _traffic = TrafficLoop::start(pods, fleet::OPTED_IN, LOOP);
    fleet.make(opted_in, options.bystanders).await?;
    let names = fleet.names();
    fleet.settle().await;
    let controller = Usage::of(&cluster.podward, ServiceKind::LifecycleController)?;
    let controller_rss_mib = controller.rss_mib()?;

    say("bare writes");
    let api_server = Usage::of_api_server(&cluster.test_cluster)?;
    let bare = BareWrites::measure(&cluster.client(), NAMESPACE, fleet::BYSTANDERS, &api_server).await?;
    fleet.settle().await;

    say("operations one by one");
    let mark = audit::mark(&audit)?;
    let (mut to_operate, mut to_available) = (Vec::new(), Vec::new());
    for (number, name) in names.iter().take(options.one_by_one).enumerate() {
        pause(number).await;
        let (operate, available) = one(&fleet, name).await?;
        to_operate.push(operate);
        to_available.push(available);
    }
    fleet.settle().await;
    let writes = audit::since(&audit, mark)?.per_operation(options.one_by_one);

    let mut groups = Vec::new();
    for &size in &options.at_once {
        say(&format!("{size} operations at once"));
        groups.push(group(&fleet, (&cluster.podward, &api_server), &audit, &names[..size]).await?);
        fleet.settle().await;
    }
    let report = OperationsReport {
        begin_to_operate_ms: median(to_operate),
        finish_to_available_ms: median(to_available),
        writes,
        groups,
        controller_rss_mib,
        pods: opted_in + options.bystanders,
        bare,
    };
    cluster.end().await?;
    Ok(report)
}

async fn one(fleet: &PodFleet, name: &str) -> Result<(f64, f64)> {
    let begun = Instant::now();
    fleet.begin(name).await?;
    fleet.until_operate(std::slice::from_ref(&name.to_owned())).await?;
    let to_operate = begun.elapsed();
    let finished = Instant::now();
    fleet.finish(name).await?;
    fleet.until_available(std::slice::from_ref(&name.to_owned())).await?;
    Ok((milliseconds(to_operate), milliseconds(finished.elapsed())))
}

async fn group(
    fleet: &PodFleet,
    (podward, api_server): (&Podward, &Usage),
    audit: &std::path::Path,
    names: &[String],
) -> Result<OperationGroup> {
    let kinds =
        [ServiceKind::LifecycleController, ServiceKind::MutatingWebhook, ServiceKind::ValidatingWebhook];
    let usages = kinds.map(|kind| Usage::of(podward, kind));
    let [controller, mutating, validating] = usages;
    let (controller, mutating, validating) = (controller?, mutating?, validating?);
    let mark = audit::mark(audit)?;
    let cpu = || {
        anyhow::Ok((controller.cpu_ms()?, mutating.cpu_ms()? + validating.cpu_ms()?, api_server.cpu_ms()?))
    };
    let before = cpu()?;

    let begun = Instant::now();
    fleet.begin_all(names).await?;
    fleet.until_operate(names).await?;
    let all_operate_seconds = begun.elapsed().as_secs_f64();
    let out_until_operate = fleet.times_to_operate(names);
    let finished = Instant::now();
    fleet.finish_all(names).await?;
    fleet.until_available(names).await?;
    let all_available_seconds = finished.elapsed().as_secs_f64();

    let after = cpu()?;
    fleet.settle().await;
    let operations = names.len();
    let each = |milliseconds: f64| milliseconds / operations as f64;
    Ok(OperationGroup {
        operations,
        all_operate_seconds,
        out_until_operate,
        all_available_seconds,
        controller_cpu_ms: each(after.0 - before.0),
        webhooks_cpu_ms: each(after.1 - before.1),
        api_server_cpu_ms: each(after.2 - before.2),
        writes: audit::since(audit, mark)?.per_operation(operations),
    })
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
