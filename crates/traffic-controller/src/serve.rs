//! The process.

use std::sync::Arc;

use anyhow::Context as _;
use podward_proto::FILE_DESCRIPTOR_SET;
use podward_proto::v1::hook_handler_server::HookHandlerServer;
use podward_runtime::admin::{AdminServer, Readiness};
use podward_runtime::authn::Authenticator;
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, MAX_MESSAGE_BYTES, Services};
use podward_runtime::telemetry::traces::Traces;
use podward_runtime::tls::{ServerLimits, TlsMetrics};
use podward_runtime::{client, shutdown, telemetry};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::clock::Clock;
use crate::handler::Handler;
use crate::hub::Hub;
use crate::in_flight::InFlight;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::scraper::Scraper;
use crate::world::{NodeObject, ServiceObject, SliceObject};
use crate::{registration, watches};

const SERVICE: &str = "traffic-controller";
/// Calls at a time; more are refused.
const CALLS: usize = 1024;

/// Runs the traffic-controller until SIGTERM or SIGINT.
///
/// # Errors
/// When it can't start: no API server configured, no certificate, a port that is taken, or arguments that can't be right.
pub fn run(args: Args) -> anyhow::Result<()> {
    telemetry::init(&args.process.log)?;
    shutdown::block_on(args.process.threads.map(usize::from), async move {
        let stop = shutdown::on_signal().context("could not listen for signals")?;
        serve(args, stop).await
    })
}

async fn serve(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let Args { process, tls, kube, peers, audience, registration, .. } = args;
    let version = env!("CARGO_PKG_VERSION");
    let client = client::connect(&kube, SERVICE, version).await?;
    let (metrics, tls_metrics, grpc_metrics) =
        (Arc::new(Metrics::new()), TlsMetrics::default(), GrpcMetrics::default());
    let mut registry = telemetry::registry(SERVICE, version);
    metrics.register(&mut registry);
    tls_metrics.register(&mut registry);
    grpc_metrics.register(&mut registry);
    let traces = Traces::start(&process.traces, SERVICE, version, &mut registry)?;

    let admin = AdminServer::bind(process.admin_bind).await?;
    let admin_address = admin.address();
    let readiness = Readiness::default();
    let (slices, services, nodes, running) = (
        readiness.condition("EndpointSlices"),
        readiness.condition("Services"),
        readiness.condition("nodes"),
        readiness.condition("running"),
    );
    // What goes on while calls are answered ends after the last of them, and the admin port last of all.
    let (end, last) = (CancellationToken::new(), CancellationToken::new());
    let _ends_with_us = (end.clone().drop_guard(), last.clone().drop_guard());
    // Before the certificate, which may be long in coming: probes are to say so.
    let admin = tokio::spawn(admin.serve(readiness.clone(), registry, last.clone()));
    tls.certificate.keep(&client, &stop).await?;

    let certificates = peers.certificates(&tls.certificate, tls_metrics)?;
    let server = ServerLimits {
        connections: tls.max_connections,
        drain: tls.drain_timeout,
        ..ServerLimits::default()
    };
    let limits = GrpcLimits { server, requests: CALLS, ..GrpcLimits::default() };
    let server = GrpcServer::bind(tls.bind, Arc::new(certificates), limits, grpc_metrics).await?;
    tracing::info!(
        service = SERVICE,
        version,
        grpc = %server.address(),
        admin = %admin_address,
        proxies = args.kube_proxy_metrics_url.as_deref().unwrap_or("not read"),
        "listening"
    );

    let hub = Arc::new(Hub::new(Clock::start()));
    let watch = (client.clone(), hub.clone(), metrics.clone());
    let watch = || watch.clone();
    macro_rules! keep {
        ($object:ty, $filled:expr) => {{
            let (client, hub, metrics) = watch();
            tokio::spawn(watches::keep::<$object>(client, hub, metrics, $filled, end.clone()));
        }};
    }
    keep!(SliceObject, slices);
    keep!(ServiceObject, services);
    keep!(NodeObject, nodes);
    tokio::spawn(watches::sweep(hub.clone(), metrics.clone(), end.clone()));

    let scraper =
        args.kube_proxy_metrics_url.map(|url| Arc::new(Scraper::new(url, hub.clone(), metrics.clone())));
    let handler = Handler {
        hub,
        scraper,
        in_flight: InFlight::new(),
        memory: Memory::default(),
        waits: args.waits.waits(),
        authenticator: Authenticator::new(client, audience),
        // Nobody else may ask.
        user: peers.controller_user,
        readiness: readiness.clone(),
        metrics: metrics.clone(),
        spans: traces.spans(),
        stop: stop.clone(),
    };
    let handler = HookHandlerServer::new(handler).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let services = Services::new(FILE_DESCRIPTOR_SET)?.add(handler).await;

    let registration = registration::start(registration, &peers.token_file, metrics, stop.clone())?;
    let registration = tokio::spawn(registration);
    let stop_accepting = CancellationToken::new();
    running.set(true);
    let stopper = tokio::spawn({
        let stop_accepting = stop_accepting.clone();
        async move {
            stop.cancelled().await;
            running.set(false);
            tokio::time::sleep(tls.drain_delay).await;
            stop_accepting.cancel();
        }
    });
    let report = server.serve(services, stop_accepting).await;
    stopper.abort();
    registration.abort();
    traces.finish().await;
    end.cancel();
    last.cancel();
    admin.await.context("the admin server ended badly")?.context("the admin server failed")?;
    tracing::info!(drained = report.drained, "stopped");
    Ok(())
}
