//! The API server goes away while pods wait in each phase.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use podward_e2e::{Scene, Test};
use podward_support::{Kind, WAIT, within};
use podward_testbed::Bed;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::held::Held;

const API_SERVER: &str = "kube-apiserver";
/// How long it is away.
const AWAY: Duration = Duration::from_secs(10);
/// `/podward-test` in base64: a key of etcd that nobody else has.
const KEY: &str = "L3BvZHdhcmQtdGVzdA==";
/// Where etcd serves inside a bed.
const ETCD: &str = "127.0.0.1:2379";
/// `nix` is not needed for two numbers that are the same on every Linux.
const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("chaos_api_server_stopped", api_server_stopped),
        Test::alone("chaos_api_server_frozen", api_server_frozen),
        Test::alone("chaos_watches_closed_with_410", watches_closed_with_410),
    ]
}

fn bed(scene: &Scene) -> Result<&Arc<Bed>> {
    scene.cluster().bed().context("only a bed's API server can be taken away")
}

/// It ends, and is another one when it is back.
async fn api_server_stopped(scene: Arc<Scene>) -> Result<()> {
    scene.may_miss_versions();
    let (held, bed) = (Held::set_up(&scene).await?, bed(&scene)?);
    let server = bed.component(API_SERVER).context("the bed has no API server")?;
    server.kill().await?;
    tokio::time::sleep(AWAY).await;
    bed.start_again(API_SERVER).await?;
    back(&scene, &held).await
}

/// It keeps every connection, and says nothing: nobody is told that it is away.
async fn api_server_frozen(scene: Arc<Scene>) -> Result<()> {
    scene.may_miss_versions();
    let (held, bed) = (Held::set_up(&scene).await?, bed(&scene)?);
    let server = bed.component(API_SERVER).context("the bed has no API server")?;
    server.signal(SIGSTOP).await?;
    tokio::time::sleep(AWAY).await;
    server.signal(SIGCONT).await?;
    back(&scene, &held).await
}

/// While it is away etcd forgets what was, so that no watch can be taken up where it was.
async fn watches_closed_with_410(scene: Arc<Scene>) -> Result<()> {
    scene.may_miss_versions();
    let (held, bed) = (Held::set_up(&scene).await?, bed(&scene)?);
    let server = bed.component(API_SERVER).context("the bed has no API server")?;
    server.kill().await?;
    // Nobody's watch has seen as much as this.
    let present = etcd(bed, "/v3/kv/put", &json!({"key": KEY, "value": KEY})).await?;
    let revision = present["header"]["revision"].as_str().context("etcd tells no revision")?.to_owned();
    let compacted = etcd(bed, "/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await;
    bed.start_again(API_SERVER).await?;
    let compacted = compacted?;
    ensure!(compacted["header"].is_object(), "etcd did not compact: {compacted}");
    back(&scene, &held).await?;
    scene.timeline().catch_up().await?;
    ensure!(scene.timeline().gaps() > 0, "this test's own watch went on: it has shown nothing");
    Ok(())
}

async fn back(scene: &Scene, held: &Held) -> Result<()> {
    let reachable = async {
        while scene.feed().client().apiserver_version().await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    within(WAIT, || "the API server to answer".to_owned(), reachable).await?;
    for service in scene.podward()?.services(Kind::LifecycleController) {
        ensure!(service.is_running().await?, "{} has ended", service.name());
    }
    scene.podward()?.until_webhooks_are_asked().await?;
    held.ensure_held(scene)?;
    held.go_on(scene).await
}

/// One request to etcd, in the JSON of its gateway.
async fn etcd(bed: &Bed, path: &str, body: &Value) -> Result<Value> {
    let mut stream = bed.connect(ETCD.parse()?).await?;
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
    // Chunked or not, the JSON is what is between the outermost braces.
    let json = answer.find('{').zip(answer.rfind('}')).map(|(from, to)| &answer[from..=to]);
    let json = json.with_context(|| format!("etcd answers {path} with {answer:?}"))?;
    serde_json::from_str(json).with_context(|| format!("understand etcd's answer to {path}: {answer:?}"))
}
