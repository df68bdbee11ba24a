//! Measures deletes and evictions of simulated pods: their duration with and without Podward, their writes, and the
//! memory of each service.
//!
//! Everything except the kubelets is real, as in [`operations`](crate::operations). Two consumers hold each pod that
//! is opted in: a traffic loop with a finalizer, which drains at once, and the traffic-controller, a hook, which
//! finds no Service.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::{Api, Client, ResourceExt};
use podward_support::{PodFeedEvent, Podward, ServiceKind, TrafficLoop, WatchTask, observe};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};

use crate::audit::{self, Writes};
use crate::bare_writes::BareWrites;
use crate::fleet::{self, PodFleet, TimeOut};
use crate::simulated::SimulatedPodward;
use crate::times::{Times, pause};
use crate::usage::Usage;

const NAMESPACE: &str = "drain";
const LOOP: &str = "load-traffic";
/// The number of concurrent requests of the drain.
const MAX_CONCURRENT: usize = 50;
/// The time that `kubectl drain` waits after a rejected eviction.
const ASK_AGAIN: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(600);

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct DrainOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The number of deletes one after the other, for each kind of pod.
    pub one_by_one: usize,
    /// The number of concurrent evictions, for each kind of pod.
    pub at_once: usize,
    /// The number of pods that are opted in. At least the sum of the two above.
    pub opted_in: usize,
    /// The total number of pods.
    pub pods: usize,
    /// True if new pods that are opted in have no managed fields.
    pub drops_managed_fields: bool,
}

