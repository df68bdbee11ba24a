//! Commands of `kubectl podward` that operate on a pod.

mod begin;
mod trace;
mod words;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use podward_core::keys;
use podward_e2e::{Fixture, Test};
use podward_support::Installation;
use serde_json::{Value, json};
use tokio::process::Command;

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::node("plugin_runs_a_command_while_it_is_permitted", with_command),
        Test::simulated("plugin_checks_a_workload_that_is_to_opt_in", check),
        Test::node("plugin_checks_a_cluster_before_the_installation", before),
        Test::serving("plugin_collects_a_support_bundle_without_secrets", bundle),
        Test::node("plugin_begins_waits_finishes_and_cancels", step_by_step),
        trace::test(),
    ];
    tests.extend(begin::tests());
    tests.extend(words::tests());
    tests
}

async fn with_command(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let said = fixture.plugin(&["begin", "web", "--timeout=60", "--", "true"]).await?.succeeded()?.said;
    for words in [
        format!("pod {}/web is out of service: operation kubectl may work on it", fixture.namespace()),
        format!("operation kubectl of pod {}/web is finished", fixture.namespace()),
    ] {
        ensure!(said.contains(&words), "{words} is not in {said}");
    }
    fixture.plugin(&["wait", "web", "--timeout=60"]).await?.succeeded()?;

    let failed = fixture.plugin(&["begin", "web", "--timeout=60", "--", "sh", "-c", "exit 3"]).await?;
    ensure!(failed.code == Some(3) && failed.said.contains("is cancelled"), "{failed:?}");
    fixture.plugin(&["wait", "web", "--for=ended", "--timeout=60"]).await?.succeeded()?;
    let said = fixture.plugin(&["wait", "web", "--timeout=60"]).await?.succeeded()?.said;
    ensure!(said.contains(&format!("pod {}/web is in service", fixture.namespace())), "{said}");
    Ok(())
}

async fn step_by_step(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    fixture.plugin(&["busy", "web", "--for=600", "--reason=restores a backup"]).await?.succeeded()?;
    // It does not wait without being asked to.
    fixture.plugin(&["begin", "web", "--type=update"]).await?.succeeded()?;
    // Longer than the 5 s after which the condition says why the pod waits.
    let late = fixture.plugin(&["wait", "web", "--for=permitted", "--timeout=8"]).await?;
    ensure!(late.code == Some(1) && late.said.contains("restores a backup"), "{late:?}");
    ensure!(late.said.contains("within 8 s: kubectl podward why web -n "), "{late:?}");
    let other = fixture.plugin(&["begin", "web", "--type=restart"]).await?;
    ensure!(
        other.code == Some(1) && other.said.contains("an operation kubectl (update) already"),
        "{other:?}"
    );
    fixture.plugin(&["cancel", "web"]).await?.succeeded()?;
    fixture.plugin(&["busy", "web", "--done"]).await?.succeeded()?;
    fixture.plugin(&["wait", "web", "--timeout=60"]).await?.succeeded()?;

    fixture.plugin(&["begin", "web"]).await?.succeeded()?;
    fixture.plugin(&["wait", "web", "--for=permitted", "--timeout=60"]).await?.succeeded()?;
    fixture.plugin(&["finish", "web"]).await?.succeeded()?;
    fixture.plugin(&["wait", "web", "--for=ended", "--timeout=60"]).await?.succeeded()?;
    let again = fixture.plugin(&["finish", "web"]).await?;
    ensure!(again.code == Some(1) && again.said.contains("has no operation kubectl"), "{again:?}");

    let empty = fixture.plugin(&["break-glass", "web", "--reason="]).await?;
    ensure!(empty.code == Some(1) && empty.said.contains("the reason is empty"), "{empty:?}");
    fixture.plugin(&["break-glass", "web", "--reason=a test"]).await?.succeeded()?;
    let is_allowed = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.annotations().get(keys::BREAK_GLASS).is_some_and(|it| it == "a test")
    };
    fixture.feed().until("web", "the reason is stored", is_allowed).await?;
    // After a short operation, the kubelet may report Ready late, and the consumer adds the pod again.
    fixture.until_available("web").await.map(drop)
}

