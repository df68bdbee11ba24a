//! Measures the service-discovery-bridge with real registries.
//!
//! API server, webhooks, lifecycle-controller, bridge and registries are real; nodes and pods are simulated, as in
//! [`operations`](crate::operations). All pods have the same DiscoveryBinding at a time, and the label `app` names the
//! service of a pod. None of them has opted in, so that only the bridge works on them.

mod bench;
mod binding;
mod bridge;
mod comparison;
mod heartbeats;
mod instances;
mod loss;
mod names;
mod options;
mod pods;
mod ready;
mod registrations;
mod server;

use anyhow::Result;
use podward_support::PodwardOptions;
use podward_testbed::{Shape, TestCluster};
use serde::{Deserialize, Serialize};

use self::bench::Bench;
use self::bridge::Bridge;
use self::pods::BoundPods;
use crate::fleet::nodes_for;
use crate::simulated::SimulatedPodward;

pub use self::comparison::ComparisonReport;
pub use self::heartbeats::HeartbeatsReport;
pub use self::loss::LossReport;
pub use self::options::{RegistriesOptions, RegistriesPart};
pub use self::ready::ReadyReport;
pub use self::registrations::RegistrationsReport;
pub use self::server::RegistryName;

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegistriesReport {
    /// The number of pods.
    pub pods: usize,
    /// The number of pods of a service.
    pub pods_of_service: usize,
    /// Full comparisons with all pods.
    pub comparisons: Vec<ComparisonReport>,
    /// Registrations of many pods at once.
    pub registrations: Vec<RegistrationsReport>,
    /// Pods that become Ready one after the other.
    pub ready: Vec<ReadyReport>,
    /// The heartbeats of all pods.
    pub heartbeats: Vec<HeartbeatsReport>,
    /// Registries that lose their data.
    pub losses: Vec<LossReport>,
}

/// Starts a test cluster and the registries, measures, and ends them. Calls `say` with the progress.
///
/// # Errors
/// Fails if the test cluster, Podward or a registry does not start, or something does not happen within 15 minutes.
pub async fn run(options: &RegistriesOptions, say: impl Fn(&str)) -> Result<RegistriesReport> {
    let services = PodwardOptions {
        profile: options.profile.clone(),
        traffic_controllers: 0,
        bridges: 1,
        ..PodwardOptions::default()
    };
    // Without an audit log, which costs time.
    let cluster = TestCluster::builder(Shape::Simulated).name("registries");
    let cluster = cluster.simulated_nodes(nodes_for(options.pods));
    let cluster = SimulatedPodward::start(cluster, services, &say).await?;
    let bridge = Bridge::of(&cluster.podward)?;
    say(&format!("making {} pods", options.pods));
    let pods = BoundPods::start(&cluster.client()).await?;
    let seconds = pods.make_services(options.pods, options.pods_of_service).await?;
    say(&format!("all {} pods are Ready after {seconds:.0} s", options.pods));
    let bench = Bench { cluster: cluster.podward.cluster(), bridge: &bridge, pods: &pods, options };

    let mut report = RegistriesReport {
        pods: options.pods,
        pods_of_service: options.pods_of_service,
        comparisons: Vec::new(),
        registrations: Vec::new(),
        ready: Vec::new(),
        heartbeats: Vec::new(),
        losses: Vec::new(),
    };
    for name in options.of_part(RegistriesPart::Comparison) {
        say(&format!("{name}: comparisons with {} pods", options.pods));
        report.comparisons.push(comparison::measure(&bench, name).await?);
    }
    for name in options.of_part(RegistriesPart::Heartbeats) {
        say(&format!("{name}: heartbeats of {} pods", options.pods));
        report.heartbeats.push(heartbeats::measure(&bench, name).await?);
    }
    for name in options.of_part(RegistriesPart::Loss) {
        say(&format!("{name}: loss of its data"));
        report.losses.push(loss::measure(&bench, name).await?);
    }
    for name in options.of_part(RegistriesPart::Registrations) {
        say(&format!("{name}: registrations at once"));
        report.registrations.push(registrations::measure(&bench, name).await?);
    }
    for name in options.of_part(RegistriesPart::Ready) {
        say(&format!("{name}: {} pods become Ready one after the other", options.one_by_one));
        report.ready.push(ready::measure(&bench, name).await?);
    }
    cluster.end().await?;
    Ok(report)
}
