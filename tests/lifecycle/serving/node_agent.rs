//! The node-agent: connections to a pod are evidence of requests in flight, and kube-proxies are read that only processes of
//! the node can read.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_support::PodSecurity;
use podward_testbed::TestClusterStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::service_fixture::{in_service, of_app, operate, proves, serve, until_message_contains};

/// The time between requests on a connection, and between parts of a request. It is shorter than the quiet period.
const PAUSE: Duration = Duration::from_millis(300);
/// Nobody listens there, so that the metrics of kube-proxy cannot be read directly.
const UNREADABLE: &str = "traffic-controller.kubeProxyMetricsUrl=http://{node_ip}:9/metrics";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::serving_alone("connections_are_evidence", connections_are_evidence)]
}

async fn connections_are_evidence(fixture: Arc<Fixture>) -> Result<()> {
    let installation = fixture.installation()?;
    let checked = async {
        installation.apply_namespace(PodSecurity::Privileged).await?;
        installation.upgrade(&["global.nodeAgent.enabled=true", UNREADABLE]).await?;
        evidence_of_connections(&fixture).await
    };
    let checked = checked.await;
    // Also after a failure, so that it does not break the tests that follow.
    installation.upgrade(&[]).await?;
    installation.apply_namespace(PodSecurity::Restricted).await?;
    checked
}

async fn evidence_of_connections(fixture: &Fixture) -> Result<()> {
    serve(fixture, "web", of_app("web")).await?;
    in_service(fixture, "web", ["web-0", "web-1"]).await?;
    let unused = operate(fixture, "web-0").await?;
    proves(&unused, "PROVEN", &["kube-proxy of 1 node has applied", "no connection to the pod is left"])?;

    let mut connection = connect(fixture, "web-0").await?;
    request(&mut connection).await?;
    let silent = operate(fixture, "web-0").await?;
    proves(&silent, "BOUNDED", &["no data on the 1 connection to the pod"])?;

    let operator = fixture.operator("look", "inspect");
    operator.begin("web-0").await?;
    let kept_alive = async {
        loop {
            request(&mut connection).await?;
            tokio::time::sleep(PAUSE).await;
        }
    };
    let allowed = tokio::select! {
        ended = kept_alive => return ended,
        allowed = operator.await_operate("web-0") => allowed?,
    };
    proves(&allowed, "ASSUMED", &["clients send new ones on the 1 connection that they keep alive"])?;
    operator.finish("web-0").await?;
    operator.await_end("web-0").await?;

    let operator = fixture.operator("wait", "inspect");
    operator.begin("web-0").await?;
    let long_request = async {
        connection.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n").await.context("begin a request")?;
        loop {
            connection.write_all(b"Part: of a long request\r\n").await.context("continue the request")?;
            tokio::time::sleep(PAUSE).await;
        }
    };
    let waits = until_message_contains(fixture, "web-0", &["1 connection to the pod, the last data"]);
    tokio::select! {
        ended = long_request => return ended,
        waits = waits => drop(waits?),
    }
    drop(connection);
    let allowed = operator.await_operate("web-0").await?;
    proves(&allowed, "PROVEN", &["no connection to the pod is left"])?;
    operator.finish("web-0").await?;
    operator.await_end("web-0").await.map(drop)
}

/// Opens a connection from the node to the pod.
async fn connect(fixture: &Fixture, pod: &str) -> Result<TestClusterStream> {
    let pod = fixture.feed().get(pod).with_context(|| format!("there is no pod {pod}"))?;
    let address =
        pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("it has no address")?;
    let test_cluster = fixture.cluster().test_cluster().context("not on a test cluster")?;
    let address = SocketAddr::new(address.parse().context("understand the address")?, 8080);
    test_cluster.connect(address).await.context("connect to the pod")
}

/// Sends a request and reads the response. The connection stays open.
async fn request(connection: &mut TestClusterStream) -> Result<()> {
    connection.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n").await.context("send a request")?;
    let mut response = Vec::new();
    while !response.windows(4).any(|end| end == b"\r\n\r\n") || !response.ends_with(b"\n") {
        let read = connection.read_buf(&mut response).await.context("read the response")?;
        ensure!(read > 0, "the pod closed the connection");
    }
    ensure!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
    Ok(())
}
