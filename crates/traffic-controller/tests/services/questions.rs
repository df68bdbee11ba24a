//! Questions to the traffic-controller.

use std::time::{Duration, Instant};

use podward_proto::v1::{EvidenceLevel, Outcome, Phase};
use serde_json::json;
use tonic::Code;

use crate::clients::Clients;
use crate::fixture::{Fixture, WEB};

const ROUNDS: usize = 20;

pub(crate) async fn only_the_lifecycle_controller_may_call(fixture: &Fixture) {
    let request = || fixture.question(Phase::Release, &fixture.gone(), Duration::ZERO);
    let code = |token: Option<&str>| {
        let token = token.map(ToOwned::to_owned);
        async move { fixture.call_with(token.as_deref(), request()).await.unwrap_err().code() }
    };
    assert_eq!(code(None).await, Code::Unauthenticated);
    assert_eq!(code(Some("rubbish")).await, Code::Unauthenticated);
    assert_eq!(code(Some(&fixture.token("traffic-controller").await)).await, Code::PermissionDenied);
    // The attack: a hook server, or the API server, uses a token that the lifecycle-controller has sent to it.
    for audiences in [&[][..], &["podward"], &["podward.io/hooks/other"]] {
        let replayed = fixture.token_for("lifecycle-controller", audiences).await;
        assert_eq!(code(Some(&replayed)).await, Code::Unauthenticated, "{audiences:?}");
    }
    let mut no_pod = request();
    no_pod.pod = None;
    assert_eq!(fixture.call(no_pod).await.unwrap_err().code(), Code::InvalidArgument);
    let mut unknown_phase = request();
    unknown_phase.phase = 99;
    assert_eq!(fixture.call(unknown_phase).await.unwrap_err().code(), Code::InvalidArgument);
}

