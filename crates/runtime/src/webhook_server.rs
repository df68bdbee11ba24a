//! A webhook process without its decisions.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::admin::{AdminServer, Readiness};
use crate::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService, Webhook, Webhooks};
use crate::args::{KubeArgs, ProcessArgs, TlsArgs};
use crate::secret_path::{SecretPathArgs, SecretPathGuard, SecretPathMetrics};
use crate::serving_check::check_repeatedly;
use crate::telemetry::traces::Traces;
use crate::tls::{
    CertificateSecret, ReviewClientArgs, ServerLimits, ServingCertificate, TlsMetrics, TlsServer,
};
use crate::{client, telemetry};

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
    #[command(flatten)]
    #[allow(missing_docs)]
    pub path: SecretPathArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub clients: ReviewClientArgs,
}

/// The addresses on which a webhook process listens.
#[derive(Clone, Copy, Debug)]
pub struct WebhookAddresses {
    /// HTTPS.
    pub tls: SocketAddr,
    /// Probes and metrics.
    pub admin: SocketAddr,
}

/// The parts of a webhook process that its webhook can extend.
#[derive(Debug)]
pub struct WebhookSetup {
    service: &'static str,
    version: &'static str,
    /// The metrics of the process.
    pub registry: Registry,
    /// The conditions of the process's readiness.
    pub readiness: Readiness,
    /// The Secret of `--tls-secret`. It is empty until the webhook is served.
    pub secret: CertificateSecret,
    /// Cancelled when the process is to stop. Reviews still come for a while after that.
    pub stop: CancellationToken,
    webhooks: Webhooks,
}

impl WebhookSetup {
    /// The process `service`, which runs until `stop`.
    #[must_use]
    pub fn new(service: &'static str, version: &'static str, stop: CancellationToken) -> Self {
        let registry = telemetry::registry(service, version);
        let (readiness, webhooks) = (Readiness::default(), Webhooks::default());
        let secret = CertificateSecret::default();
        Self { service, version, registry, readiness, secret, stop, webhooks }
    }

    /// Also serves `webhook`, which must have other paths.
    pub fn also_serve(&mut self, webhook: impl Webhook) {
        self.webhooks = std::mem::take(&mut self.webhooks).and(webhook);
    }
}

/// Runs the webhook that `make` returns as the process `service`, until a signal. The `main` of a webhook calls it.
///
/// `make` must not wait for anything but its own configuration, because the process does not answer probes meanwhile.
///
/// # Errors
///
/// When logging, the certificate or a port can't be set up, or `make` fails.
pub fn run_webhook<W: Webhook, M>(
    args: &WebhookArgs,
    service: &'static str,
    version: &'static str,
    make: M,
) -> anyhow::Result<()>
where
    M: AsyncFnOnce(&mut WebhookSetup) -> anyhow::Result<W>,
{
    crate::run(&args.process, async |stop| {
        let mut setup = WebhookSetup::new(service, version, stop);
        let webhook = make(&mut setup).await?;
        serve_webhook(args, webhook, setup, None).await
    })
}

/// Serves `webhook` until [`WebhookSetup::stop`], without setting up logs or signals, so several can share a process.
/// Sends the addresses to `listening`.
///
/// # Errors
///
/// When the certificate or a port can't be set up.
pub async fn serve_webhook<W: Webhook>(
    args: &WebhookArgs,
    webhook: W,
    setup: WebhookSetup,
    listening: Option<oneshot::Sender<WebhookAddresses>>,
) -> anyhow::Result<()> {
    let WebhookArgs { process, tls, kube, path, clients } = args;
    let WebhookSetup { service, version, mut registry, readiness, secret, stop, webhooks } = setup;
    let (admission_metrics, tls_metrics) = (AdmissionMetrics::default(), TlsMetrics::default());
    let path_metrics = SecretPathMetrics::default();
    admission_metrics.register(&mut registry);
    path_metrics.register(&mut registry);
    tls_metrics.register(&mut registry);
    let budget = tls.limits.budget(&mut registry);
    let traces = Traces::start(&process.traces, service, version, &mut registry)?;

    // The admin port and the self-check run longer than the HTTPS port.
    let (end, last) = (CancellationToken::new(), CancellationToken::new());
    let _ends_with_us = (end.clone().drop_guard(), last.clone().drop_guard());
    let (serves, running) = (readiness.condition("tls"), readiness.condition("running"));
    let knows_path = readiness.condition("webhook-path");
    running.set(true);
    // First, because the certificate may take long, and probes must report that.
    let admin = AdminServer::bind(process.admin_bind).await?;
    let admin_address = admin.address();
    let admin = tokio::spawn(admin.serve(readiness, registry, last.clone()));

    let (namespace, process) = (&tls.certificate.namespace, (service, version));
    // Reviews come for a while after `stop`.
    let accepted = path.accepted(kube, namespace, process, knows_path, end.clone()).await?;
    if tls.certificate.tls_secret.is_some() {
        let client = client::connect(kube, service, version).await?;
        tls.certificate.follow(&secret, &client, &stop).await?;
    }
    let certificate = ServingCertificate::load(tls.certificate.source(&secret), tls_metrics)?;
    let certificate = Arc::new(clients.restrict(certificate)?);
    let limits = ServerLimits {
        connections: tls.limits.max_connections,
        drain: tls.drain_timeout,
        ..ServerLimits::default()
    };
    let server = TlsServer::bind(tls.bind, Arc::clone(&certificate), limits).await?;
    let server = server.retire_connections_from(stop.clone());
    let at = WebhookAddresses { tls: server.address(), admin: admin_address };
    tracing::info!(service, version, tls = %at.tls, admin = %at.admin, "listening");

    let checks = tokio::spawn(check_repeatedly(at.tls, certificate, serves, end.clone()));
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
        // The caller may have dropped the receiver.
        let _ = listening.send(at);
    }

    let webhooks = webhooks.and(webhook);
    let service =
        AdmissionService::of(webhooks, admission_metrics, AdmissionLimits::default(), traces.spans())
            .within(budget);
    let service = SecretPathGuard::new(service, accepted, path_metrics);
    let report = server.serve(service, stop_accepting).await;
    stopper.abort();
    end.cancel();
    checks.await.context("the self-check failed")?;
    traces.finish().await;
    last.cancel();
    admin.await.context("the task of the admin server failed")?.context("the admin server failed")?;
    tracing::info!(drained = report.drained, "stopped");
    Ok(())
}
