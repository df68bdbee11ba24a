//! Measures rolling restarts of a Deployment: their duration with and without Podward, and Podward's writes.
//!
//! Everything except the kubelets is real, as in [`operations`](crate::operations). There are two Deployments of the
//! same size, and only one has opted in. They are restarted one after the other. A traffic loop holds each pod that is
//! opted in by a finalizer and drains at once. The traffic-controller runs too and finds no Service.

mod rollout;

use anyhow::Result;
use kube::Api;
use podward_support::TrafficLoop;
use serde::{Deserialize, Serialize};

use crate::audit::{self, Writes};
use crate::bare_writes::BareWrites;
use crate::fleet::{self, PodFleet};
use crate::simulated::SimulatedPodward;
use crate::usage::Usage;
use rollout::Rollout;

const NAMESPACE: &str = "restart";
const LOOP: &str = "load-traffic";

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct RestartOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The number of pods of each of the two Deployments.
    pub pods: usize,
    /// True if new pods that are opted in have no managed fields.
    pub drops_managed_fields: bool,
}

impl Default for RestartOptions {
    fn default() -> Self {
        RestartOptions { profile: "bench-lite".to_owned(), pods: 500, drops_managed_fields: false }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestartReport {
    /// The number of pods of each Deployment.
    pub pods: usize,
    /// The Deployment that has not opted in.
    pub stock: RestartCost,
    /// The Deployment that has opted in.
    pub held: RestartCost,
    /// The time of the second, as a multiple of that of the first.
    pub ratio: f64,
    /// Podward's writes per pod of the Deployment that has opted in: to the old pod and to the one that replaces it.
    pub writes: Writes,
    /// The same cluster without Podward's work.
    pub bare: BareWrites,
}

/// A restart of one Deployment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestartCost {
    /// The time from the patch until the rollout is complete and all old pods are gone, in seconds.
    pub seconds: f64,
    /// The CPU time of the API server in this time, in milliseconds per pod.
    pub api_server_cpu_ms: f64,
}

/// Starts a test cluster, measures, and ends it. Calls `say` with the progress.
///
/// # Errors
/// Fails if the test cluster or Podward does not start, or a restart does not end.
pub async fn run(options: &RestartOptions, say: impl Fn(&str)) -> Result<RestartReport> {
    let services = SimulatedPodward::services(&options.profile, options.drops_managed_fields);
    let cluster = SimulatedPodward::start(SimulatedPodward::audited("restart", 10), services, &say).await?;
    let audit = cluster.audit()?;

    say(&format!("making two Deployments of {} pods", options.pods));
    let client = cluster.client();
    let fleet = PodFleet::start(&client, NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let _traffic = TrafficLoop::start(Api::namespaced(client.clone(), NAMESPACE), fleet::OPTED_IN, LOOP);
    fleet.make(options.pods, options.pods).await?;
    let stock = Rollout::start(&client, NAMESPACE, fleet::BYSTANDER).await?;
    let held = Rollout::start(&client, NAMESPACE, fleet::MEMBER).await?;
    fleet.settle().await;

    say("bare writes");
    let api_server = Usage::of_api_server(&cluster.test_cluster)?;
    let bare = BareWrites::measure(&client, NAMESPACE, fleet::BYSTANDERS, &api_server).await?;
    fleet.settle().await;

    say("restart without Podward");
    let stock = cost(&stock, options.pods, &api_server).await?;
    fleet.settle().await;
    say("restart with Podward");
    let mark = audit::mark(&audit)?;
    let held = cost(&held, options.pods, &api_server).await?;
    fleet.settle().await;
    let writes = audit::since(&audit, mark)?.per_operation(options.pods);

    let ratio = held.seconds / stock.seconds;
    let report = RestartReport { pods: options.pods, stock, held, ratio, writes, bare };
    cluster.end().await?;
    Ok(report)
}

async fn cost(rollout: &Rollout, pods: usize, api_server: &Usage) -> Result<RestartCost> {
    let cpu = api_server.cpu_ms()?;
    let seconds = rollout.restart().await?.as_secs_f64();
    Ok(RestartCost { seconds, api_server_cpu_ms: (api_server.cpu_ms()? - cpu) / pods as f64 })
}
