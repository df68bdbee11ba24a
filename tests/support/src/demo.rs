//! The demo: four operations on a Deployment under load, each without and with Podward, and the requests that clients
//! lost.

mod act;
mod clients;
mod clock;
pub mod cloneset;
mod dashboard;
mod entry;
mod eviction;
mod options;
mod pictures;
pub mod registry;
mod runner;
mod server;
mod table;
mod workload;

use std::{path::PathBuf, sync::Arc, time::Instant};

use anyhow::{Context, Result, bail};
use podward_images::{DemoImages, build_program};
use podward_testbed::{Shape, TestCluster, TestClusterBuilder};

pub use self::{
    act::Act,
    clients::DemoClients,
    entry::DemoEntry,
    options::Demo,
    server::DemoServer,
    workload::{CPU_REQUEST, DemoWorkload, REPLICAS},
};
use self::{
    clock::DemoClock,
    dashboard::MetricsRecorder,
    runner::{DemoRunner, DemoSide},
};
use crate::{Cluster, Installation, PodSecurity, Podward, PodwardOptions};

/// The name of the demo's test cluster.
const CLUSTER_NAME: &str = "demo";

/// Runs the demo and prints the results.
///
/// # Errors
/// Fails if something cannot be built or started, an act does not end, or requests were lost with Podward.
pub async fn run(demo: Demo) -> Result<()> {
    let clock = DemoClock(Instant::now());
    if let Some(dir) = &demo.pictures {
        clock.say("build kubectl's plugin, which draws the trace");
        pictures::prepare(dir).await?;
    }
    let (cluster, client) = start_cluster(&demo, &clock).await?;
    let outcome = play(&demo, &cluster, client, &clock).await;
    end_cluster(&demo, &cluster, outcome).await
}

/// Returns the cluster and the path of the load client.
async fn start_cluster(demo: &Demo, clock: &DemoClock) -> Result<(Cluster, PathBuf)> {
    if let Some(kubeconfig) = &demo.kubeconfig {
        clock.say(&format!("use the cluster of {}", kubeconfig.display()));
        println!("{}", demo.images.how_to_load());
        return Ok((Cluster::existing(kubeconfig, demo.address).await?, PathBuf::new()));
    }
    clock.say("build the demo server and its client");
    let images = demo.images.build(&demo.profile).await?;
    let client = DemoImages::client(&demo.profile).await?;
    build_program("podward-testbed", "dev").await.context("build the supervisor of test clusters")?;
    let mut builder = images.into_iter().fold(
        TestCluster::builder(Shape::Node).name(CLUSTER_NAME).proxy_mode(demo.proxy_mode).nodes(demo.nodes),
        TestClusterBuilder::image,
    );
    if !demo.no_podward {
        clock.say(&format!("build images of Podward's services (cargo profile {})", demo.profile));
        builder = Installation::prepare(builder, &demo.profile).await?;
    }
    clock.say(&match demo.nodes {
        1 => "start a cluster with one real node".to_owned(),
        nodes => format!("start a cluster with {nodes} real nodes"),
    });
    let test_cluster =
        if demo.keep { TestCluster::up_detached(builder).await } else { builder.start().await };
    Ok((Cluster::of_test_cluster(Arc::new(test_cluster.context("start the demo's test cluster")?)), client))
}

/// Ends the test cluster, unless it is to be kept. After a failure it keeps the logs.
async fn end_cluster(demo: &Demo, cluster: &Cluster, outcome: Result<()>) -> Result<()> {
    if let Some(test_cluster) = cluster.test_cluster().filter(|_| !demo.keep) {
        if outcome.is_err() {
            test_cluster.keep_logs();
            println!("logs are in {}", test_cluster.logs_dir().display());
        }
        test_cluster.down().await.context("end the test cluster")?;
    }
    outcome
}

/// Runs the acts without Podward, then, in the same cluster, with Podward.
async fn play(demo: &Demo, cluster: &Cluster, client: PathBuf, clock: &DemoClock) -> Result<()> {
    let runner = DemoRunner { demo, cluster, client, clock };
    let mut entries = Vec::new();
    if !demo.no_stock {
        entries.extend(runner.play_all(DemoSide::Stock, 1).await?);
    }
    if demo.no_podward {
        return report(demo, &entries);
    }
    let recorder = match demo.pictures.as_ref().zip(cluster.test_cluster()) {
        Some((dir, test_cluster)) => Some((dir, MetricsRecorder::start(cluster, test_cluster).await?)),
        None => None,
    };
    entries.extend(with_podward(&runner).await?);
    let reported = report(demo, &entries);
    let drawn = match recorder {
        Some((dir, recorder)) => recorder.draw(cluster, dir).await.context("draw the dashboard"),
        None => Ok(()),
    };
    reported.and(drawn)
}

/// Prints the results, and writes them to the file of the options.
///
/// # Errors
/// Fails if requests were lost with Podward.
fn report(demo: &Demo, entries: &[DemoEntry]) -> Result<()> {
    println!("\n{}", table::render(entries));
    if let Some(file) = &demo.json {
        let text = serde_json::to_string_pretty(entries).context("write the entries as JSON")?;
        std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    if let Some(dir) = &demo.pictures {
        pictures::draw_losses(dir, entries)?;
    }
    let lost: u64 = entries.iter().filter(|entry| entry.podward).map(|entry| entry.failed).sum();
    if lost > 0 {
        bail!("{lost} requests were lost with Podward: that must not be");
    }
    Ok(())
}

/// Installs Podward with Helm and runs the acts. An existing cluster does not have the images, so that Podward's
/// services run on this machine.
async fn with_podward(runner: &DemoRunner<'_>) -> Result<Vec<DemoEntry>> {
    let DemoRunner { demo, cluster, clock, .. } = runner;
    if let Some(test_cluster) = cluster.test_cluster() {
        clock.say("install Podward by Helm");
        let installation = Installation::install(cluster, &[]).await?;
        if demo.node_agent {
            clock.say("install the node-agent");
            installation.apply_namespace(PodSecurity::Privileged).await?;
            installation.upgrade(&["global.nodeAgent.enabled=true"]).await?;
        }
        let played = runner.play_all(DemoSide::Podward, demo.runs).await;
        if demo.keep {
            tell_how_to_use(test_cluster);
        }
        return match played {
            Ok(entries) => Ok(entries),
            Err(error) => Err(error.context(installation.diagnostics().await)),
        };
    }
    clock.say(&format!("start Podward's services (cargo profile {})", demo.profile));
    let options = PodwardOptions { profile: demo.profile.clone(), ..PodwardOptions::default() };
    let podward = Podward::start(cluster, options).await?;
    let played = runner.play_all(DemoSide::Podward, demo.runs).await;
    let played = played.map_err(|error| error.context(podward.diagnostics()));
    if demo.keep {
        println!("Podward's services run until you press Ctrl-C.");
        tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    }
    podward.shutdown().await?;
    played
}

/// Prints how to use a cluster that is kept.
fn tell_how_to_use(test_cluster: &TestCluster) {
    println!(
        "The cluster goes on as test cluster {}, logs in {}.",
        test_cluster.id(),
        test_cluster.logs_dir().display()
    );
    println!("  cargo xtask testbed exec --name {CLUSTER_NAME} -- kubectl get pods -A --show-labels");
    println!("  export KUBECONFIG={}", test_cluster.kubeconfig().display());
    println!("End it all: cargo xtask testbed down --name {CLUSTER_NAME}");
}
