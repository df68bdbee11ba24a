//! `kubectl podward begin` and `wait` beside other users, and when a signal or the end of its reader ends them.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_support::{WAIT, within};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("plugin_runs_no_command_in_the_operation_of_another", joined),
        Test::node("plugin_takes_a_pod_with_its_kind", with_kind),
        Test::node("plugin_cancels_its_operation_on_sigterm", terminated),
        Test::node("plugin_cancels_its_operation_if_nobody_reads_its_output", unread),
    ]
}

async fn joined(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    fixture.plugin(&["begin", "web"]).await?.succeeded()?;
    let other = fixture.plugin(&["begin", "web", "--timeout=60", "--", "true"]).await?;
    ensure!(
        other.code == Some(1)
            && other.said.contains("an operation kubectl (restart) already: choose another --id"),
        "{other:?}"
    );
    // Nobody has finished or cancelled it.
    fixture.plugin(&["wait", "web", "--for=permitted", "--timeout=60"]).await?.succeeded()?;
    fixture.plugin(&["begin", "web", "--id=other", "--timeout=60", "--", "true"]).await?.succeeded()?;
    fixture.plugin(&["wait", "web", "--for=permitted", "--timeout=60"]).await?.succeeded()?;
    fixture.plugin(&["finish", "web"]).await?.succeeded()?;
    fixture.until_available("web").await.map(drop)
}

async fn with_kind(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    // A pod that does not exist cannot become available.
    fixture.plugin(&["wait", "pod/web", "--timeout=60"]).await?.succeeded()?;
    fixture.plugin(&["begin", "pods/web", "--timeout=60", "--", "true"]).await?.succeeded()?;
    fixture.plugin(&["wait", "po/web", "--for=ended", "--timeout=60"]).await?.succeeded()?;
    let other = fixture.plugin(&["wait", "deploy/web", "--for=gone", "--timeout=60"]).await?;
    ensure!(other.code == Some(2) && other.said.contains("does not name a pod"), "{other:?}");
    fixture.until_available("web").await.map(drop)
}

async fn terminated(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    let work = ["begin", "web", "--timeout=60", "--", "sh", "-c", "echo works; exec tail -f /dev/null"];
    let mut command = fixture.plugin_command(&work).await?;
    let mut begin = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().context("start the plugin")?;
    let mut lines = BufReader::new(begin.stdout.take().context("the plugin has no output")?).lines();
    let status = within(WAIT, || "the plugin to end after SIGTERM".to_owned(), async {
        let mut said = Vec::new();
        while let Some(line) = lines.next_line().await.context("read the output of the plugin")? {
            if line == "works" {
                let id = begin.id().context("the plugin has ended")?.to_string();
                // The shell has it as a command of its own.
                let sent = Command::new("sh").args(["-c", "kill -TERM \"$1\"", "sh", &id]).status().await;
                ensure!(sent.context("send SIGTERM")?.success(), "SIGTERM was not sent to {id}");
            }
            said.push(line);
        }
        let words = format!("operation kubectl of pod {}/web is cancelled", fixture.namespace());
        ensure!(said.contains(&words), "{words} is not in {said:#?}");
        begin.wait().await.context("wait for the plugin")
    })
    .await?;
    ensure!(status.code() == Some(143), "{status}");
    fixture.plugin(&["wait", "web", "--for=ended", "--timeout=60"]).await?.succeeded()?;
    fixture.until_available("web").await.map(drop)
}

async fn unread(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    // Nobody releases the pod, so that the permission does not come yet.
    drop(traffic);
    let mut command =
        fixture.plugin_command(&["begin", "web", "--timeout=60", "--", "sleep", "1000"]).await?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut begin = command.spawn().context("start the plugin")?;
    let mut lines = BufReader::new(begin.stderr.take().context("the plugin has no output")?).lines();
    let first = within(WAIT, || "a line of the plugin".to_owned(), async {
        lines.next_line().await.context("read the output of the plugin")
    });
    let first = first.await?.unwrap_or_default();
    ensure!(first.ends_with("has begun"), "{first}");
    drop((lines, begin.stdout.take()));
    let _traffic = fixture.traffic();
    let status = within(WAIT, || "the plugin to end".to_owned(), async {
        begin.wait().await.context("wait for the plugin")
    });
    let status = status.await?;
    // A process that aborts has no exit code.
    ensure!(status.code() == Some(1), "{status}");
    fixture.plugin(&["wait", "web", "--for=ended", "--timeout=60"]).await?.succeeded()?;
    fixture.until_available("web").await.map(drop)
}
