//! The demo of CloneSets: updates in place, a rolling recreate and a scale-in under load, and the states of the pods.

mod set;
mod timeline;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use demo_client::Connections;

use self::set::DemoSet;
use self::timeline::Timeline;
use super::act::Act;
use super::clients::{ClientOptions, RunningClients};
use super::clock::DemoClock;
use super::entry::DemoEntry;
use super::options::Demo;
use super::server::DemoServer;
use super::{end_cluster, report, runner, start_cluster, tell_how_to_use};
use crate::markers::{ASKING, MarkerOperator};
use crate::{Cluster, Installation};

/// The value of the chart that installs the cloneset-controller.
pub const WITH_CLONESETS: &str = "cloneset.enabled=true";

/// The acts: an update in place, one that recreates the pods, and a scale-in.
const ACTS: [Act; 3] = [Act::InPlaceUpdate, Act::RollingUpdate, Act::ScaleIn];
/// The time that the load goes on after an act.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Runs the demo and prints the results.
///
/// # Errors
/// Fails if something cannot be built or started, an act does not end, a pod skips a state, or requests were lost.
pub async fn run(demo: Demo) -> Result<()> {
    let clock = DemoClock(Instant::now());
    let (cluster, client) = start_cluster(&demo, &clock).await?;
    let outcome = play_all(&demo, &cluster, &client, &clock).await;
    end_cluster(&demo, &cluster, outcome).await
}

async fn play_all(demo: &Demo, cluster: &Cluster, client: &Path, clock: &DemoClock) -> Result<()> {
    clock.say("install Podward by Helm, with the cloneset-controller");
    let installation = Installation::install(cluster, &[WITH_CLONESETS]).await?;
    let played = async {
        let mut entries = Vec::new();
        for run in 1..=demo.runs {
            for act in ACTS.into_iter().filter(|act| demo.includes(*act)) {
                for server in [DemoServer::ExitsAtOnce, DemoServer::Graceful] {
                    let played = play(demo, cluster, client, clock, (act, run), server);
                    entries.extend(played.await.with_context(|| format!("{act}, server {}", server.mode()))?);
                }
            }
        }
        anyhow::Ok(entries)
    }
    .await;
    if let Some(test_cluster) = cluster.test_cluster().filter(|_| demo.keep) {
        tell_how_to_use(test_cluster);
    }
    match played {
        Ok(entries) => report(demo, &entries),
        Err(error) => Err(error.context(installation.diagnostics().await)),
    }
}

async fn play(
    demo: &Demo,
    cluster: &Cluster,
    client: &Path,
    clock: &DemoClock,
    (act, run): (Act, usize),
    server: DemoServer,
) -> Result<Vec<DemoEntry>> {
    let namespace = format!("cloneset-{act}-{}-{run}", server.mode());
    clock.say(&format!("{act} of a CloneSet, server {}", server.mode()));
    let set = DemoSet::create(cluster, &namespace, &demo.images.v1, server, act).await?;
    let _operator = MarkerOperator::start(set.feed(), ASKING);
    let timeline = Timeline::start(set.client(), &namespace, clock).await?;
    let address = set.until_in_service(set::REPLICAS).await?;
    // A Service cannot close a kept-alive connection: see docs/operations/zero-loss.md.
    let connections = match server {
        DemoServer::ExitsAtOnce => vec![Connections::New],
        _ => vec![Connections::New, Connections::KeepAlive],
    };
    let options = ClientOptions {
        program: client.to_owned(),
        image: demo.images.v1.clone(),
        path: runner::PATH,
        connections,
        rate: demo.rate,
    };
    let load = RunningClients::start(cluster, &options, address, None).await?;
    let begun = Instant::now();
    let performed = set.perform(act, &demo.images.v2).await;
    let took = begun.elapsed();
    tokio::time::sleep(AFTERWARDS).await;
    let loads = load.stop().await?;
    performed?;
    timeline.check(act)?;
    if !demo.keep {
        set.remove().await?;
    }
    let entry = |(clients, load)| DemoEntry::of((act, true, run), clients, server, took.as_secs_f64(), load);
    let entries: Vec<DemoEntry> = loads.into_iter().map(entry).collect();
    entries.iter().for_each(|entry| clock.announce(entry));
    Ok(entries)
}
