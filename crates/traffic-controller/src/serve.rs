//! Starts and stops the process.

use std::sync::Arc;

use anyhow::Context as _;
use podward_core::hooks::hook_audience;
use podward_proto::FILE_DESCRIPTOR_SET;
use podward_proto::v1::hook_handler_server::HookHandlerServer;
use podward_runtime::admin::{AdminServer, Readiness};
use podward_runtime::authn::Authenticator;
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, MAX_MESSAGE_BYTES, Services};
use podward_runtime::grpc_client::BearerToken;
use podward_runtime::telemetry::traces::Traces;
use podward_runtime::tls::{CertificateSecret, ServerLimits, TlsMetrics};
use podward_runtime::{client, telemetry};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::canary::Canary;
use crate::clock::Clock;
use crate::drain_tracker::DrainTracker;
use crate::handler::TrafficHandler;
use crate::in_flight::InFlightClient;
use crate::index::{
    ApiServerLease, GrpcRoute, HttpRoute, Ingress, NamespaceObject, NodeObject, RouteObject, ServiceObject,
    SliceObject, TargetGroupBinding,
};
use crate::kube_proxy_pages::KubeProxyPages;
use crate::metrics::TrafficMetrics;
use crate::node_agent::NodeAgents;
use crate::proxy_scraper::ProxyScraper;
use crate::shared_index::SharedIndex;
use crate::{registration, watches};

const SERVICE: &str = "traffic-controller";
/// The maximum number of concurrent calls. Further calls are refused.
const MAX_CONCURRENT_CALLS: usize = 1024;

/// Runs the traffic-controller until SIGTERM or SIGINT.
///
/// # Errors
/// Fails if the process cannot start: no API server is configured, there is no certificate, a port is in use, or an
/// argument is invalid.
pub fn run(args: Args) -> anyhow::Result<()> {
    podward_runtime::run(&args.process.clone(), |stop| serve(args, stop))
}

