//! A kube-proxy whose metrics cannot be read, that hangs, or that may watch another API server.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use podward_support::ServiceKind;
use serde_json::json;

use super::service_fixture::{
    crowd, in_service, lost_nothing, of_app, operate, proves, serve, until_message_contains,
};

/// A port of the node where nothing listens, and the URL with it.
const NOBODY: &str = ":9/metrics";
const URL_OF_NOBODY: &str = "http://{node_ip}:9/metrics";
const OTHER_SERVER: &str = "apiserver-behind-the-same-address";
/// Longer than the wait for a proxy that was never read, including requests in flight.
const LONGER: Duration = Duration::from_secs(10);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving_alone("a_proxy_that_cannot_be_read", a_proxy_that_cannot_be_read),
        Test::serving_alone("a_proxy_that_hangs", a_proxy_that_hangs),
        Test::serving_alone("an_api_server_behind_the_same_address", an_api_server_behind_the_same_address),
    ]
}

/// The wait is bounded, and recorded.
async fn a_proxy_that_cannot_be_read(fixture: Arc<Fixture>) -> Result<()> {
    let installation = fixture.installation()?;
    let bounded = async {
        installation.upgrade(&[&format!("traffic-controller.kubeProxyMetricsUrl={URL_OF_NOBODY}")]).await?;
        bounded(&fixture).await
    };
    let bounded = bounded.await;
    // Also after a failure, so that it does not break the tests that follow.
    installation.upgrade(&[]).await?;
    bounded?;
    proves(&*operate(&fixture, "web-0").await?, "BOUNDED", &["kube-proxy of 1 node has applied the change"])
}

async fn bounded(fixture: &Fixture) -> Result<()> {
    serve(fixture, "web", of_app("web")).await?;
    in_service(fixture, "web", ["web-0", "web-1"]).await?;
    let crowd = crowd(fixture, "web").await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web-0").await?;
    let allowed = operator.await_operate("web-0").await?;
    proves(&allowed, "BOUNDED", &["waited at least 5 s for that of node1", NOBODY])?;
    let took = fixture.report("web-0").await?.operations[0].begin_to_operate();
    ensure!(took >= Some(7000.0), "allowed after {took:?} ms");
    operator.set_image("web-0", &fixture.images().v2).await?;
    operator.await_image(&allowed, &fixture.images().v2).await?;
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;
    lost_nothing(crowd).await
}

/// A kube-proxy that hangs keeps routing new connections to the pod: the pod waits for it, and the condition names
/// it.
async fn a_proxy_that_hangs(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["web-0", "web-1"]).await?;
    let crowd = crowd(&fixture, "web").await?;
    let test_cluster = fixture.cluster().test_cluster().context("not on a test cluster")?;
    let proxy = test_cluster.component("kube-proxy").context("the test cluster has no kube-proxy")?;
    let operator = fixture.operator("a", "update");
    proxy.signal(STOP).await?;
    let waited = async {
        operator.begin("web-0").await?;
        until_message_contains(&fixture, "web-0", &["PREPARE", "kube-proxy of node1", "no response within"])
            .await?;
        let allowed = fixture
            .feed()
            .until_within(LONGER, "web-0", "it is allowed", |pod| operator.has(pod, Stage::Operate));
        ensure!(allowed.await.is_err(), "allowed while new connections are led to it");
        Ok(())
    };
    let waited = waited.await;
    proxy.signal(CONTINUE).await?;
    waited?;
    let allowed = operator.await_operate("web-0").await?;
    proves(&allowed, "BOUNDED", &["kube-proxy of 1 node has applied the change"])?;
    operator.set_image("web-0", &fixture.images().v2).await?;
    operator.await_image(&allowed, &fixture.images().v2).await?;
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;
    lost_nothing(crowd).await
}

const STOP: i32 = 19;
const CONTINUE: i32 = 18;

/// Two API servers have Leases and one address: the kube-proxy may watch the other one, also while it shuts down without
/// a Lease.
async fn an_api_server_behind_the_same_address(fixture: Arc<Fixture>) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(fixture.client(), "kube-system");
    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
    let lease = json!({"metadata": {"name": OTHER_SERVER, "labels": labels}});
    let lease = serde_json::from_value(lease).context("build the Lease")?;
    leases.create(&PostParams::default(), &lease).await.context("create the Lease")?;
    let is_bounded = async |pod: &str| {
        proves(&*operate(&fixture, pod).await?, "BOUNDED", &["it watches one of 2 API servers"])
    };
    let counted = async {
        serve(&fixture, "web", of_app("web")).await?;
        in_service(&fixture, "web", ["web-0", "web-1"]).await?;
        is_bounded("web-0").await
    };
    let counted = counted.await;
    leases.delete(OTHER_SERVER, &DeleteParams::default()).await.context("delete the Lease")?;
    let still_counted = async {
        counted?;
        is_bounded("web-1").await
    };
    let still_counted = still_counted.await;
    // New replicas have not seen the Lease, so that it does not change the evidence of the tests that follow.
    let installation = fixture.installation()?;
    installation.scale(ServiceKind::TrafficController, 0).await?;
    installation.scale(ServiceKind::TrafficController, 2).await?;
    still_counted
}
