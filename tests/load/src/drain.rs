//! Deletes and evictions of simulated pods: how long they take beside those of a cluster without Podward, what they write, and what
//! each service keeps in memory.
//!
//! Everything but the kubelets is real, as in [`operations`](crate::operations). Two parties hold each pod that is opted in: a traffic
//! loop by a finalizer, which lets go when it sees that it should, and the traffic-controller, as a hook, which finds no Service.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::{Api, Client, ResourceExt};
use podward_support::{Cluster, Kind, Options, Podward, Seen, TrafficLoop, Watching, observe};
use podward_testbed::{Bed, Shape};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};

use crate::audit::{self, Writes};
use crate::fleet::{self, Fleet};
use crate::times::Times;
use crate::usage::Usage;

const NAMESPACE: &str = "drain";
const LOOP: &str = "load-traffic";
/// Requests in flight of whoever drains.
const AT_ONCE: usize = 50;
/// How long `kubectl drain` waits when it is refused.
const ASK_AGAIN: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(600);

/// What is measured.
#[derive(Clone, Debug)]
pub struct DrainOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// Deletes one after the other, of pods of each sort.
    pub one_by_one: usize,
    /// Evictions at once, of pods of each sort.
    pub at_once: usize,
    /// Pods that are opted in, in all; at least the two above together.
    pub opted_in: usize,
    /// Pods, in all.
    pub pods: usize,
}