async fn check(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let mut server = podward_support::pods::server_spec(&fixture.images().v1);
    server["containers"][0]["readinessProbe"] = json!(null);
    let make = async |name: &str, spec: &Value, replicas: u32| {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            },
        });
        crate::deletion::objects::make(&fixture, object).await
    };
    make("bad", &server, 1).await?;
    let bad = fixture.plugin(&["check", "deploy/bad"]).await?;
    ensure!(bad.code == Some(1), "{bad:?}");
    for words in [
        "problem   container server has no readiness probe: it gets requests before it can answer them",
        "warning   it has one replica: while the pod is operated on, nobody serves",
        "note      no Service of the namespace selects its pods",
        "1 problems, 2 warnings",
    ] {
        ensure!(bad.said.contains(words), "{words} is not in {}", bad.said);
    }
    make("good", &podward_support::pods::server_spec(&fixture.images().v1), 2).await?;
    let good = fixture.plugin(&["check", "deploy/good", "--output=json"]).await?.succeeded()?;
    let good: Value = serde_json::from_str(&good.said)?;
    ensure!(
        good.as_array().is_some_and(|all| all.iter().all(|advice| advice["level"] != "problem")),
        "{good}"
    );
    Ok(())
}

async fn before(fixture: Arc<Fixture>) -> Result<()> {
    let image = fixture.images().v1.clone();
    let fine = fixture.plugin(&["doctor", "--pre", "--image", &image]).await?.succeeded()?.said;
    for words in [
        "The cluster, checked for Podward ",
        "Kubernetes v1.",
        "no tool that drains nodes was found",
        &format!("the image {image} was pulled and started"),
    ] {
        ensure!(fine.contains(words), "{words} is not in {fine}");
    }
    let failed = fixture.plugin(&["doctor", "--pre", "--image=127.0.0.1:1/podward/none:1"]).await?;
    let words = "127.0.0.1:1 cannot be reached for the image 127.0.0.1:1/podward/none:1";
    ensure!(failed.code == Some(1) && failed.said.contains(words), "{failed:?}");
    Ok(())
}

async fn bundle(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let file = folder.path().join("bundle.tar.gz");
    let path = file.to_str().context("a folder whose name is no text")?;
    let output = format!("--output={path}");
    let bundle =
        fixture.plugin_in(Installation::NAMESPACE, &["support-bundle", &output]).await?.succeeded()?;
    ensure!(bundle.said.trim() == path, "{bundle:?}");
    let unpacked = Command::new("tar").arg("xzf").arg(&file).arg("-C").arg(folder.path()).status().await;
    ensure!(unpacked.context("unpack the bundle")?.success(), "the bundle cannot be unpacked");
    let listed = Command::new("find")
        .arg(folder.path())
        .args(["-type", "f"])
        .output()
        .await
        .context("list the bundle")?;
    let files = String::from_utf8_lossy(&listed.stdout).into_owned();
    let secrets: Api<Secret> = Api::namespaced(fixture.client(), Installation::NAMESPACE);
    let secret = secrets.get("podward-webhook-path").await.context("read the secret of the webhooks")?;
    let values = secret
        .data
        .unwrap_or_default()
        .into_values()
        .map(|value| String::from_utf8_lossy(&value.0).into_owned());
    let values: Vec<String> = values.collect();
    ensure!(!values.is_empty(), "there is no secret");
    let mut all = String::new();
    for file in files.lines().filter(|file| !file.ends_with(".gz")) {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {file}"))?;
        // The stored values are texts with several secrets.
        let parts =
            values.iter().flat_map(|value| value.split(|letter: char| !letter.is_ascii_alphanumeric()));
        for secret in parts.filter(|part| part.len() >= 32) {
            ensure!(!text.contains(secret), "{file} contains a secret path of the webhooks");
        }
        all.push_str(&text);
    }
    for words in ["lifecycle-controller", "podward-validating", "service-ready"] {
        ensure!(all.contains(words), "{words} is not in the bundle");
    }
    for name in [
        "deployments.json",
        "opted-in-pods.json",
        "lifecycle-hooks.json",
        "logs/lifecycle-controller-",
        "errors.txt",
    ] {
        ensure!(files.contains(name), "{name} is not in the bundle: {files}");
    }
    drop(traffic);
    Ok(())
}
