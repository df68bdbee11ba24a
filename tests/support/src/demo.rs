//! The demo: six pods behind a Service are updated in place, two at a time, while a second operator works on one of them and a
//! third cancels. A timeline shows that none was touched while it was in service.

mod scenario;
mod verdict;
mod workload;

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Instant};

use anyhow::{Context, Result, bail};
use podward_testbed::{Bed, Shape, build_program};

use self::{verdict::Verdict, workload::Workload};
use crate::{Cluster, DemoImages, Options, PodFeed, Podward, Timeline, TrafficLoop, timeline::render};

/// The name of the demo's bed.
const BED: &str = "demo";

/// What the demo is told.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Leave everything running.
    pub keep: bool,
    /// Where to write the timeline for machines.
    pub json: Option<PathBuf>,
    /// A cluster that is there already, instead of a bed.
    pub kubeconfig: Option<PathBuf>,
    /// With a cluster: the address at which its API server reaches this machine.
    pub address: Option<IpAddr>,
    /// The cargo profile of the services and of the demo server.
    pub profile: String,
    /// The images between which it updates.
    pub images: DemoImages,
}

impl Default for Demo {
    fn default() -> Self {
        let images = DemoImages::default();
        Self {
            keep: false,
            json: None,
            kubeconfig: None,
            address: None,
            profile: "bench-lite".to_owned(),
            images,
        }
    }
}

/// Runs the demo and prints what happens.
///
/// # Errors
/// When something can't be built or started, an operation doesn't come to its end, or an invariant failed.
pub async fn run(demo: Demo) -> Result<()> {
    let clock = Clock(Instant::now());
    let cluster = start_cluster(&demo, &clock).await?;
    let podward = async {
        clock.say(&format!("start Podward's services (cargo profile {})", demo.profile));
        Podward::start(&cluster, Options { profile: demo.profile.clone(), ..Options::default() }).await
    };
    let outcome = match podward.await {
        Ok(podward) => {
            let shown =
                show(&demo, &cluster, &clock).await.map_err(|error| error.context(podward.last_words()));
            finish(&demo, &cluster, &podward).await.and(shown)
        }
        Err(error) => Err(error),
    };
    if let Some(bed) = cluster.bed().filter(|_| !demo.keep) {
        if outcome.is_err() {
            bed.keep_logs();
            println!("logs are in {}", bed.logs_dir().display());
        }
        bed.down().await.context("end the bed")?;
    }
    outcome
}

async fn start_cluster(demo: &Demo, clock: &Clock) -> Result<Cluster> {
    if let Some(kubeconfig) = &demo.kubeconfig {
        clock.say(&format!("use the cluster of {}", kubeconfig.display()));
        println!("{}", demo.images.how_to_load());
        return Cluster::existing(kubeconfig, demo.address).await;
    }
    clock.say("build the demo server");
    let images = demo.images.build(&demo.profile).await?;
    build_program("podward-testbed", "dev").await.context("build the keeper of beds")?;
    clock.say("start a cluster with one real node");
    let builder =
        images.into_iter().fold(Bed::builder(Shape::Node).name(BED), |builder, image| builder.image(image));
    let bed = if demo.keep { Bed::up_detached(builder).await } else { builder.start().await };
    Ok(Cluster::of_bed(Arc::new(bed.context("start the demo's bed")?)))
}

async fn show(demo: &Demo, cluster: &Cluster, clock: &Clock) -> Result<()> {
    let workload = Workload { client: cluster.client(), image: demo.images.v1.clone() };
    clock.say(&format!("deploy {} pods of {} behind a Service", workload::REPLICAS, demo.images.v1));
    workload.create_namespace().await?;
    let timeline = Timeline::start(cluster.client(), workload::NAMESPACE, workload::SELECTOR).await?;
    let feed = PodFeed::start(cluster.client(), workload::NAMESPACE, workload::SELECTOR).await?;
    let traffic = TrafficLoop::start(feed.api(), workload::SELECTOR, workload::CONSUMER);
    let shown = async {
        workload.deploy(traffic.finalizer()).await?;
        let pods = workload.until_available(&feed).await?;
        clock.say(&format!(
            "update all to {} in place, two at a time, with another operation and a cancel",
            demo.images.v2
        ));
        let started = Instant::now();
        scenario::play(&feed, &pods, &demo.images.v2).await?;
        let took = started.elapsed();
        clock.say("done");
        timeline.catch_up().await?;
        timeline.come_to_rest().await;
        let report = timeline.report(true);
        report.pods.iter().for_each(|pod| println!("\n{}", render::pod(pod)));
        println!("{}", render::table(&report));
        let verdict = Verdict::of(report, &feed.all(), &pods, &demo.images, took);
        if let Some(file) = &demo.json {
            let text = serde_json::to_string_pretty(&verdict).context("write the timeline as JSON")?;
            std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
        }
        println!("{verdict}");
        if verdict.is_right() { Ok(()) } else { bail!("the demo shows that something is wrong") }
    };
    let shown = shown.await;
    if !demo.keep && !cluster.is_ours() {
        workload.remove(&feed).await?;
    }
    shown
}

/// Leaves everything running and says so, or takes away what was put into a cluster that isn't ours.
async fn finish(demo: &Demo, cluster: &Cluster, podward: &Podward) -> Result<()> {
    match (cluster.bed(), demo.keep) {
        (Some(bed), true) => {
            println!(
                "The cluster goes on as bed {}, logs in {}. Look at it:",
                bed.id(),
                bed.logs_dir().display()
            );
            println!(
                "  cargo xtask testbed exec --name {BED} -- kubectl get pods -n {} --show-labels",
                workload::NAMESPACE
            );
            println!("  export KUBECONFIG={}", bed.kubeconfig().display());
            println!(
                "The operators and the traffic loop ended with the demo: the pods keep its finalizer. End it all:"
            );
            println!("  cargo xtask testbed down --name {BED}");
            Ok(())
        }
        (Some(_), false) => Ok(()),
        (None, keep) => {
            if keep {
                println!("Podward's services run until you press Ctrl-C. Look at the pods:");
                println!("  kubectl get pods -n {} --show-labels", workload::NAMESPACE);
                tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
                let workload = Workload { client: cluster.client(), image: demo.images.v1.clone() };
                let feed = PodFeed::start(cluster.client(), workload::NAMESPACE, workload::SELECTOR).await?;
                let _traffic = TrafficLoop::start(feed.api(), workload::SELECTOR, workload::CONSUMER);
                workload.remove(&feed).await?;
            }
            podward.shutdown().await
        }
    }
}

/// Says what is being done, and when.
struct Clock(Instant);

impl Clock {
    fn say(&self, what: &str) {
        println!("[{:6.1} s] {what}", self.0.elapsed().as_secs_f64());
    }
}
