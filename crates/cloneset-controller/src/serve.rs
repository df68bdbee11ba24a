//! The process: stands for election, and works while it leads and OpenKruise is not installed.

use std::sync::Arc;

use anyhow::Context as _;
use podward_runtime::admin::{AdminServer, Readiness};
use podward_runtime::lease::{stand, work_while};
use podward_runtime::progress::Progress;
use podward_runtime::telemetry::traces::Traces;
use podward_runtime::{client, shutdown, telemetry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::{Args, Mode};
use crate::controller::Leader;
use crate::metrics::Metrics;
use crate::openkruise;

const SERVICE: &str = "cloneset-controller";

/// Runs the controller until SIGTERM or SIGINT.
///
/// # Errors
/// Fails if the process cannot start: no API server is configured, or the admin port is taken.
pub fn run(args: Args) -> anyhow::Result<()> {
    telemetry::init(&args.process.log)?;
    shutdown::block_on(args.process.threads.map(usize::from), async move {
        let stop = shutdown::on_signal().context("could not listen for signals")?;
        serve(args, stop).await
    })
}

async fn serve(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let client = client::with_config(client::config(&args.kube, SERVICE, version).await?)?;
    let metrics = Arc::new(Metrics::default());
    let mut registry = telemetry::registry(SERVICE, version);
    metrics.register(&mut registry);
    let traces = Traces::start(&args.process.traces, SERVICE, version, &mut registry)?;
    let admin = AdminServer::bind(args.process.admin_bind).await?;
    let admin_address = admin.address();
    let readiness = Readiness::default();
    // A standby is ready too.
    readiness.condition("running").set(true);
    let progress = Progress::default();
    readiness.depend_on(progress.clone());
    let end = CancellationToken::new();
    let _ends_with_us = end.clone().drop_guard();
    let admin = tokio::spawn(admin.serve(readiness, registry, end.clone()));
    tracing::info!(service = SERVICE, version, admin = %admin_address, mode = ?args.mode, "running");

    let params = args.lease.params(SERVICE);
    let identity = params.identity.clone();
    let (installed, openkruise) = watch::channel(None);
    match args.mode {
        Mode::Always => drop(installed.send_replace(Some(false))),
        Mode::Auto => {
            openkruise::follow(client.clone(), installed, metrics.watches.clone(), stop.clone());
        }
    }
    let candidacy = stand(client.clone(), params, progress.clone());
    let may = may_work(candidacy.leading.clone(), openkruise, Arc::clone(&metrics));
    let leader = Leader { client, identity, metrics, progress, spans: traces.spans() };
    work_while(may, &leader.progress, &stop, async |work| {
        leader.metrics.leader.set(1);
        leader.lead(work).await;
        leader.metrics.leader.set(0);
    })
    .await;
    candidacy.release().await;
    traces.finish().await;
    end.cancel();
    admin.await.context("the admin server ended badly")?.context("the admin server failed")?;
    tracing::info!("stopped");
    Ok(())
}

/// Returns whether this replica works: it leads, and OpenKruise is not installed.
fn may_work(
    mut leading: watch::Receiver<bool>,
    mut openkruise: watch::Receiver<Option<bool>>,
    metrics: Arc<Metrics>,
) -> watch::Receiver<bool> {
    let (sender, may) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            let leads = *leading.borrow_and_update();
            let installed = *openkruise.borrow_and_update();
            metrics.yields.set(i64::from(installed == Some(true)));
            if leads && installed == Some(true) {
                tracing::info!("OpenKruise is installed: CloneSets are left to it");
            }
            sender.send_replace(leads && installed == Some(false));
            let changed = tokio::select! {
                changed = leading.changed() => changed.is_ok(),
                // Without a sender, it does not change any more.
                changed = openkruise.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => leading.changed().await.is_ok(),
                },
            };
            if !changed {
                return;
            }
        }
    });
    may
}
