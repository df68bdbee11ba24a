//! Clusters with several API servers.

use std::time::{Duration, Instant};

use podward_proto::v1::{EvidenceLevel, Phase};

use crate::clients::Clients;
use crate::fixture::{ApiServers, Fixture, WEB};

/// Shorter than the propagation time, after which nothing is proven any more.
const LAG: Duration = Duration::from_secs(5);

/// The kube-proxy watches an API server that lags. Meanwhile it receives and writes earlier changes. No connection may reach a pod after PREPARE is
/// DONE.
pub(crate) async fn a_proxy_that_lags_is_waited_for(_: &Fixture) {
    let fixture = Fixture::start(ApiServers::Two).await;
    for name in ["web-0", "web-1", "reporter"] {
        let added = fixture.until_done(Phase::Complete, name).await;
        assert_eq!(added.level(), EvidenceLevel::Proven, "{}", added.detail);
    }
    fixture.cluster.lag_watches(LAG).await.unwrap();
    fixture.create_endpoint_elsewhere("single").await;
    let proven = tokio::select! {
        () = fixture.change_without_end("single") => unreachable!(),
        proven = async {
            // Until the kube-proxy receives what is older than the lag.
            tokio::time::sleep(LAG).await;
            fixture.prepare_and_time("reporter").await
        } => proven,
    };
    assert_eq!(proven.0.level(), EvidenceLevel::Proven, "{}", proven.0.detail);
    assert!(
        proven.1 >= LAG.saturating_sub(Duration::from_millis(500)),
        "{:?}: {}",
        proven.1,
        proven.0.detail
    );

    let clients = Clients::start(&fixture, fixture.cluster_ip(WEB).await);
    clients.until_served_by("web-0", Instant::now()).await;
    let (done, _) = fixture.prepare_and_time("web-0").await;
    let end = Instant::now();
    assert!(done.detail.contains("kube-proxy of 1 node has applied the change"), "{}", done.detail);
    clients.until_enough_answers().await;
    let last = clients.last_opened_to("web-0");
    assert!(last < end, "web-0 was reached {:?} after PREPARE was done: {}", last - end, done.detail);
    clients.end();
    fixture.cluster.lag_watches(Duration::ZERO).await.unwrap();
    fixture.cluster.down().await.unwrap();
}
