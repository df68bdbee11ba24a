//! The process: stands for election, and works while it leads.

use std::sync::Arc;

use anyhow::Context as _;
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses, GuardedDialer};
use podward_runtime::admin::{AdminServer, Readiness};
use podward_runtime::lease::{LeaseParams, stand, work_while};
use podward_runtime::progress::Progress;
use podward_runtime::telemetry::traces::Traces;
use podward_runtime::tls::CertificateSecret;
use podward_runtime::{client, telemetry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::controller::Leader;
use crate::report::Metrics;
use podward_certificates::{CertificateManager, WebhookPathManager};
use podward_deletion::DeletionRequestWriter;
use podward_hooks::HookProbe;
use podward_kube_util::api_server;
use podward_lifecycle_grpc as grpc;

const SERVICE: &str = "lifecycle-controller";

/// Runs the controller until SIGTERM or SIGINT.
///
/// # Errors
/// When it can't start: no API server configured, or the admin port is taken.
pub fn run(args: Args) -> anyhow::Result<()> {
    podward_runtime::run(&args.process.clone(), |stop| serve(args, stop))
}

async fn serve(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let Args {
        process,
        kube,
        lease,
        grpc: grpc_args,
        hooks,
        node,
        addresses,
        max_busy,
        check_deletes_as_requester,
        certificates,
        paths,
    } = args;
    let version = env!("CARGO_PKG_VERSION");
    let config = client::config(&kube, SERVICE, version).await?;
    let service_host = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    let host = config.cluster_url.host().unwrap_or_default();
    let api_server = ApiServerAddresses::of_client(host, service_host.as_deref());
    let client = client::with_config(config)?;
    let metrics = Arc::new(Metrics::new());
    api_server::follow(&client, &api_server, &metrics.watches, &stop);
    let dialer = GuardedDialer::new(AddressPolicy::new(&addresses.allowed_addresses, api_server));
    let mut registry = telemetry::registry(SERVICE, version);
    metrics.register(&mut registry);
    let traces = Traces::start(&process.traces, SERVICE, version, &mut registry)?;

    let grpc_metrics = grpc::GrpcPortMetrics::register(&grpc_args, &mut registry);
    let admin = AdminServer::bind(process.admin_bind).await?;
    let admin_address = admin.address();
    let readiness = Readiness::default();
    // A standby is ready too: it does what a standby is for, and takes calls as the leader does.
    let (running, serves) = (readiness.condition("running"), readiness.condition("tls"));
    let progress = Progress::default();
    readiness.depend_on(progress.clone());
    let end = CancellationToken::new();
    let _ends_with_us = end.clone().drop_guard();
    // Before the certificate, which may be long in coming: probes are to say so.
    let admin = tokio::spawn(admin.serve(readiness, registry, end.clone()));
    if certificates.certificates {
        let manager = CertificateManager::new(
            client.clone(),
            &grpc_args.certificate.namespace,
            certificates.lifetimes()?,
        );
        tokio::spawn(manager.run(stop.clone()));
    }
    if paths.webhook_paths {
        let manager =
            WebhookPathManager::new(client.clone(), &grpc_args.certificate.namespace, paths.times()?);
        tokio::spawn(manager.run(stop.clone()));
    }
    let secret = CertificateSecret::default();
    grpc_args.certificate.follow(&secret, &client, &stop).await?;
    let server = grpc::listen(&grpc_args, &secret, grpc_metrics).await?;
    running.set(true);
    tokio::spawn(server.check_repeatedly(serves, stop.clone()));
    tracing::info!(service = SERVICE, version, admin = %admin_address, grpc = %server.address(), "listening");

    let address = grpc_args.address(server.address());
    let params = LeaseParams { address, ..lease.params(SERVICE) };
    let identity = params.identity.clone();
    let candidacy = stand(client.clone(), params, progress.clone());
    let (hub, attached) = watch::channel(None);
    let (pods, known) = watch::channel(None);
    let writer = DeletionRequestWriter::new(client.clone(), metrics.deletions.clone()).with_known(known);
    let dependencies = grpc::ServiceDependencies {
        client: client.clone(),
        hub: attached,
        leader: candidacy.holder_address.clone(),
        deletions: Arc::new(writer),
        secret,
        probe: HookProbe::new(hooks.clone(), dialer.clone()),
    };
    let services =
        grpc::services(&grpc_args, dependencies).await.context("put the gRPC services together")?;
    let calls = tokio::spawn(server.serve(services, stop.clone()));
    let node_unreachable_limit = node.node_unreachable_limit;
    let spans = traces.spans();
    let leader = Leader {
        client,
        identity,
        hooks,
        dialer,
        node_unreachable_limit,
        max_busy,
        check_deletes_as_requester,
        metrics,
        progress,
        spans,
        hub,
        pods,
    };
    work_while(candidacy.leading.clone(), &leader.progress, &stop, async |work| {
        leader.metrics.leader.set(1);
        leader.lead(work).await;
        leader.metrics.leader.set(0);
    })
    .await;
    candidacy.release().await;
    calls.await.context("the gRPC server ended badly")?;
    traces.finish().await;
    end.cancel();
    admin.await.context("the admin server ended badly")?.context("the admin server failed")?;
    tracing::info!("stopped");
    Ok(())
}
