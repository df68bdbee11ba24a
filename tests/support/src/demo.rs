//! The demo: four things that happen to every Deployment, under load, each without Podward and with it, and what the clients lost.

mod act;
mod entry;
mod eviction;
mod scene;
mod table;
mod workload;

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Instant};

use anyhow::{Context, Result, bail};
use podward_testbed::{Bed, BedBuilder, ProxyMode, Shape, build_program};

use self::scene::{Scene, Side};
pub use self::{
    act::Act,
    entry::{Entry, Server},
    workload::{REPLICAS, Workload},
};
use crate::{Cluster, DemoImages, Installation, Options, Podward};

/// The name of the demo's bed.
const BED: &str = "demo";

/// What the demo is told.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Leave everything running.
    pub keep: bool,
    /// Where to write the [`Entry`]s as JSON.
    pub json: Option<PathBuf>,
    /// A cluster that is there already, instead of a bed.
    pub kubeconfig: Option<PathBuf>,
    /// With a cluster: the address at which its API server reaches this machine.
    pub address: Option<IpAddr>,
    /// How kube-proxy of a bed of our own leads traffic.
    pub proxy_mode: ProxyMode,
    /// The cargo profile of the services, the demo server and its client.
    pub profile: String,
    /// The images between which it updates.
    pub images: DemoImages,
    /// What is shown; all if empty.
    pub acts: Vec<Act>,
    /// How often each act is played with Podward.
    pub runs: usize,
    /// Leave out the acts without Podward.
    pub no_stock: bool,
    /// Leave out the acts with Podward.
    pub no_podward: bool,
    /// Requests a second, for each way to use connections.
    pub rate: u32,
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            keep: false,
            json: None,
            kubeconfig: None,
            address: None,
            proxy_mode: ProxyMode::default(),
            profile: "bench-lite".to_owned(),
            images: DemoImages::default(),
            acts: Vec::new(),
            runs: 1,
            no_stock: false,
            no_podward: false,
            rate: 300,
        }
    }
}

/// Runs the demo and prints what happens.
///
/// # Errors
/// When something can't be built or started, an act doesn't come to its end, or requests were lost with Podward.
pub async fn run(demo: Demo) -> Result<()> {
    let clock = Clock(Instant::now());
    let (cluster, client) = start_cluster(&demo, &clock).await?;
    let outcome = play(&demo, &cluster, client, &clock).await;
    if let Some(bed) = cluster.bed().filter(|_| !demo.keep) {
        if outcome.is_err() {
            bed.keep_logs();
            println!("logs are in {}", bed.logs_dir().display());
        }
        bed.down().await.context("end the bed")?;
    }
    outcome
}

/// The cluster, and the load client's program.
async fn start_cluster(demo: &Demo, clock: &Clock) -> Result<(Cluster, PathBuf)> {
    if let Some(kubeconfig) = &demo.kubeconfig {
        clock.say(&format!("use the cluster of {}", kubeconfig.display()));
        println!("{}", demo.images.how_to_load());
        return Ok((Cluster::existing(kubeconfig, demo.address).await?, PathBuf::new()));
    }
    clock.say("build the demo server and its client");
    let images = demo.images.build(&demo.profile).await?;
    let client = DemoImages::client(&demo.profile).await?;
    build_program("podward-testbed", "dev").await.context("build the keeper of beds")?;
    let mut builder = images
        .into_iter()
        .fold(Bed::builder(Shape::Node).name(BED).proxy_mode(demo.proxy_mode), BedBuilder::image);
    if !demo.no_podward {
        clock.say(&format!("build images of Podward's services (cargo profile {})", demo.profile));
        builder = Installation::prepare(builder, &demo.profile).await?;
    }
    clock.say("start a cluster with one real node");
    let bed = if demo.keep { Bed::up_detached(builder).await } else { builder.start().await };
    Ok((Cluster::of_bed(Arc::new(bed.context("start the demo's bed")?)), client))
}

/// First what a cluster does by itself, then, in the same cluster, what it does with Podward.
async fn play(demo: &Demo, cluster: &Cluster, client: PathBuf, clock: &Clock) -> Result<()> {
    let scene = Scene { demo, cluster, client, clock };
    let mut entries = Vec::new();
    if !demo.no_stock {
        entries.extend(scene.play_all(Side::Stock, 1).await?);
    }
    if !demo.no_podward {
        entries.extend(with_podward(&scene).await?);
    }
    println!("\n{}", table::render(&entries));
    if let Some(file) = &demo.json {
        let text = serde_json::to_string_pretty(&entries).context("write the entries as JSON")?;
        std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    let lost: u64 = entries.iter().filter(|entry| entry.podward).map(|entry| entry.failed).sum();
    if lost > 0 {
        bail!("{lost} requests were lost with Podward: that must not be");
    }
    Ok(())
}

/// Installs Podward by Helm and plays; where the cluster isn't ours, which has no images of it, its services run on this machine.
async fn with_podward(scene: &Scene<'_>) -> Result<Vec<Entry>> {
    let Scene { demo, cluster, clock, .. } = scene;
    if let Some(bed) = cluster.bed() {
        clock.say("install Podward by Helm");
        let installation = Installation::install(cluster, &[]).await?;
        let played = scene.play_all(Side::Podward, demo.runs).await;
        if demo.keep {
            println!("The cluster goes on as bed {}, logs in {}.", bed.id(), bed.logs_dir().display());
            println!("  cargo xtask testbed exec --name {BED} -- kubectl get pods -A --show-labels");
            println!("  export KUBECONFIG={}", bed.kubeconfig().display());
            println!("End it all: cargo xtask testbed down --name {BED}");
        }
        return match played {
            Ok(entries) => Ok(entries),
            Err(error) => Err(error.context(installation.last_words().await)),
        };
    }
    clock.say(&format!("start Podward's services (cargo profile {})", demo.profile));
    let options = Options { profile: demo.profile.clone(), ..Options::default() };
    let podward = Podward::start(cluster, options).await?;
    let played = scene.play_all(Side::Podward, demo.runs).await;
    let played = played.map_err(|error| error.context(podward.last_words()));
    if demo.keep {
        println!("Podward's services run until you press Ctrl-C.");
        tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    }
    podward.shutdown().await?;
    played
}

/// Says what is being done, and when.
struct Clock(Instant);

impl Clock {
    fn say(&self, what: &str) {
        println!("[{:6.1} s] {what}", self.0.elapsed().as_secs_f64());
    }
}
