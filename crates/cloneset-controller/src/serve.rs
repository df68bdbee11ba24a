//! The process: stands for election, and works while it leads and OpenKruise is not installed.

use std::sync::Arc;

use anyhow::Context as _;
use podward_runtime::admin::{AdminServer, Readiness};
use podward_runtime::lease::{stand, work_while};
use podward_runtime::progress::Progress;
use podward_runtime::telemetry::traces::Traces;
use podward_runtime::{client, telemetry};
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
    podward_runtime::run(&args.process.clone(), |stop| serve(args, stop))
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
        leader.metrics.works(true);
        leader.lead(work).await;
        leader.metrics.works(false);
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
            let yields = leads && installed == Some(true);
            metrics.yields.set(i64::from(yields));
            if yields {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_leader_says_that_it_leaves_sets_to_openkruise() {
        let (lead, leading) = watch::channel(false);
        let (install, installed) = watch::channel(None);
        let metrics = Arc::new(Metrics::default());
        let may = may_work(leading, installed, Arc::clone(&metrics));
        let expect = async |yields, works, why: &str| {
            // The task has nothing to wait for but these channels.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!((metrics.yields.get(), *may.borrow()), (yields, works), "{why}");
        };
        expect(0, false, "nothing is known").await;
        install.send_replace(Some(true));
        expect(0, false, "a standby leaves nothing to anybody").await;
        lead.send_replace(true);
        expect(1, false, "it leads, and OpenKruise is installed").await;
        lead.send_replace(false);
        expect(0, false, "another replica leads").await;
        lead.send_replace(true);
        install.send_replace(Some(false));
        expect(0, true, "OpenKruise was removed").await;
    }
}
