//! Loads whose targets a registry shows.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::targets::discovered::{
    DiscoveredTargets,
    tests::{FakeRegistry, instance},
};

/// The interval of reads.
const CACHE: Duration = Duration::from_millis(100);

/// A server of a test, with its number of open connections.
struct TestServer {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
}

impl TestServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, open) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counter = open.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counter = counter.clone();
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    answer(stream, usize::MAX).await;
                    counter.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, open }
    }
}

/// A load on the instances of a registry. It ends with the runtime of the test.
struct DiscoveringLoad {
    load: Arc<RunningLoad>,
    _stop: watch::Sender<bool>,
}

impl DiscoveringLoad {
    fn start(registry: Arc<FakeRegistry>, connections: Connections) -> Self {
        let args = ["x", "--target", "127.0.0.1:1", "--rate", "1000", "--pool", "4", "--await-first", "60"];
        let args = ClientArgs::parse_from(args.into_iter().chain(["--control", "127.0.0.1:0"]));
        let targets = Targets::Discovered(Box::new(DiscoveredTargets::of(registry, "web".to_owned(), CACHE)));
        let load = RunningLoad::to(targets, &args, connections);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(load.clone().run(stopped));
        Self { load, _stop: stop }
    }

    fn answered_by(&self, server: &TestServer) -> u64 {
        self.load.report().answered_by.get(&server.address).copied().unwrap_or_default()
    }

    async fn until(&self, what: &str, test: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !test(self) {
            assert!(Instant::now() < deadline, "not in time: {what}: {:?}", self.load.report());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn an_instance_that_left_gets_no_request_and_keeps_no_connection() {
    for connections in [Connections::New, Connections::KeepAlive] {
        let (stays, leaves) = (TestServer::start().await, TestServer::start().await);
        let both = vec![instance(stays.address, true), instance(leaves.address, true)];
        let registry = FakeRegistry::new(vec![Some(both)]);
        let load = DiscoveringLoad::start(registry.clone(), connections);
        load.until("both answer", |load| load.answered_by(&stays).min(load.answered_by(&leaves)) > 20).await;
        registry.answers(vec![Some(vec![instance(stays.address, true), instance(leaves.address, false)])]);
        load.until("no connection is left", |_| leaves.open.load(Ordering::SeqCst) == 0).await;
        tokio::time::sleep(2 * CACHE).await;
        let before = (load.answered_by(&stays), load.answered_by(&leaves));
        load.until("the other one answers", |load| load.answered_by(&stays) > before.0 + 50).await;
        assert_eq!(load.answered_by(&leaves), before.1, "{connections}");
        assert_eq!(load.load.report().failed, 0, "{:?}", load.load.report());
    }
}

#[tokio::test]
async fn a_new_instance_gets_requests_although_connections_are_kept() {
    let (first, second) = (TestServer::start().await, TestServer::start().await);
    let registry = FakeRegistry::new(vec![Some(vec![instance(first.address, true)])]);
    let load = DiscoveringLoad::start(registry.clone(), Connections::KeepAlive);
    load.until("the first one answers", |load| load.answered_by(&first) > 20).await;
    registry.answers(vec![Some(vec![instance(first.address, true), instance(second.address, true)])]);
    load.until("the second one answers", |load| load.answered_by(&second) > 20).await;
    assert_eq!(load.load.report().failed, 0, "{:?}", load.load.report());
}

#[tokio::test]
async fn a_request_to_an_instance_that_is_gone_is_lost() {
    let server = TestServer::start().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let registry = FakeRegistry::new(vec![Some(vec![instance(server.address, true)])]);
    let load = DiscoveringLoad::start(registry.clone(), Connections::KeepAlive);
    load.until("it answers", |load| load.answered_by(&server) > 20).await;
    registry.answers(vec![Some(vec![instance(server.address, true), instance(gone, true)])]);
    load.until("requests are lost", |load| load.load.report().failed > 20).await;
    registry.answers(vec![None]);
    tokio::time::sleep(2 * CACHE).await;
    let lost = load.load.report().failed;
    load.until("the list stays as it was", |load| load.load.report().failed > lost + 20).await;
    assert_eq!(load.load.report().reasons.keys().collect::<Vec<_>>(), ["connect: connection refused"]);
    registry.answers(vec![Some(Vec::new())]);
    let reason = "the registry shows no instance";
    load.until("there is no instance", |load| load.load.report().reasons.contains_key(reason)).await;
}
