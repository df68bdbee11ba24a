//! Clients that find pods only through a service registry, with real servers of registries. They lose nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use demo_client::Connections;
use podward_e2e::{Fixture, Test};
use podward_images::DemoImages;
use podward_support::demo::registry::{DiscoveredWorkload, RegistryClients, RegistryKind, RegistryServer};
use podward_support::demo::{Act, DemoServer, DemoWorkload};
use podward_support::{LoadClientOptions, PodFeed};

use super::service_fixture::has_lost_nothing;

/// Requests per second for each of two kinds of connections.
const RATE: u32 = 100;
/// The interval at which clients read the registry, and the age of the lists of Eureka's server.
const CACHE: Duration = Duration::from_secs(1);
/// The interval of the clients that are to lose requests. The kubelet stops a pod within a few seconds.
const LONG_CACHE: Duration = Duration::from_secs(10);
/// Clients on a busy machine read late. Requests with a list of this age at most must not be lost; others wait.
const MAX_AGE: Duration = Duration::from_secs(2);
/// The time from a read until the answer of a request with its list.
const SLACK: Duration = Duration::from_secs(5);
/// The time for all acts. With several registries at once, the processors are busy all the time.
const DEADLINE: Duration = Duration::from_secs(800);
/// Late losses count, too.
const AFTERWARDS: Duration = Duration::from_secs(1);

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = RegistryKind::ALL
        .map(|kind| {
            let name = format!("clients_of_{kind}_lose_nothing");
            Test::serving(&name, move |fixture| lose_nothing(fixture, kind)).within(DEADLINE).of_weight(2)
        })
        .into_iter()
        .collect::<Vec<_>>();
    tests.push(Test::serving("clients_of_a_registry_lose_requests_without_podward", lose_without_podward));
    tests
}

/// All acts, one after the other, while the clients go on.
async fn lose_nothing(fixture: Arc<Fixture>, kind: RegistryKind) -> Result<()> {
    let server = RegistryServer::start(fixture.cluster(), kind, CACHE).await?;
    let discovered = start(&fixture, &server, CACHE, true).await?;
    for act in Act::ALL {
        discovered.perform(act, &fixture.images().v2).await?;
        // Also the pods that the act has created or restarted.
        discovered.until_all_answer().await?;
    }
    tokio::time::sleep(discovered.workload().removal_wait + AFTERWARDS).await;
    let (loads, _) = discovered.stop().await?;
    ensure!(loads.len() == 2, "there are {} loads", loads.len());
    for load in &loads {
        has_lost_nothing(load).with_context(|| format!("{:?}; {:?}", load.failures, load.discovery))?;
        let waited = load.discovery.as_ref().map_or(u64::MAX, |discovery| discovery.waited);
        ensure!(waited < load.requests / 2, "most requests waited for a list that is young enough: {load:?}");
    }
    Ok(())
}

/// The same clients, with a syncer that deregisters a pod when its deletion begins. It shows that they can lose requests.
async fn lose_without_podward(fixture: Arc<Fixture>) -> Result<()> {
    let server = RegistryServer::start(fixture.cluster(), RegistryKind::Consul, CACHE).await?;
    let discovered = start(&fixture, &server, LONG_CACHE, false).await?;
    discovered.perform(Act::RollingUpdate, &fixture.images().v2).await?;
    tokio::time::sleep(discovered.workload().removal_wait + AFTERWARDS).await;
    let (loads, _) = discovered.stop().await?;
    // Pods that have not opted in have no labels of the protocol.
    fixture.ends_in_the_middle();
    for load in &loads {
        ensure!(load.failed > 0, "nothing is lost without Podward: {load:?}");
    }
    Ok(())
}

async fn start(
    fixture: &Fixture,
    server: &RegistryServer,
    cache: Duration,
    opted_in: bool,
) -> Result<DiscoveredWorkload> {
    let clients = RegistryClients {
        program: DemoImages::client("dev").await?,
        cache,
        connections: vec![Connections::New, Connections::KeepAlive],
        rate: RATE,
        max_age: opted_in.then_some(MAX_AGE),
        slack: SLACK,
        timeout: LoadClientOptions::PATIENT,
    };
    let workload = DemoWorkload {
        namespace: fixture.namespace().to_owned(),
        image: fixture.images().v1.clone(),
        server: DemoServer::ExitsAtOnce,
        opted_in,
        strategy: None,
        two_pods_on: None,
        removal_wait: clients.removal_wait(server),
        // More than twenty pods have to fit on two processors, beside those of other tests.
        cpu_request: "20m",
        feed: PodFeed::start(fixture.client(), fixture.namespace(), "app=web").await?,
    };
    DiscoveredWorkload::start(fixture.cluster(), workload, server, clients).await
}