async fn serve(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let Args { process, tls, kube, peers, registration, .. } = args;
    let version = env!("CARGO_PKG_VERSION");
    let client = client::connect(&kube, SERVICE, version).await?;
    let (metrics, tls_metrics, grpc_metrics) =
        (Arc::new(TrafficMetrics::new()), TlsMetrics::default(), GrpcMetrics::default());
    let mut registry = telemetry::registry(SERVICE, version);
    metrics.register(&mut registry);
    tls_metrics.register(&mut registry);
    grpc_metrics.register(&mut registry);
    let budget = tls.limits.budget(&mut registry);
    let traces = Traces::start(&process.traces, SERVICE, version, &mut registry)?;

    let admin = AdminServer::bind(process.admin_bind).await?;
    let admin_address = admin.address();
    // What answers need.
    let known = Readiness::default();
    let (slices, services, nodes, running) = (
        known.condition("EndpointSlices"),
        known.condition("Services"),
        known.condition("nodes"),
        known.condition("running"),
    );
    let readiness = known.extended();
    let serves = readiness.condition("tls");
    // The watches stop after the last call is answered. The admin port stops last.
    let (stop_watches, stop_admin) = (CancellationToken::new(), CancellationToken::new());
    let _stop_on_return = (stop_watches.clone().drop_guard(), stop_admin.clone().drop_guard());
    // Start this before waiting for the certificate, so that the probes report what is missing.
    let admin = tokio::spawn(admin.serve(readiness, registry, stop_admin.clone()));
    let secret = CertificateSecret::default();
    tls.certificate.follow(&secret, &client, &stop).await?;

    let certificate = peers.serving_certificate(tls.certificate.source(&secret), tls_metrics)?;
    let server = ServerLimits {
        connections: tls.limits.max_connections,
        drain: tls.drain_timeout,
        ..ServerLimits::default()
    };
    let limits = GrpcLimits { server, requests: MAX_CONCURRENT_CALLS, ..GrpcLimits::default() };
    let server =
        GrpcServer::bind(tls.bind, Arc::new(certificate), limits, grpc_metrics).await?.within(budget);
    tracing::info!(
        service = SERVICE,
        version,
        grpc = %server.address(),
        admin = %admin_address,
        proxies = args.kube_proxy_metrics_url.as_deref().unwrap_or("not read"),
        "listening"
    );

    let shared = Arc::new(SharedIndex::new(Clock::start()));
    let watch_arguments = || (client.clone(), shared.clone(), metrics.clone());
    macro_rules! watch {
        ($object:ty, $listed:expr) => {{
            let (client, shared, metrics) = watch_arguments();
            tokio::spawn(watches::watch_kind::<$object>(
                client,
                shared,
                metrics,
                $listed,
                stop_watches.clone(),
            ));
        }};
    }
    watch!(SliceObject, slices);
    watch!(ServiceObject, services);
    watch!(NodeObject, nodes);
    // Without these lists the evidence is weaker, but there is an answer.
    let weaker = |kind| Readiness::default().condition(kind);
    watch!(ApiServerLease, weaker("Leases"));
    watch!(NamespaceObject, weaker("namespaces"));
    watch!(RouteObject<Ingress>, weaker("Ingresses"));
    watch!(RouteObject<HttpRoute>, weaker("HTTPRoutes"));
    watch!(RouteObject<GrpcRoute>, weaker("GRPCRoutes"));
    watch!(RouteObject<TargetGroupBinding>, weaker("TargetGroupBindings"));
    let wait_times = args.waits.wait_times();
    let retention = wait_times.retention();
    tokio::spawn(watches::sweep(shared.clone(), retention, metrics.clone(), stop_watches.clone()));

    let node_agents = args.node_agent.node_agent_url.clone().map(|url| {
        let authorities = tls.certificate.authorities(args.node_agent.node_agent_ca.as_deref(), &secret);
        Arc::new(NodeAgents::new(url, &args.node_agent, authorities, shared.clone()))
    });
    let scraper = args.kube_proxy_metrics_url.map(|url| {
        let pages = KubeProxyPages::new(url, node_agents.clone());
        Arc::new(ProxyScraper::new(pages, shared.clone(), metrics.clone()))
    });
    if let Some(scraper) = &scraper {
        let (scraper, known, stop) = (Arc::clone(scraper), known.clone(), stop_watches.clone());
        tokio::spawn(async move {
            // The nodes are known then.
            stop.run_until_cancelled(known.met()).await;
            scraper.look_at_new_nodes(stop).await;
        });
    }
    let canary = args.canary.canary_service.zip(args.canary.pod_ip).filter(|_| scraper.is_some());
    let canary = canary.map(|(name, address)| {
        Arc::new(Canary::new(client.clone(), &tls.certificate.namespace, name, address, shared.clone()))
    });
    if let Some(canary) = &canary {
        tokio::spawn(Arc::clone(canary).run(stop_watches.clone()));
    }
    // A token that another hook has received is refused.
    let audience = hook_audience(&registration.hook_name);
    let authenticator = Arc::new(Authenticator::only_for(client, audience));
    let handler = TrafficHandler {
        shared,
        scraper,
        canary,
        in_flight_client: InFlightClient::new(),
        node_agents,
        drain_tracker: DrainTracker::default(),
        wait_times,
        authenticator: Arc::clone(&authenticator),
        // Only the lifecycle-controller may call.
        allowed_user: peers.controller_user,
        readiness: known,
        metrics: metrics.clone(),
        spans: traces.spans(),
        stop: stop.clone(),
    };
    let handler = HookHandlerServer::new(handler).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let services = Services::new(FILE_DESCRIPTOR_SET)?.authenticate(authenticator).add(handler).await;

    let replicas = registration.controller.replicas(&tls.certificate, &secret)?;
    let advertised = tls.certificate.authorities(registration.advertise_ca.as_deref(), &secret);
    let token = BearerToken::from_file(&peers.token_file);
    let registration = registration::run(registration, replicas, advertised, token, metrics, stop.clone());
    let registration = tokio::spawn(registration);
    let stop_accepting = CancellationToken::new();
    running.set(true);
    tokio::spawn(server.check_repeatedly(serves, stop.clone()));
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
    stop_watches.cancel();
    stop_admin.cancel();
    admin.await.context("the task of the admin server panicked")?.context("the admin server failed")?;
    tracing::info!(drained = report.drained, "stopped");
    Ok(())
}
