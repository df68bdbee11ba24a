//! Operations on simulated pods: how long they take, what they write, and what the controller uses.
//!
//! Everything but the kubelets is real: API server, controller-manager, scheduler, webhooks over TLS, the controller, and one traffic
//! loop that holds every pod by a finalizer. The load generator runs on the same machine and takes its share of the CPUs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use podward_support::{Cluster, Kind, Options, Podward, TrafficLoop};
use podward_testbed::{Bed, Shape};
use serde::{Deserialize, Serialize};

use crate::audit::{self, Writes};
use crate::fleet::{self, Fleet};
use crate::usage::Usage;

/// What is measured.
#[derive(Clone, Debug)]
pub struct OperationsOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// Operations one after the other.
    pub one_by_one: usize,
    /// Sizes of the groups that begin at once; the largest is the number of pods that are opted in.
    pub at_once: Vec<usize>,
    /// Further pods, not opted in.
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

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationsReport {
    /// Begin to `operate`, one by one: the median, in milliseconds.
    pub begin_to_operate_ms: f64,
    /// Finish to `service-available`, one by one: the median, in milliseconds.
    pub finish_to_available_ms: f64,
    /// Writes of the operations one by one.
    pub writes: Writes,
    /// Each group that began at once.
    pub groups: Vec<Group>,
    /// The controller's memory at rest with all pods there, in MiB.
    pub controller_rss_mib: f64,
    /// Pods there were, opted in or not.
    pub pods: usize,
}

/// A group of operations that began at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// How many.
    pub operations: usize,
    /// From the first begin until all had `operate`, in seconds.
    pub all_operate_seconds: f64,
    /// From the first finish until all were available, in seconds.
    pub all_available_seconds: f64,
    /// CPU time of the controller in both, in milliseconds an operation.
    pub controller_cpu_ms: f64,
    /// CPU time of both webhooks in both, in milliseconds an operation.
    pub webhooks_cpu_ms: f64,
    /// Writes.
    pub writes: Writes,
}

const NAMESPACE: &str = "load";
const LOOP: &str = "load-traffic";

/// Brings a bed up, measures, takes it down. `say` is told how it goes.
///
/// # Errors
/// When the bed or Podward doesn't start, or an operation doesn't get through.
pub async fn run(options: &OperationsOptions, say: impl Fn(&str)) -> Result<OperationsReport> {
    let opted_in = options.at_once.iter().copied().chain([options.one_by_one]).max().unwrap_or_default();
    say("starting a simulated cluster");
    let bed = Bed::builder(Shape::Simulated).name("load").simulated_nodes(10).audit_log(true).start().await?;
    let bed = Arc::new(bed);
    let cluster = Cluster::of_bed(bed.clone());
    say("starting Podward");
    // The loop is the one consumer.
    let services = Options { profile: options.profile.clone(), traffic_controllers: 0, ..Options::default() };
    let podward = Podward::start(&cluster, services).await?;
    let audit = bed.audit_log().context("the bed writes no audit log")?;

    say(&format!("making {opted_in} pods that are opted in, and {} that are not", options.bystanders));
    let fleet = Fleet::start(&cluster.client(), NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let pods = kube::Api::namespaced(cluster.client(), NAMESPACE);
    let _traffic = TrafficLoop::start(pods, fleet::OPTED_IN, LOOP);
    fleet.make(opted_in, options.bystanders).await?;
    let names = fleet.names();
    fleet.settle().await;
    let controller = Usage::of(&podward, Kind::LifecycleController)?;
    let controller_rss_mib = controller.rss_mib()?;

    say("operations one by one");
    let mark = audit::mark(&audit)?;
    let (mut to_operate, mut to_available) = (Vec::new(), Vec::new());
    for name in names.iter().take(options.one_by_one) {
        let (operate, available) = one(&fleet, name).await?;
        to_operate.push(operate);
        to_available.push(available);
    }
    fleet.settle().await;
    let writes = audit::since(&audit, mark)?.per_operation(options.one_by_one);

    let mut groups = Vec::new();
    for &size in &options.at_once {
        say(&format!("{size} operations at once"));
        groups.push(group(&fleet, &podward, &audit, &names[..size]).await?);
        fleet.settle().await;
    }
    let report = OperationsReport {
        begin_to_operate_ms: median(to_operate),
        finish_to_available_ms: median(to_available),
        writes,
        groups,
        controller_rss_mib,
        pods: opted_in + options.bystanders,
    };
    drop(podward);
    bed.down().await?;
    Ok(report)
}

async fn one(fleet: &Fleet, name: &str) -> Result<(f64, f64)> {
    let begun = Instant::now();
    fleet.begin(name).await?;
    fleet.until_operate(std::slice::from_ref(&name.to_owned())).await?;
    let to_operate = begun.elapsed();
    let finished = Instant::now();
    fleet.finish(name).await?;
    fleet.until_available(std::slice::from_ref(&name.to_owned())).await?;
    Ok((milliseconds(to_operate), milliseconds(finished.elapsed())))
}

async fn group(fleet: &Fleet, podward: &Podward, audit: &std::path::Path, names: &[String]) -> Result<Group> {
    let kinds = [Kind::LifecycleController, Kind::MutatingWebhook, Kind::ValidatingWebhook];
    let usages = kinds.map(|kind| Usage::of(podward, kind));
    let [controller, mutating, validating] = usages;
    let (controller, mutating, validating) = (controller?, mutating?, validating?);
    let mark = audit::mark(audit)?;
    let before = (controller.cpu_ms()?, mutating.cpu_ms()? + validating.cpu_ms()?);

    let begun = Instant::now();
    fleet.begin_all(names).await?;
    fleet.until_operate(names).await?;
    let all_operate_seconds = begun.elapsed().as_secs_f64();
    let finished = Instant::now();
    fleet.finish_all(names).await?;
    fleet.until_available(names).await?;
    let all_available_seconds = finished.elapsed().as_secs_f64();

    let after = (controller.cpu_ms()?, mutating.cpu_ms()? + validating.cpu_ms()?);
    fleet.settle().await;
    let operations = names.len();
    let each = |milliseconds: f64| milliseconds / operations as f64;
    Ok(Group {
        operations,
        all_operate_seconds,
        all_available_seconds,
        controller_cpu_ms: each(after.0 - before.0),
        webhooks_cpu_ms: each(after.1 - before.1),
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