impl Default for DrainOptions {
    fn default() -> Self {
        let profile = "bench-lite".to_owned();
        DrainOptions { profile, one_by_one: 100, at_once: 500, opted_in: 1000, pods: 5000 }
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainReport {
    /// Pods there were, and how many of them were opted in.
    pub pods: usize,
    /// See `pods`.
    pub opted_in: usize,
    /// Memory of each service at rest with all pods there, in MiB.
    pub rss_mib: BTreeMap<String, f64>,
    /// From the delete of a pod that is not opted in until it is gone.
    pub stock: Times,
    /// From the delete of a pod that is opted in until it is gone.
    pub held: Times,
    /// Podward's writes for one of the latter.
    pub writes: Writes,
    /// How many were evicted at once.
    pub evicted: usize,
    /// From the first eviction until all were gone, pods that are not opted in, in seconds.
    pub stock_drain_seconds: f64,
    /// The same, pods that are opted in.
    pub held_drain_seconds: f64,
    /// Podward's writes for one of the latter.
    pub drain_writes: Writes,
}

/// Brings a bed up, measures, takes it down. `say` is told how it goes.
///
/// # Errors
/// When the bed or Podward doesn't start, or a pod doesn't go.
pub async fn run(options: &DrainOptions, say: impl Fn(&str)) -> Result<DrainReport> {
    say("starting a simulated cluster");
    let bed =
        Bed::builder(Shape::Simulated).name("drain").simulated_nodes(10).audit_log(true).start().await?;
    let bed = Arc::new(bed);
    let cluster = Cluster::of_bed(bed.clone());
    say("starting Podward");
    let services = Options { profile: options.profile.clone(), ..Options::default() };
    let podward = Podward::start(&cluster, services).await?;
    let audit = bed.audit_log().context("the bed writes no audit log")?;

    say(&format!("making {} pods, {} of them opted in", options.pods, options.opted_in));
    let bare = options.one_by_one + options.at_once;
    let fleet = Fleet::start(&cluster.client(), NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let _traffic = TrafficLoop::start(Api::namespaced(cluster.client(), NAMESPACE), fleet::OPTED_IN, LOOP);
    let mut stock = fleet.make_bare("stock", bare, false).await?;
    let mut held = fleet.make_bare("held", bare, true).await?;
    let opted_in = options.opted_in.saturating_sub(bare);
    fleet.make(opted_in, options.pods.saturating_sub(options.opted_in + bare)).await?;
    fleet.until_available(&held).await?;
    fleet.settle().await;
    let rss_mib = memory(&podward)?;
    let drainer = Drainer::start(&cluster.client()).await?;

    let (stock_at_once, held_at_once) =
        (stock.split_off(options.one_by_one), held.split_off(options.one_by_one));
    say("deletes one by one");
    let stock = drainer.one_by_one(&stock).await?;
    let (times, writes) = counted(&audit, &fleet, held.len(), drainer.one_by_one(&held)).await?;

    say(&format!("{} evictions at once", options.at_once));
    let stock_drain_seconds = drainer.evict(&stock_at_once).await?;
    let drain = drainer.evict(&held_at_once);
    let (held_drain_seconds, drain_writes) = counted(&audit, &fleet, held_at_once.len(), drain).await?;

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
        drain_writes,
    };
    drop(podward);
    bed.down().await?;
    Ok(report)
}

/// Resident memory of each service, in MiB.
fn memory(podward: &Podward) -> Result<BTreeMap<String, f64>> {
    let kinds =
        [Kind::LifecycleController, Kind::TrafficController, Kind::MutatingWebhook, Kind::ValidatingWebhook];
    kinds.into_iter().map(|kind| Ok((kind.to_string(), Usage::of(podward, kind)?.rss_mib()?))).collect()
}

/// What `work` on so many pods gives, and what Podward wrote for each, also late.
async fn counted<T>(
    audit: &Path,
    fleet: &Fleet,
    pods: usize,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Writes)> {
    let mark = audit::mark(audit)?;
    let result = work.await?;
    fleet.settle().await;
    Ok((result, audit::since(audit, mark)?.per_operation(pods)))
}

/// Who wants pods gone, and sees them go.
struct Drainer {
    pods: Api<Pod>,
    gone: watch::Receiver<HashSet<String>>,
    _watching: Watching,
}

impl Drainer {
    async fn start(client: &Client) -> Result<Drainer> {
        let (sender, gone) = watch::channel(HashSet::new());
        let watching = observe(client.clone(), NAMESPACE, "", move |seen| {
            if let Seen::Gone(pod) = seen {
                sender.send_modify(|gone| {
                    gone.insert(pod.name_any());
                });
            }
        });
        let pods = Api::namespaced(client.clone(), NAMESPACE);
        Ok(Drainer { pods, gone, _watching: watching.await? })
    }

    /// Deletes each when the one before is gone. Gives the times in milliseconds.
    async fn one_by_one(&self, names: &[String]) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(names.len());
        for name in names {
            let begun = Instant::now();
            let answer = self.pods.delete(name, &DeleteParams::default()).await.map(drop);
            held_or_done(answer).with_context(|| format!("delete pod {name}"))?;
            self.until_gone(std::slice::from_ref(name)).await?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    }

    /// Evicts all at once, as `kubectl drain` does: whoever is refused asks again after 5 s, until his pod is gone. Gives the seconds
    /// until all are gone.
    async fn evict(&self, names: &[String]) -> Result<f64> {
        let begun = Instant::now();
        let slots = Semaphore::new(AT_ONCE);
        let evict = async |name: &String| {
            loop {
                let slot = slots.acquire().await?;
                let answer = self.pods.evict(name, &EvictParams::default()).await.map(drop);
                drop(slot);
                if is_gone(&answer) {
                    return anyhow::Ok(());
                }
                held_or_done(answer).with_context(|| format!("evict pod {name}"))?;
                let gone = self.until_gone(std::slice::from_ref(name));
                if let Ok(gone) = tokio::time::timeout(ASK_AGAIN, gone).await {
                    return gone;
                }
            }
        };
        futures::future::try_join_all(names.iter().map(evict)).await?;
        self.until_gone(names).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    async fn until_gone(&self, names: &[String]) -> Result<()> {
        let mut gone = self.gone.clone();
        let all = gone.wait_for(|gone| names.iter().all(|name| gone.contains(name)));
        let waited = tokio::time::timeout(DEADLINE, all).await;
        waited.with_context(|| format!("waited {} s in vain for pods to go", DEADLINE.as_secs()))??;
        Ok(())
    }
}

fn is_gone(answer: &kube::Result<()>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 404)
}

/// 429 is how Podward says that it will see to it.
fn held_or_done(answer: kube::Result<()>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(()),
        other => other,
    }
}
