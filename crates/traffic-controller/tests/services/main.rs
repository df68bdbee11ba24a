//! The traffic-controller on a real node: kubelet, kube-proxy in its nftables mode, and clients of a Service.
// A helper of a test fails as a test does.
#![allow(clippy::unwrap_used, clippy::panic)]

mod clients;
mod registry;
mod scene;

use std::time::{Duration, Instant};

use podward_proto::v1::{EvidenceLevel, Outcome, Phase};
use scene::{Scene, WEB};
use tonic::Code;

const ROUNDS: usize = 20;

/// One bed for all of it: beds are heavy, and what is asked here disturbs nothing else that is asked.
#[tokio::test(flavor = "multi_thread")]
async fn services_let_go_of_pods() {
    if !nix_is_root() {
        println!("skipped: a node needs root");
        return;
    }
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let scene = Scene::start().await;
    only_the_lifecycle_controller_may_ask(&scene).await;
    evidence_agrees_with_what_clients_see(&scene).await;
    a_pod_that_tells_of_its_requests(&scene).await;
    the_last_endpoint_waits_for_its_replacement(&scene).await;
    a_pod_without_services_is_done_at_once(&scene).await;
    registry::it_registers_itself(&scene).await;
    a_proxy_that_is_gone_gets_its_time(&scene).await;
    scene.end().await;
}

fn nix_is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t")))
}

async fn only_the_lifecycle_controller_may_ask(scene: &Scene) {
    let request = || scene.question(Phase::Release, &scene.gone(), Duration::ZERO);
    let code = |token: Option<&str>| {
        let token = token.map(ToOwned::to_owned);
        async move { scene.call_with(token.as_deref(), request()).await.unwrap_err().code() }
    };
    assert_eq!(code(None).await, Code::Unauthenticated);
    assert_eq!(code(Some("rubbish")).await, Code::Unauthenticated);
    assert_eq!(code(Some(&scene.token("traffic-controller").await)).await, Code::PermissionDenied);
    let mut nobody = request();
    nobody.pod = None;
    assert_eq!(scene.call(nobody).await.unwrap_err().code(), Code::InvalidArgument);
    let mut strange = request();
    strange.phase = 99;
    assert_eq!(scene.call(strange).await.unwrap_err().code(), Code::InvalidArgument);
}

/// Takes pods out again and again, while clients open connections through the Service. None that is opened after PREPARE is DONE
/// may reach the pod. Prints how long everything took.
async fn evidence_agrees_with_what_clients_see(scene: &Scene) {
    let clients = clients::Clients::start(scene, scene.cluster_ip(WEB).await);
    let (mut rounds, pods) = (Vec::new(), ["web-0", "web-1", "web-2"]);
    for name in pods {
        let taken_in = scene.until_done(Phase::Complete, name).await;
        assert_eq!(taken_in.level(), EvidenceLevel::Proven, "{}", taken_in.detail);
        clients.until_served_by(name, Instant::now()).await;
    }
    for round in 0..ROUNDS {
        let name = pods[round % pods.len()];
        let slice = scene.watch_slice(name);
        let asked = Instant::now();
        let (done, ()) = tokio::join!(scene.until_done(Phase::Prepare, name), scene.set_gate(name, false));
        let proven = Instant::now();
        assert!(done.detail.contains("kube-proxy of 1 node has it"), "{}", done.detail);
        // Requests in flight are not seen here, and the quiet period is 0.
        assert_eq!(done.level(), EvidenceLevel::Bounded);
        let changed = slice.await.unwrap();
        // Others are served meanwhile, so that silence means something.
        clients.until_many_more().await;
        let last = clients.last_opened_to(name);
        assert!(
            last < proven,
            "{name} was reached {:?} after PREPARE was done: {}",
            last - proven,
            done.detail
        );
        rounds.push((changed - asked, last.saturating_duration_since(changed), proven - changed));
        scene.set_gate(name, true).await;
        scene.until_done(Phase::Complete, name).await;
    }
    clients.end();
    let print = |what: &str, mut times: Vec<Duration>| {
        times.sort_unstable();
        let ms = |index: usize| times[index].as_secs_f64() * 1e3;
        println!("{what}: median {:.0} ms, longest {:.0} ms", ms(times.len() / 2), ms(times.len() - 1));
    };
    print("gate to slice", rounds.iter().map(|round| round.0).collect());
    print("slice to last connection", rounds.iter().map(|round| round.1).collect());
    print("slice to proof", rounds.iter().map(|round| round.2).collect());
}

async fn a_pod_that_tells_of_its_requests(scene: &Scene) {
    scene.until_done(Phase::Complete, "teller").await;
    let (done, ()) =
        tokio::join!(scene.until_done(Phase::Prepare, "teller"), scene.set_gate("teller", false));
    assert_eq!(done.level(), EvidenceLevel::Proven, "{}", done.detail);
    assert!(done.detail.contains("nothing is in flight"), "{}", done.detail);
}

async fn the_last_endpoint_waits_for_its_replacement(scene: &Scene) {
    scene.until_done(Phase::Complete, "single").await;
    let question = scene.question(Phase::PreCheck, &scene.pod("single").await, Duration::ZERO);
    let alone = scene.call(question.clone()).await.unwrap();
    assert_eq!(alone.outcome(), Outcome::Done);
    assert!(alone.evidence.unwrap().detail.contains("no other is on its way"));
    // Its gate is False: on its way.
    scene.create_pod("single-next", "single", false).await;
    scene.until_listed("single-next").await;
    let waits = scene.call(question).await.unwrap();
    assert_eq!(waits.outcome(), Outcome::Pending);
    assert!(waits.message.contains("1 other not ready yet"), "{}", waits.message);
    let (done, ()) =
        tokio::join!(scene.until_done(Phase::PreCheck, "single"), scene.set_gate("single-next", true));
    assert_eq!(done.level(), EvidenceLevel::Proven, "{}", done.detail);
}

async fn a_pod_without_services_is_done_at_once(scene: &Scene) {
    let gone = scene.gone();
    for phase in [Phase::PreCheck, Phase::Prepare, Phase::Complete, Phase::Release] {
        let answer = scene.call(scene.question(phase, &gone, Duration::ZERO)).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Done, "{phase:?}: {}", answer.message);
        let evidence = answer.evidence.unwrap();
        assert_eq!(evidence.level(), EvidenceLevel::Proven, "{phase:?}: {}", evidence.detail);
    }
}

/// The last one: kube-proxy doesn't come back.
async fn a_proxy_that_is_gone_gets_its_time(scene: &Scene) {
    scene.bed.component("kube-proxy").unwrap().stop().await.unwrap();
    let asked = Instant::now();
    let (done, ()) = tokio::join!(scene.until_done(Phase::Prepare, "web-1"), scene.set_gate("web-1", false));
    assert!(asked.elapsed() >= Duration::from_secs(30), "{:?}", asked.elapsed());
    assert_eq!(done.level(), EvidenceLevel::Bounded);
    assert!(done.detail.contains("30 s or more were waited for that of node"), "{}", done.detail);
}
