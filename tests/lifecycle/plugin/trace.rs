//! `kubectl podward trace`, and the history on which it relies.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use podward_e2e::{Fixture, Test};
use podward_support::{WAIT, within};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

const PHASES: [&str; 5] = ["PreChecking", "Preparing", "Operating", "PostChecking", "Completing"];

pub(crate) fn test() -> Test {
    Test::node("plugin_traces_past_and_present_operations", trace)
}

async fn trace(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let none = fixture.plugin(&["trace", "web"]).await?.succeeded()?.said;
    ensure!(none.trim_end().ends_with("the history contains none"), "{none}");

    let upgrade = fixture.operator("upgrade", "update");
    upgrade.begin("web").await?;
    upgrade.await_operate("web").await?;
    let present = fixture.plugin(&["trace", "web"]).await?.succeeded()?.said;
    ensure!(present.contains("\nupgrade (update): goes on for "), "{present}");
    ensure!(present.contains("\n  Operating ") && present.contains("\n  now: "), "{present}");
    ensure!(present.lines().all(|line| line.chars().count() <= 80), "{present}");
    upgrade.finish("web").await?;
    upgrade.await_end("web").await?;

    let restart = fixture.operator("restart", "restart");
    restart.begin("web").await?;
    restart.undo("web").await?;
    restart.await_end("web").await?;
    let json = fixture.plugin(&["trace", "web", "--output=json"]).await?.succeeded()?.said;
    let json: Value = serde_json::from_str(&json).context("read the JSON")?;
    let [done, cancelled] = json["operations"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        anyhow::bail!("not two operations: {json:#}")
    };
    check(done, cancelled)?;

    let folder = tempfile::tempdir().context("make a folder")?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (svg, html) = (path("web.svg"), path("web.html"));
    let pictures = ["trace", "web", "--id=upgrade", "--svg", &svg, "--html", &html];
    let shown = fixture.plugin(&pictures).await?.succeeded()?.said;
    ensure!(shown.contains("\nupgrade (update): Completed after ") && !shown.contains("restart"), "{shown}");
    for (path, begins) in [(&svg, "<svg "), (&html, "<!doctype html>")] {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
        ensure!(text.starts_with(begins) && text.contains("PostChecking"), "{text}");
    }
    let unknown = fixture.plugin(&["trace", "web", "--id=other"]).await?;
    ensure!(unknown.code == Some(1) && unknown.said.contains("has no operation other"), "{unknown:?}");

    watch(&fixture).await
}

/// The pod is deleted after the watch has written what is known of it.
async fn watch(fixture: &Fixture) -> Result<()> {
    let mut command = fixture.plugin_command(&["trace", "pod/web", "--watch"]).await?;
    let mut watch = command.stdout(Stdio::piped()).spawn().context("start the watch")?;
    let mut lines = BufReader::new(watch.stdout.take().context("the watch has no output")?).lines();
    let mut said = Vec::new();
    let mut is_deleted = false;
    let watched = async {
        while let Some(line) = lines.next_line().await.context("read the output of the watch")? {
            said.push(line);
            if !is_deleted && said.iter().any(|line| line.contains(" restart Cancelled (after ")) {
                is_deleted = true;
                // The delete is recorded, and executed when the consumer has released the pod.
                let deleted = fixture.api().delete("web", &DeleteParams::default()).await;
                let is_held = matches!(&deleted, Err(kube::Error::Api(status)) if status.code == 429);
                ensure!(is_held, "{deleted:?}");
            }
        }
        watch.wait().await.context("wait for the watch")
    };
    let status = within(WAIT, || "the watch to end with the pod".to_owned(), watched).await?;
    ensure!(status.success(), "{status}: {said:#?}");
    for words in [" upgrade Completed (after ", " restart Cancelled (after ", " pod-delete Operating (after "]
    {
        ensure!(said.iter().any(|line| line.contains(words)), "{words} is not in {said:#?}");
    }
    Ok(())
}

fn check(done: &Value, cancelled: &Value) -> Result<()> {
    let of = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
    ensure!(of(done, "outcome") == "Completed" && of(done, "type") == "update", "{done:#}");
    ensure!(of(cancelled, "outcome") == "Cancelled" && of(cancelled, "id") == "restart", "{cancelled:#}");
    let phases = done["phases"].as_array().context("an operation without phases")?;
    let names: Vec<_> = phases.iter().filter_map(|phase| phase[0].as_str()).collect();
    ensure!(names == PHASES, "{done:#}");
    let starts: Vec<_> = phases.iter().filter_map(|phase| phase[1].as_u64()).collect();
    let ended = done["ended"].as_u64().context("an operation without an end")?;
    ensure!(starts.is_sorted() && starts.last().is_some_and(|last| *last <= ended), "{done:#}");
    for key in ["begunBy", "finishedBy"] {
        ensure!(
            !of(done, key).is_empty() && of(done, key) == of(cancelled, key),
            "{key}: {done:#} {cancelled:#}"
        );
    }
    Ok(())
}
