//! Containers that do not start, on a real node.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_support::ReachableServer;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::asked::{change, create, pod, until_first_line};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("why_an_image_is_not_pulled", images),
        Test::node("why_configuration_is_missing", configuration),
        Test::node("why_containers_do_not_start", containers),
    ]
}

/// A registry that answers every request with this status. Real registries do so for a missing image, wrong credentials and
/// too many pulls.
struct RefusingRegistry {
    host: String,
    _reachable: ReachableServer,
    answers: tokio::task::JoinHandle<()>,
}

impl RefusingRegistry {
    async fn start(fixture: &Fixture, status: &'static str, code: &'static str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("open a port")?;
        let host = listener.local_addr()?.to_string();
        let reachable = ReachableServer::on_loopback(fixture.cluster(), &host).await?;
        let answers = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request).await;
                    let body = json!({"errors": [{"code": code, "message": code}]}).to_string();
                    let answer = format!(
                        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Ok(Self { host, _reachable: reachable, answers })
    }
}

impl Drop for RefusingRegistry {
    fn drop(&mut self) {
        self.answers.abort();
    }
}

async fn images(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let missing = RefusingRegistry::start(&fixture, "404 Not Found", "MANIFEST_UNKNOWN").await?;
    let closed = RefusingRegistry::start(&fixture, "401 Unauthorized", "UNAUTHORIZED").await?;
    let busy = RefusingRegistry::start(&fixture, "429 Too Many Requests", "TOOMANYREQUESTS").await?;
    let image = |host: &str| json!({"image": format!("{host}/shop/web:1"), "imagePullPolicy": "Always"});
    pod(&fixture, "missing", json!({}), image(&missing.host)).await?;
    pod(&fixture, "closed", json!({}), image(&closed.host)).await?;
    pod(&fixture, "busy", json!({}), image(&busy.host)).await?;
    pod(&fixture, "silent", json!({}), image("127.0.0.1:1")).await?;
    pod(&fixture, "secret", json!({"imagePullSecrets": [{"name": "regcred"}]}), image(&closed.host)).await?;
    pod(&fixture, "never", json!({}), json!({"image": "shop/web:none", "imagePullPolicy": "Never"})).await?;
    pod(&fixture, "invalid", json!({}), json!({"image": "shop/WEB"})).await?;
    for (name, words) in [
        ("missing", format!("the image {}/shop/web:1 of container server does not exist", missing.host)),
        ("closed", format!("the registry does not let the node pull the image {}/shop/web:1", closed.host)),
        ("busy", format!("{} limits the number of pulls, and refuses the image", busy.host)),
        ("silent", "127.0.0.1:1 cannot be reached for the image 127.0.0.1:1/shop/web:1".to_owned()),
        ("secret", "needs the pull secret regcred, which does not exist".to_owned()),
        (
            "never",
            "the image shop/web:none of container server is not on the node, and imagePullPolicy is Never"
                .to_owned(),
        ),
        ("invalid", "the image shop/WEB of container server has an invalid name".to_owned()),
    ] {
        let said = until_first_line(&fixture, name, &words).await?;
        ensure!(said.lines().next().is_some_and(|line| line.contains("; next: ")), "{said}");
    }
    Ok(())
}

async fn configuration(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    create(
        &fixture,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "present"}, "data": {"a": "1"}}),
    )
    .await?;
    let key = |kind: &str, name: &str| json!({"env": [{"name": "X", "valueFrom": {kind: {"name": name, "key": "mode"}}}]});
    pod(&fixture, "secret", json!({}), key("secretKeyRef", "password")).await?;
    pod(&fixture, "map", json!({}), key("configMapKeyRef", "settings")).await?;
    pod(&fixture, "key", json!({}), key("configMapKeyRef", "present")).await?;
    let volume = |source: serde_json::Value| {
        let mut volume = json!({"name": "settings"});
        change(&mut volume, source);
        json!({"volumes": [volume]})
    };
    let mount = json!({"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]});
    pod(&fixture, "mounted", volume(json!({"secret": {"secretName": "mounted"}})), mount.clone()).await?;
    let items = json!({"configMap": {"name": "present", "items": [{"key": "mode", "path": "mode"}]}});
    pod(&fixture, "item", volume(items), mount.clone()).await?;
    let folder = json!({"hostPath": {"path": "/there-is-none", "type": "Directory"}});
    pod(&fixture, "folder", volume(folder), mount).await?;
    let present =
        format!("needs the key mode, which ConfigMap {}/present does not have", fixture.namespace());
    for (name, words) in [
        ("secret", "container server needs Secret password, which does not exist"),
        ("map", "container server needs ConfigMap settings, which does not exist"),
        ("key", present.as_str()),
        ("mounted", "a volume needs Secret mounted, which does not exist"),
        ("item", "volume settings needs the key mode, which its ConfigMap does not have"),
        ("folder", "volume settings cannot be mounted: "),
    ] {
        until_first_line(&fixture, name, words).await?;
    }
    Ok(())
}

async fn containers(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let image = fixture.images().v1.clone();
    pod(&fixture, "command", json!({}), json!({"command": ["/there-is-none"]})).await?;
    let other = |name: &str| json!({"name": name, "image": image, "args": ["--listen", "127.0.0.1:9999"]});
    pod(&fixture, "init", json!({"initContainers": [other("wait")]}), json!({})).await?;
    let mut sidecar = other("proxy");
    sidecar["restartPolicy"] = json!("Always");
    sidecar["startupProbe"] = json!({"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 300});
    pod(&fixture, "sidecar", json!({"initContainers": [sidecar]}), json!({})).await?;
    let mut failing = other("migrate");
    failing["args"] = json!(["--there-is-no-such-argument"]);
    pod(&fixture, "failing", json!({"initContainers": [failing]}), json!({})).await?;
    for (name, words) in [
        ("command", "container server cannot be started: "),
        ("init", "init container wait has not ended, and the next containers wait"),
        ("sidecar", "sidecar proxy has not started: its startup probe has not succeeded"),
        ("failing", "init container migrate ends with exit code "),
    ] {
        until_first_line(&fixture, name, words).await?;
    }
    Ok(())
}
