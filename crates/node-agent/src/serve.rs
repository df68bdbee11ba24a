//! Starts and stops the process.

use std::sync::Arc;

use anyhow::Context as _;
use podward_proto::FILE_DESCRIPTOR_SET;
use podward_proto::v1::node_agent_server::NodeAgentServer;
use podward_runtime::admin::{AdminServer, Readiness};
use podward_runtime::authn::Authenticator;
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, Services};
use podward_runtime::tls::{CertificateSecret, ServerLimits, ServingCertificate, TlsMetrics};
use podward_runtime::{client, telemetry};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::handler::{AUDIENCE, AgentHandler};
use crate::kube_proxy::KubeProxy;

const SERVICE: &str = "node-agent";
/// The maximum number of concurrent calls. Further calls are refused.
const MAX_CONCURRENT_CALLS: usize = 512;
/// The maximum size of a message in bytes. A request is much smaller.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// Runs the node-agent until SIGTERM or SIGINT.
///
/// # Errors
/// Fails if the process cannot start: no API server is configured, there is no certificate, a port is in use, or an
/// argument is invalid.
pub fn run(args: Args) -> anyhow::Result<()> {
    podward_runtime::run(&args.process.clone(), |stop| serve(args, stop))
}

async fn serve(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let Args { process, tls, kube, traffic_controller_user, kube_proxy_address, proc } = args;
    let version = env!("CARGO_PKG_VERSION");
    let client = client::connect(&kube, SERVICE, version).await?;
    let (tls_metrics, grpc_metrics) = (TlsMetrics::default(), GrpcMetrics::default());
    let mut registry = telemetry::registry(SERVICE, version);
    tls_metrics.register(&mut registry);
    grpc_metrics.register(&mut registry);
    let budget = tls.limits.budget(&mut registry);

    let admin = AdminServer::bind(process.admin_bind).await?;
    let admin_address = admin.address();
    let readiness = Readiness::default();
    let (running, serves) = (readiness.condition("running"), readiness.condition("tls"));
    let stop_admin = CancellationToken::new();
    let _stop_on_return = stop_admin.clone().drop_guard();
    // Start this before waiting for the certificate, so that the probes report what is missing.
    let admin = tokio::spawn(admin.serve(readiness.clone(), registry, stop_admin.clone()));
    let secret = CertificateSecret::default();
    tls.certificate.follow(&secret, &client, &stop).await?;
    let certificate = ServingCertificate::load(tls.certificate.source(&secret), tls_metrics)?;
    let server = ServerLimits {
        connections: tls.limits.max_connections,
        drain: tls.drain_timeout,
        ..ServerLimits::default()
    };
    let limits = GrpcLimits { server, requests: MAX_CONCURRENT_CALLS, ..GrpcLimits::default() };
    let server =
        GrpcServer::bind(tls.bind, Arc::new(certificate), limits, grpc_metrics).await?.within(budget);
    tracing::info!(service = SERVICE, version, grpc = %server.address(), admin = %admin_address, "listening");

    let authenticator = Arc::new(Authenticator::only_for(client, AUDIENCE.to_owned()));
    let handler = AgentHandler {
        proc,
        kube_proxy: KubeProxy::new(kube_proxy_address),
        authenticator: Arc::clone(&authenticator),
        allowed_user: traffic_controller_user,
    };
    let handler = NodeAgentServer::new(handler).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let services = Services::new(FILE_DESCRIPTOR_SET)?.authenticate(authenticator).add(handler).await;
    running.set(true);
    tokio::spawn(server.check_repeatedly(serves, stop.clone()));
    let report = server.serve(services, stop).await;
    stop_admin.cancel();
    admin.await.context("the task of the admin server panicked")?.context("the admin server failed")?;
    tracing::info!(drained = report.drained, "stopped");
    Ok(())
}
