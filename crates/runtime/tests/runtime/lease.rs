//! Leader election.

use std::time::{Duration, Instant};

use hyper::Method;
use podward_runtime::lease::{Candidacy, LeaseParams, stand};
use podward_runtime::progress::Progress;
use serde_json::json;

use crate::api_server::{ApiServer, Link};
use crate::support::within;

const DURATION: Duration = Duration::from_secs(3);

fn candidate(server: &ApiServer, identity: &str) -> (Link, Candidacy) {
    candidate_with(server, identity, Progress::default())
}

fn candidate_with(server: &ApiServer, identity: &str, progress: Progress) -> (Link, Candidacy) {
    let link = server.link();
    let candidacy = stand(link.client.clone(), params(identity), progress);
    (link, candidacy)
}

fn params(identity: &str) -> LeaseParams {
    let [namespace, name, identity] = ["n", "l", identity].map(str::to_owned);
    let address = Some(format!("{identity}:9444"));
    LeaseParams { namespace, name, identity, predecessors: None, duration: DURATION, address }
}

async fn leads(candidacy: &mut Candidacy, leads: bool) {
    within(Duration::from_secs(10), candidacy.leading.wait_for(|leading| *leading == leads)).await.unwrap();
}

async fn holder_is(server: &ApiServer, holder: &str) {
    let held = || server.lease().is_some_and(|lease| lease["spec"]["holderIdentity"] == holder);
    within(Duration::from_secs(10), async {
        while !held() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_standby_takes_over_when_the_leader_releases_the_lease() {
    let server = ApiServer::new();
    let (_a, mut first) = candidate(&server, "a");
    leads(&mut first, true).await;
    let (_b, mut second) = candidate(&server, "b");
    // It renews once. The standby observes that and must not write.
    let renewals = server.writes(&Method::PATCH);
    within(DURATION, async {
        while server.writes(&Method::PATCH) == renewals {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!*second.leading.borrow());

    let start = Instant::now();
    first.release().await;
    leads(&mut second, true).await;
    let took = start.elapsed();
    assert!(took < DURATION / 6, "the standby took {took:?}, as if it had polled");
    let lease = server.lease().unwrap();
    assert_eq!(
        (&lease["spec"]["holderIdentity"], &lease["spec"]["leaseTransitions"]),
        (&json!("b"), &json!(1))
    );
    second.release().await;
    assert_eq!(server.lease().unwrap()["spec"]["holderIdentity"], "");
}

#[tokio::test]
async fn a_leader_that_is_cut_off_steps_down_before_another_leads() {
    let server = ApiServer::new();
    let (a, mut first) = candidate(&server, "a");
    leads(&mut first, true).await;
    let (_b, mut second) = candidate(&server, "b");
    let start = Instant::now();
    a.cut();
    leads(&mut first, false).await;
    assert!(!*second.leading.borrow(), "two lead at once");
    leads(&mut second, true).await;
    let took = start.elapsed();
    assert!(took < DURATION + Duration::from_millis(500), "took over only after {took:?}");
    assert!(!*first.leading.borrow());
}

#[tokio::test]
async fn a_process_that_was_killed_is_succeeded_by_the_next_of_its_container() {
    let server = ApiServer::new();
    let process = |identity| {
        let (link, predecessors) = (server.link(), Some("pod_".to_owned()));
        let params = LeaseParams { predecessors, duration: Duration::from_secs(3600), ..params(identity) };
        let candidacy = stand(link.client.clone(), params, Progress::default());
        (link, candidacy)
    };
    let (killed, mut first) = process("pod_1");
    leads(&mut first, true).await;
    killed.cut();
    let (_other, other) = candidate(&server, "other");
    let (_next, mut next) = process("pod_2");
    leads(&mut next, true).await;
    assert_eq!(server.lease().unwrap()["spec"]["holderIdentity"], "pod_2");
    assert!(!*other.leading.borrow());
}

#[tokio::test]
async fn of_many_one_leads() {
    let server = ApiServer::new();
    let mut candidates: Vec<(Link, Candidacy)> =
        (0..8).map(|number| candidate(&server, &format!("c{number}"))).collect();
    for _ in 0..4 {
        let leader = within(Duration::from_secs(10), async {
            loop {
                let leading = candidates.iter().position(|(_, candidacy)| *candidacy.leading.borrow());
                if let Some(leader) = leading {
                    return leader;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        let leaders = candidates.iter().filter(|(_, candidacy)| *candidacy.leading.borrow()).count();
        assert_eq!(leaders, 1);
        let (_link, candidacy) = candidates.remove(leader);
        candidacy.release().await;
    }
}

#[tokio::test]
async fn a_leader_that_loses_its_lease_steps_down() {
    let server = ApiServer::new();
    let (_a, mut first) = candidate(&server, "a");
    leads(&mut first, true).await;
    server.meddle(json!({"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 1}}));
    leads(&mut first, false).await;
    // The new holder never renews, so the first one leads again.
    leads(&mut first, true).await;
}

#[tokio::test]
async fn a_lease_with_foreign_metadata_is_kept_and_released() {
    let server = ApiServer::new();
    let (_a, mut first) = candidate(&server, "a");
    leads(&mut first, true).await;
    for number in 0..3 {
        server.meddle(json!({"metadata": {"annotations": {"note": number.to_string()}}}));
    }
    first.release().await;
    let lease = server.lease().unwrap();
    assert_eq!(
        (&lease["spec"]["holderIdentity"], &lease["metadata"]["annotations"]["note"]),
        (&json!(""), &json!("2"))
    );
}

#[tokio::test]
async fn dropping_a_candidacy_releases_the_lease() {
    let server = ApiServer::new();
    let (_a, mut first) = candidate(&server, "a");
    leads(&mut first, true).await;
    drop(first);
    holder_is(&server, "").await;
}

#[tokio::test]
async fn all_replicas_know_the_address_of_the_leader() {
    let server = ApiServer::new();
    let (_a, mut first) = candidate(&server, "a");
    leads(&mut first, true).await;
    let (_b, mut second) = candidate(&server, "b");
    for candidacy in [&mut first, &mut second] {
        is_at(candidacy, Some("a:9444")).await;
    }
    first.release().await;
    leads(&mut second, true).await;
    is_at(&mut second, Some("b:9444")).await;
    second.release().await;
    let (_c, mut third) = candidate(&server, "c");
    leads(&mut third, true).await;
    is_at(&mut third, Some("c:9444")).await;
}

async fn is_at(candidacy: &mut Candidacy, address: Option<&str>) {
    let known = candidacy.holder_address.wait_for(|known| known.as_deref() == address);
    within(Duration::from_secs(10), known).await.unwrap();
}

/// A restored backup of etcd has lower resource versions than the replicas have observed.
#[tokio::test]
async fn one_leads_after_a_restore() {
    let server = ApiServer::new();
    let (a, mut first) = candidate(&server, "a");
    leads(&mut first, true).await;
    let (_b, mut second) = candidate(&server, "b");
    within(DURATION, async {
        while second.holder_address.borrow().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    server.restore();
    let renewals = server.writes(&Method::PATCH);
    within(Duration::from_secs(10), async {
        // More than one, because the first fails with a conflict.
        while server.writes(&Method::PATCH) < renewals + 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    leads(&mut first, true).await;
    a.cut();
    leads(&mut second, true).await;
}

#[tokio::test]
async fn a_leader_without_progress_steps_down() {
    let server = ApiServer::new();
    let progress = Progress::new(Duration::from_millis(200));
    let (_a, mut first) = candidate_with(&server, "a", progress.clone());
    leads(&mut first, true).await;
    let (_b, mut second) = candidate(&server, "b");
    let stuck = progress.begin();
    leads(&mut first, false).await;
    leads(&mut second, true).await;
    second.release().await;
    tokio::time::sleep(DURATION / 2).await;
    assert!(!*first.leading.borrow(), "it leads again while its work does not end");
    drop(stuck);
    leads(&mut first, true).await;
}