/// Drains pods repeatedly while clients open connections through the Service. No connection that is opened after
/// PREPARE is DONE may reach the pod. Prints the durations.
pub(crate) async fn evidence_agrees_with_what_clients_observe(fixture: &Fixture) {
    let clients = Clients::start(fixture, fixture.cluster_ip(WEB).await);
    let (mut rounds, pods) = (Vec::new(), ["web-0", "web-1", "web-2"]);
    for name in pods {
        let added = fixture.until_done(Phase::Complete, name).await;
        assert_eq!(added.level(), EvidenceLevel::Proven, "{}", added.detail);
        clients.until_served_by(name, Instant::now()).await;
    }
    for round in 0..ROUNDS {
        let name = pods[round % pods.len()];
        let slice = fixture.watch_slice(name);
        let asked = Instant::now();
        let (done, ()) =
            tokio::join!(fixture.until_done(Phase::Prepare, name), fixture.set_gate(name, false));
        let proven = Instant::now();
        assert!(done.detail.contains("kube-proxy of 1 node has applied the change"), "{}", done.detail);
        // The pod does not report requests in flight, and the quiet period is 0.
        assert_eq!(done.level(), EvidenceLevel::Bounded);
        let changed = slice.await.unwrap();
        // Other pods must serve requests meanwhile: otherwise it proves nothing that this pod serves none.
        clients.until_enough_answers().await;
        let last = clients.last_opened_to(name);
        assert!(
            last < proven,
            "{name} was reached {:?} after PREPARE was done: {}",
            last - proven,
            done.detail
        );
        rounds.push((changed - asked, last.saturating_duration_since(changed), proven - changed));
        fixture.set_gate(name, true).await;
        fixture.until_done(Phase::Complete, name).await;
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

pub(crate) async fn a_pod_that_reports_its_requests(fixture: &Fixture) {
    fixture.until_done(Phase::Complete, "reporter").await;
    let (done, ()) =
        tokio::join!(fixture.until_done(Phase::Prepare, "reporter"), fixture.set_gate("reporter", false));
    assert_eq!(done.level(), EvidenceLevel::Proven, "{}", done.detail);
    assert!(done.detail.contains("no requests in flight"), "{}", done.detail);
}

/// Runs after [`a_pod_that_reports_its_requests`], which drains the pod.
pub(crate) async fn an_ingress_bounds_the_evidence(fixture: &Fixture) {
    fixture.create_ingress("reporter").await;
    fixture.set_gate("reporter", true).await;
    let done = fixture.until_done(Phase::Complete, "reporter").await;
    assert_eq!(done.level(), EvidenceLevel::Bounded, "{}", done.detail);
    assert!(done.detail.contains("the proxies behind Ingress default/reporter"), "{}", done.detail);
}

pub(crate) async fn the_last_endpoint_waits_for_its_replacement(fixture: &Fixture) {
    fixture.until_done(Phase::Complete, "single").await;
    let question = fixture.question(Phase::PreCheck, &fixture.pod("single").await, Duration::ZERO);
    let alone = fixture.call(question.clone()).await.unwrap();
    assert_eq!(alone.outcome(), Outcome::Done);
    assert!(alone.evidence.unwrap().detail.contains("no other endpoint is starting"));
    // Its gate is False, so it counts as starting.
    fixture.create_pod("single-next", "single", false).await;
    fixture.until_listed("single-next").await;
    let waits = fixture.call(question).await.unwrap();
    assert_eq!(waits.outcome(), Outcome::Pending);
    assert!(waits.message.contains("1 other endpoint not ready yet"), "{}", waits.message);
    let (done, ()) =
        tokio::join!(fixture.until_done(Phase::PreCheck, "single"), fixture.set_gate("single-next", true));
    assert_eq!(done.level(), EvidenceLevel::Proven, "{}", done.detail);
}

/// The Service has an endpoint on another node too, which is of no use to clients that the Service sends to this node.
pub(crate) async fn the_last_endpoint_on_a_node_waits_for_its_replacement(fixture: &Fixture) {
    let local = json!({"type": "NodePort", "externalTrafficPolicy": "Local"});
    fixture.create_service("local", local).await;
    fixture.create_endpoint_elsewhere("local").await;
    fixture.create_pod("local", "local", true).await;
    fixture.until_done(Phase::Complete, "local").await;
    let question = fixture.question(Phase::PreCheck, &fixture.pod("local").await, Duration::ZERO);
    let alone = fixture.call(question.clone()).await.unwrap().evidence.unwrap();
    assert!(alone.level() == EvidenceLevel::Assumed, "{}", alone.detail);
    assert!(alone.detail.contains("(externalTrafficPolicy: Local) on node"), "{}", alone.detail);
    fixture.create_pod("local-next", "local", false).await;
    fixture.until_listed("local-next").await;
    let waits = fixture.call(question).await.unwrap();
    assert!(waits.message.contains("1 other endpoint not ready yet"), "{}", waits.message);
    let (done, ()) =
        tokio::join!(fixture.until_done(Phase::PreCheck, "local"), fixture.set_gate("local-next", true));
    assert_eq!(done.level(), EvidenceLevel::Proven, "{}", done.detail);
}

pub(crate) async fn a_pod_without_services_is_done_immediately(fixture: &Fixture) {
    let gone = fixture.gone();
    // After its start, the process waits: the pod may have left a Service just before.
    fixture.until_done_for(Phase::Prepare, async || fixture.gone()).await;
    for phase in [Phase::PreCheck, Phase::Prepare, Phase::Complete, Phase::Release] {
        let answer = fixture.call(fixture.question(phase, &gone, Duration::ZERO)).await.unwrap();
        assert_eq!(answer.outcome(), Outcome::Done, "{phase:?}: {}", answer.message);
        let evidence = answer.evidence.unwrap();
        // The process runs for less than ten minutes, so it does not know whether the pod has left a Service before.
        let expected = match phase {
            Phase::Prepare => EvidenceLevel::Bounded,
            _ => EvidenceLevel::Proven,
        };
        assert_eq!(evidence.level(), expected, "{phase:?}: {}", evidence.detail);
    }
}

/// This test must be the last: kube-proxy is not started again.
pub(crate) async fn a_proxy_that_is_down_is_waited_for(fixture: &Fixture) {
    fixture.until_done(Phase::Complete, "web-1").await;
    fixture.cluster.component("kube-proxy").unwrap().stop().await.unwrap();
    let asked = Instant::now();
    let (done, ()) =
        tokio::join!(fixture.until_done(Phase::Prepare, "web-1"), fixture.set_gate("web-1", false));
    assert!(asked.elapsed() >= Duration::from_secs(30), "{:?}", asked.elapsed());
    assert_eq!(done.level(), EvidenceLevel::Bounded);
    assert!(done.detail.contains("waited at least 30 s for that of node"), "{}", done.detail);
}