impl Default for DrainOptions {
    fn default() -> Self {
        let profile = "bench-lite".to_owned();
        DrainOptions {
            profile,
            one_by_one: 100,
            at_once: 500,
            opted_in: 1000,
            pods: 5000,
            drops_managed_fields: false,
        }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainReport {
    /// The total number of pods.
    pub pods: usize,
    /// The number of pods that are opted in.
    pub opted_in: usize,
    /// The memory of each service at rest with all pods, in MiB.
    pub rss_mib: BTreeMap<String, f64>,
    /// The time from the delete of a pod that is not opted in until it is gone.
    pub stock: Times,
    /// The time from the delete of a pod that is opted in until it is gone.
    pub held: Times,
    /// Podward's writes per delete of a pod that is opted in.
    pub writes: Writes,
    /// The number of concurrent evictions.
    pub evicted: usize,
    /// The time from the first eviction until all pods that are not opted in are gone, in seconds.
    pub stock_drain_seconds: f64,
    /// The time from the first eviction until all pods that are opted in are gone, in seconds.
    pub held_drain_seconds: f64,
    /// The time from the gate's change to False until an evicted pod that is opted in is deleted. What the simulated kubelet
    /// needs to end it comes after.
    pub held_drain_out: Times,
    /// Podward's writes per eviction of a pod that is opted in.
    pub drain_writes: Writes,
    /// The CPU time of the API server per eviction of a pod that is not opted in, until all are gone, in milliseconds.
    pub stock_api_server_cpu_ms: f64,
    /// The same of pods that are opted in.
    pub held_api_server_cpu_ms: f64,
    /// The same cluster without Podward's work.
    pub bare: BareWrites,
}

/// Starts a test cluster, measures, and ends it. Calls `say` with the progress.
///
/// # Errors
/// Fails if the test cluster or Podward does not start, or a pod is not deleted.
pub async fn run(options: &DrainOptions, say: impl Fn(&str)) -> Result<DrainReport> {
    let services = SimulatedPodward::services(&options.profile, options.drops_managed_fields);
    let cluster = SimulatedPodward::start(SimulatedPodward::audited("drain", 10), services, &say).await?;
    let audit = cluster.audit()?;

    say(&format!("making {} pods, {} of them opted in", options.pods, options.opted_in));
    let bare = options.one_by_one + options.at_once;
    let fleet = PodFleet::start(&cluster.client(), NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let _traffic = TrafficLoop::start(Api::namespaced(cluster.client(), NAMESPACE), fleet::OPTED_IN, LOOP);
    let mut stock = fleet.make_bare("stock", bare, false).await?;
    let mut held = fleet.make_bare("held", bare, true).await?;
    let opted_in = options.opted_in.saturating_sub(bare);
    fleet.make(opted_in, options.pods.saturating_sub(options.opted_in + bare)).await?;
    fleet.until_available(&held).await?;
    fleet.settle().await;
    let rss_mib = memory(&cluster.podward)?;
    let drainer = Drainer::start(&cluster.client()).await?;

    let (stock_at_once, held_at_once) =
        (stock.split_off(options.one_by_one), held.split_off(options.one_by_one));
    say("bare writes");
    let api_server = Usage::of_api_server(&cluster.test_cluster)?;
    let bare = BareWrites::measure(&cluster.client(), NAMESPACE, fleet::BYSTANDERS, &api_server).await?;
    fleet.settle().await;

    say("deletes one by one");
    let stock = drainer.one_by_one(&stock).await?;
    let (times, writes) = counted(&audit, &fleet, held.len(), drainer.one_by_one(&held)).await?;

    say(&format!("{} evictions at once", options.at_once));
    let (stock_drain_seconds, stock_api_server_cpu_ms) = drainer.evict(&stock_at_once, &api_server).await?;
    let drain = drainer.evict(&held_at_once, &api_server);
    let ((held_drain_seconds, held_api_server_cpu_ms), drain_writes) =
        counted(&audit, &fleet, held_at_once.len(), drain).await?;

    let report = DrainReport {
        pods: options.pods,
        opted_in: options.opted_in,
        rss_mib,
        stock: Times::of(stock),
        held: Times::of(times),
        writes,
        evicted: options.at_once,
        stock_drain_seconds,
        held_drain_seconds,
        held_drain_out: drainer.times_out_of_service(&held_at_once),
        drain_writes,
        stock_api_server_cpu_ms,
        held_api_server_cpu_ms,
        bare,
    };
    cluster.end().await?;
    Ok(report)
}

/// Returns the resident memory of each service, in MiB.
fn memory(podward: &Podward) -> Result<BTreeMap<String, f64>> {
    let kinds = [
        ServiceKind::LifecycleController,
        ServiceKind::TrafficController,
        ServiceKind::MutatingWebhook,
        ServiceKind::ValidatingWebhook,
    ];
    kinds.into_iter().map(|kind| Ok((kind.to_string(), Usage::of(podward, kind)?.rss_mib()?))).collect()
}

/// Returns the result of `work` on `count` pods, and Podward's writes per pod, including late ones.
async fn counted<T>(
    audit: &Path,
    fleet: &PodFleet,
    pods: usize,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Writes)> {
    let mark = audit::mark(audit)?;
    let result = work.await?;
    fleet.settle().await;
    Ok((result, audit::since(audit, mark)?.per_operation(pods)))
}

/// Deletes and evicts pods, and waits until they are gone.
struct Drainer {
    pods: Api<Pod>,
    /// The pods that are gone, with the time from the gate's change to False until they were deleted.
    gone: watch::Receiver<HashMap<String, Option<Duration>>>,
    _watching: WatchTask,
}

impl Drainer {
    async fn start(client: &Client) -> Result<Drainer> {
        let (sender, gone) = watch::channel(HashMap::new());
        let mut out: HashMap<String, TimeOut> = HashMap::new();
        let watching = observe(client.clone(), NAMESPACE, "", move |seen| match seen {
            PodFeedEvent::Version(pod) => {
                let is_deleted = pod.metadata.deletion_timestamp.is_some();
                out.entry(pod.name_any()).or_default().observe(&pod, is_deleted);
            }
            PodFeedEvent::Gone(pod) => {
                let out = out.remove(&pod.name_any()).and_then(|out| out.until_end());
                sender.send_modify(|gone| {
                    gone.insert(pod.name_any(), out);
                });
            }
            PodFeedEvent::Gap | PodFeedEvent::Left(_) => {}
        });
        let pods = Api::namespaced(client.clone(), NAMESPACE);
        Ok(Drainer { pods, gone, _watching: watching.await? })
    }

    /// Deletes each pod when the one before is gone. Returns the times in milliseconds.
    async fn one_by_one(&self, names: &[String]) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(names.len());
        for (number, name) in names.iter().enumerate() {
            pause(number).await;
            let begun = Instant::now();
            let answer = self.pods.delete(name, &DeleteParams::default()).await.map(drop);
            held_or_done(answer).with_context(|| format!("delete pod {name}"))?;
            self.until_gone(std::slice::from_ref(name)).await?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    }

    /// Evicts all pods at once, as `kubectl drain` does: a rejected eviction is tried again after 5 s, until one is
    /// accepted or the pod is gone. Returns the time until all are gone, in seconds, and the CPU time of the API server for
    /// each, in milliseconds.
    async fn evict(&self, names: &[String], api_server: &Usage) -> Result<(f64, f64)> {
        let (begun, cpu) = (Instant::now(), api_server.cpu_ms()?);
        let slots = Semaphore::new(MAX_CONCURRENT);
        let evict = async |name: &String| {
            loop {
                let slot = slots.acquire().await?;
                let answer = self.pods.evict(name, &EvictParams::default()).await;
                drop(slot);
                match answer {
                    Err(kube::Error::Api(status)) if status.code == 404 => return anyhow::Ok(()),
                    Err(kube::Error::Api(status)) if status.code == 429 => {}
                    other => return other.map(drop).with_context(|| format!("evict pod {name}")),
                }
                let gone = self.until_gone(std::slice::from_ref(name));
                if let Ok(gone) = tokio::time::timeout(ASK_AGAIN, gone).await {
                    return gone;
                }
            }
        };
        futures::future::try_join_all(names.iter().map(evict)).await?;
        self.until_gone(names).await?;
        Ok((begun.elapsed().as_secs_f64(), (api_server.cpu_ms()? - cpu) / names.len() as f64))
    }

    /// Returns for how long the gate of each of these pods, which are gone, was False before they were deleted.
    fn times_out_of_service(&self, names: &[String]) -> Times {
        let gone = self.gone.borrow();
        Times::of_durations(names.iter().filter_map(|name| *gone.get(name)?))
    }

    async fn until_gone(&self, names: &[String]) -> Result<()> {
        let mut gone = self.gone.clone();
        let all = gone.wait_for(|gone| names.iter().all(|name| gone.contains_key(name)));
        let waited = tokio::time::timeout(DEADLINE, all).await;
        waited.with_context(|| format!("waited {} s in vain for pods to go", DEADLINE.as_secs()))??;
        Ok(())
    }
}

/// Accepts 429: Podward will delete the pod.
fn held_or_done(answer: kube::Result<()>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(()),
        other => other,
    }
}
