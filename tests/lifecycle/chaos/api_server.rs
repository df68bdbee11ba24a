//! The API server is down while pods wait in each phase.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_support::{ServiceKind, WAIT, within};
use podward_testbed::TestCluster;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::waiting_pods::HeldPods;

const API_SERVER: &str = "kube-apiserver";
/// The time that it is down.
const AWAY: Duration = Duration::from_secs(10);
/// `/podward-test` in base64: a key of etcd that nothing else uses.
const KEY: &str = "L3BvZHdhcmQtdGVzdA==";
/// The address of etcd inside a test cluster.
const ETCD: &str = "127.0.0.1:2379";
/// Two numbers that are the same on every Linux, so that `nix` is not needed.
const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("chaos_api_server_stopped", api_server_stopped),
        Test::alone("chaos_api_server_frozen", api_server_frozen),
        Test::alone("chaos_watches_closed_with_410", watches_closed_with_410),
    ]
}

fn test_cluster(fixture: &Fixture) -> Result<&Arc<TestCluster>> {
    fixture.cluster().test_cluster().context("only a test cluster's API server can be taken away")
}

/// It ends, and another process replaces it.
async fn api_server_stopped(fixture: Arc<Fixture>) -> Result<()> {
    fixture.may_miss_versions();
    let (held, test_cluster) = (HeldPods::set_up(&fixture).await?, test_cluster(&fixture)?);
    let server = test_cluster.component(API_SERVER).context("the test cluster has no API server")?;
    server.kill().await?;
    tokio::time::sleep(AWAY).await;
    test_cluster.start_again(API_SERVER).await?;
    back(&fixture, &held).await
}

/// It keeps every connection and sends nothing, so that clients do not notice that it is down.
async fn api_server_frozen(fixture: Arc<Fixture>) -> Result<()> {
    fixture.may_miss_versions();
    let (held, test_cluster) = (HeldPods::set_up(&fixture).await?, test_cluster(&fixture)?);
    let server = test_cluster.component(API_SERVER).context("the test cluster has no API server")?;
    server.signal(SIGSTOP).await?;
    tokio::time::sleep(AWAY).await;
    server.signal(SIGCONT).await?;
    back(&fixture, &held).await
}

/// While it is down, etcd compacts its history, so that no watch can resume.
async fn watches_closed_with_410(fixture: Arc<Fixture>) -> Result<()> {
    fixture.may_miss_versions();
    let (held, test_cluster) = (HeldPods::set_up(&fixture).await?, test_cluster(&fixture)?);
    let server = test_cluster.component(API_SERVER).context("the test cluster has no API server")?;
    server.kill().await?;
    // No watch has seen as much as this revision.
    let present = etcd(test_cluster, "/v3/kv/put", &json!({"key": KEY, "value": KEY})).await?;
    let revision = present["header"]["revision"].as_str().context("etcd tells no revision")?.to_owned();
    let compacted =
        etcd(test_cluster, "/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await;
    test_cluster.start_again(API_SERVER).await?;
    let compacted = compacted?;
    ensure!(compacted["header"].is_object(), "etcd did not compact: {compacted}");
    back(&fixture, &held).await?;
    fixture.timeline().catch_up().await?;
    ensure!(fixture.timeline().gaps() > 0, "this test's own watch went on: it has shown nothing");
    Ok(())
}

async fn back(fixture: &Fixture, held: &HeldPods) -> Result<()> {
    let reachable = async {
        while fixture.feed().client().apiserver_version().await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    within(WAIT, || "the API server to answer".to_owned(), reachable).await?;
    for service in fixture.podward()?.services(ServiceKind::LifecycleController) {
        ensure!(service.is_running().await?, "{} has ended", service.name());
    }
    fixture.podward()?.until_webhooks_are_called().await?;
    held.ensure_held(fixture)?;
    held.go_on(fixture).await
}

/// Sends a request to etcd in the JSON of its gateway.
async fn etcd(test_cluster: &TestCluster, path: &str, body: &Value) -> Result<Value> {
    let mut stream = test_cluster.connect(ETCD.parse()?).await?;
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {ETCD}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let answer = within(WAIT, || format!("etcd's answer to {path}"), exchange).await?;
    // The JSON is between the outermost braces, whether the response is chunked or not.
    let json = answer.find('{').zip(answer.rfind('}')).map(|(from, to)| &answer[from..=to]);
    let json = json.with_context(|| format!("etcd answers {path} with {answer:?}"))?;
    serde_json::from_str(json).with_context(|| format!("understand etcd's answer to {path}: {answer:?}"))
}
