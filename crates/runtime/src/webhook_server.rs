//! A whole webhook process but its judgement.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::admin::{AdminServer, Condition, Readiness};
use crate::admission::{AdmissionMetrics, AdmissionService, Limits, Webhook, Webhooks};
use crate::args::{KubeArgs, ProcessArgs, TlsArgs};
use crate::telemetry::traces::Traces;
use crate::tls::{Certificates, ServerLimits, TlsMetrics, TlsServer, self_check};
use crate::{client, shutdown, telemetry};

const SELF_CHECK_INTERVAL: Duration = Duration::from_secs(10);
const SELF_CHECK_RETRY: Duration = Duration::from_millis(200);
const SELF_CHECK_PATIENCE: Duration = Duration::from_secs(2);
/// A replica under full load may miss a check; one that misses this many in a row doesn't serve.
const SELF_CHECK_FAILURES: u32 = 3;

/// Arguments of a webhook process.
#[derive(Clone, Debug, Args)]
pub struct WebhookArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub process: ProcessArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub tls: TlsArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub kube: KubeArgs,
}

/// Where a webhook process listens.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    /// HTTPS.
    pub tls: SocketAddr,
    /// Probes and metrics.
    pub admin: SocketAddr,
}

/// What a webhook gets of its process, to add to.
#[derive(Debug)]
pub struct Setup {
    service: &'static str,
    version: &'static str,
    /// The metrics of the process.
    pub registry: Registry,
    /// What must hold before reviews are sent here.
    pub readiness: Readiness,
    /// The wish to stop. Reviews still come for a while after it.
    pub stop: CancellationToken,
    webhooks: Webhooks,
}

impl Setup {
    /// The process `service`, which goes on until `stop`.
    #[must_use]
    pub fn new(service: &'static str, version: &'static str, stop: CancellationToken) -> Self {
        let registry = telemetry::registry(service, version);
        let (readiness, webhooks) = (Readiness::default(), Webhooks::default());
        Self { service, version, registry, readiness, stop, webhooks }
    }

    /// Also serves `webhook`, on paths of its own.
    pub fn also_serve(&mut self, webhook: impl Webhook) {
        self.webhooks = std::mem::take(&mut self.webhooks).and(webhook);
    }
}

/// Runs the webhook that `make` gives as the process `service` until a signal: what a webhook's `main` does.
///
/// `make` must not wait for anything but its own configuration: while it does, the process doesn't answer probes.
///
/// # Errors
///
/// When logging, certificate or ports can't be set up, or `make` fails.
pub fn run_webhook<W: Webhook, M>(
    args: &WebhookArgs,
    service: &'static str,
    version: &'static str,
    make: M,
) -> anyhow::Result<()>
where
    M: AsyncFnOnce(&mut Setup) -> anyhow::Result<W>,
{
    telemetry::init(&args.process.log)?;
    shutdown::block_on(args.process.threads.map(usize::from), async {
        let stop = shutdown::on_signal().context("could not listen for signals")?;
        let mut setup = Setup::new(service, version, stop);
        let webhook = make(&mut setup).await?;
        serve_webhook(args, webhook, setup, None).await
    })
}

/// Serves `webhook` until it is to stop, without logging or signals of its own, so several can share a process. `listening` is told
/// where.
///
/// # Errors
///
/// When certificate or ports can't be set up.
pub async fn serve_webhook<W: Webhook>(
    args: &WebhookArgs,
    webhook: W,
    setup: Setup,
    listening: Option<oneshot::Sender<Listening>>,
) -> anyhow::Result<()> {
    let WebhookArgs { process, tls, kube } = args;
    let Setup { service, version, mut registry, readiness, stop, webhooks } = setup;
    let (admission_metrics, tls_metrics) = (AdmissionMetrics::default(), TlsMetrics::default());
    admission_metrics.register(&mut registry);
    tls_metrics.register(&mut registry);
    let traces = Traces::start(&process.traces, service, version, &mut registry)?;

    // The admin port and the self-check outlive the HTTPS port; what is left of them goes with the runtime.
    let (end, last) = (CancellationToken::new(), CancellationToken::new());
    let _ends_with_us = (end.clone().drop_guard(), last.clone().drop_guard());
    let (serves, running) = (readiness.condition("tls"), readiness.condition("running"));
    running.set(true);
    // First: a certificate may be long in coming, and probes are to say so.
    let admin = AdminServer::bind(process.admin_bind).await?;
    let admin_address = admin.address();
    let admin = tokio::spawn(admin.serve(readiness, registry, last.clone()));

    if tls.certificate.secret.tls_secret.is_some() {
        let client = client::connect(kube, service, version).await?;
        tls.certificate.keep(&client, &stop).await?;
    }
    let certificates = Arc::new(tls.certificate.load(tls_metrics)?);
    let limits = ServerLimits {
        connections: tls.max_connections,
        drain: tls.drain_timeout,
        ..ServerLimits::default()
    };
    let server = TlsServer::bind(tls.bind, Arc::clone(&certificates), limits).await?;
    let server = server.retire_connections_from(stop.clone());
    let at = Listening { tls: server.address(), admin: admin_address };
    tracing::info!(service, version, tls = %at.tls, admin = %at.admin, "listening");

    let checks = tokio::spawn(keep_checking(at.tls, certificates, serves, end.clone()));
    let stop_accepting = CancellationToken::new();
    let delay = tls.drain_delay;
    let stopper = tokio::spawn({
        let stop_accepting = stop_accepting.clone();
        async move {
            stop.cancelled().await;
            running.set(false);
            tokio::time::sleep(delay).await;
            stop_accepting.cancel();
        }
    });
    if let Some(listening) = listening {
        // A caller that doesn't want to know any more is none of our business.
        let _ = listening.send(at);
    }

    let webhooks = webhooks.and(webhook);
    let service = AdmissionService::of(webhooks, admission_metrics, Limits::default(), traces.spans());
    let report = server.serve(service, stop_accepting).await;
    stopper.abort();
    end.cancel();
    checks.await.context("the self-check ended badly")?;
    traces.finish().await;
    last.cancel();
    admin.await.context("the admin server ended badly")?.context("the admin server failed")?;
    tracing::info!(drained = report.drained, "stopped");
    Ok(())
}

/// Keeps `serves` true to what the TLS port does.
async fn keep_checking(
    address: SocketAddr,
    certificates: Arc<Certificates>,
    serves: Condition,
    end: CancellationToken,
) {
    let mut failures = 0;
    loop {
        let checked = tokio::select! {
            () = end.cancelled() => return,
            checked = self_check(address, &certificates, SELF_CHECK_PATIENCE) => checked,
        };
        let pause = match checked {
            Ok(()) => {
                failures = 0;
                if serves.set(true) {
                    tracing::info!("the TLS port serves");
                }
                SELF_CHECK_INTERVAL
            }
            Err(error) => {
                failures += 1;
                if failures >= SELF_CHECK_FAILURES && serves.set(false) {
                    tracing::error!("not ready: {error}");
                }
                SELF_CHECK_RETRY
            }
        };
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
