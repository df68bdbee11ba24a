//! Pictures of the demo: what was lost when, and the trace of a pod.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use podward_images::build_program;
use podward_timeline::{Bar, Group, Timeline, svg};
use tokio::process::Command;

use super::{clients::DemoClients, entry::DemoEntry, server::DemoServer, workload::DemoWorkload};

/// The file with the time of each act and the losses.
const LOSSES: &str = "demo.svg";
/// The file with the operation on a pod.
const TRACE: &str = "trace.svg";
const SECOND: u64 = 1_000;

/// Draws the results into the folder `dir`.
///
/// # Errors
/// Fails if the file cannot be written.
pub(super) fn draw_losses(dir: &Path, entries: &[DemoEntry]) -> Result<()> {
    let file = dir.join(LOSSES);
    std::fs::write(&file, svg(&losses(entries))).with_context(|| format!("write {}", file.display()))
}

/// Makes the folder `dir`, and builds what draws. Otherwise the demo would wait for it later.
///
/// # Errors
/// Fails if the folder cannot be made or the plugin of kubectl cannot be built.
pub(super) async fn prepare(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("make the folder {}", dir.display()))?;
    plugin().await.map(drop)
}

async fn plugin() -> Result<PathBuf> {
    build_program("kubectl-podward", "dev").await.context("build kubectl's plugin")
}

/// Draws the latest operations on the first of the workload's pods, by `kubectl podward trace`, into the folder `dir`.
///
/// # Errors
/// Fails if there is no pod, the plugin cannot be built, or it fails.
pub(super) async fn draw_trace(dir: &Path, kubeconfig: &Path, workload: &DemoWorkload) -> Result<()> {
    let plugin = plugin().await?;
    let pod = workload.names().into_iter().min().context("there is no pod to trace")?;
    let mut command = Command::new(plugin);
    command.arg("trace").arg(&pod).args(["--namespace", &workload.namespace]);
    command.arg("--kubeconfig").arg(kubeconfig).arg("--svg").arg(dir.join(TRACE));
    let output = command.output().await.with_context(|| format!("run {command:?}"))?;
    ensure!(
        output.status.success(),
        "draw the trace of pod {pod}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Returns a bar for each entry, with the seconds in which requests failed as bad parts.
fn losses(entries: &[DemoEntry]) -> Timeline {
    let mut sides: BTreeMap<(bool, DemoClients, DemoServer), Vec<&DemoEntry>> = BTreeMap::new();
    for entry in entries {
        sides.entry((entry.podward, entry.clients, entry.server)).or_default().push(entry);
    }
    let groups = sides.into_iter().map(|((podward, clients, server), entries)| Group {
        title: title(podward, clients, server),
        bars: entries.iter().map(|entry| bar(entry)).collect(),
        notes: vec![note(&entries)],
    });
    Timeline { title: "Requests that clients lost, by second".to_owned(), groups: groups.collect() }
}

fn title(podward: bool, clients: DemoClients, server: DemoServer) -> String {
    let with = if podward { "With" } else { "Without" };
    let server = match server {
        DemoServer::ExitsAtOnce => "a server that exits at once",
        DemoServer::Graceful => "a server that finishes its requests",
    };
    format!("{with} Podward, {server}, {clients} clients")
}

fn bar(entry: &DemoEntry) -> Bar {
    let name = format!("{}, {}", entry.act, entry.connections);
    // The load begins a second before the act.
    let end = SECOND + (entry.seconds * SECOND as f64) as u64;
    let seconds = entry.failed_by_second.keys().map(|second| *second as u64 * SECOND);
    let bad_parts = seconds.map(|second| (second, second + SECOND)).collect();
    Bar { bad_parts, ..Bar::new(name, SECOND, end) }
}

fn note(entries: &[&DemoEntry]) -> String {
    let (requests, failed) =
        entries.iter().fold((0, 0), |(a, b), entry| (a + entry.requests, b + entry.failed));
    format!("{failed} of {requests} requests were lost. Red: seconds with lost requests.")
}
