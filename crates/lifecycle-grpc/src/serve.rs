//! The gRPC port and its services.

use std::sync::Arc;

use anyhow::Context;
use kube::Client;
use podward_hooks::HookProbe;
use podward_proto::v1::hook_registry_server::HookRegistryServer;
use podward_proto::v1::lifecycle_server::LifecycleServer;
use podward_runtime::budget::ByteBudget;
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, Services, ServicesError};
use podward_runtime::tls::{CertificateSecret, ServerLimits, TlsMetrics};
use tokio::sync::watch;

use super::args::GrpcArgs;
use super::attach::Attacher;
use super::callers::Callers;
use super::deletion_recorder::DeletionRecorder;
use super::hook_store::HookStore;
use super::hub::AttachHub;
use super::lifecycle::LifecycleService;
use super::list_limit::ListLimit;
use super::pods::Pods;
use super::registry::HookRegistryService;
use super::relay::Relay;
use super::stream_limit::StreamLimit;

/// The maximum size of a message that is received, in bytes. A hook with its certificates is smaller. Decoded, a message
/// of empty parts takes a hundred times as much memory.
pub const MAX_REQUEST_BYTES: usize = 256 << 10;
/// The maximum number of watches of a replica. Each of them is also a watch at the API server.
const MAX_WATCHES: usize = 512;
/// The maximum number of watches of one user at a replica.
const MAX_WATCHES_OF_USER: usize = 128;
/// The maximum number of attached streams of a replica, relayed ones included.
const MAX_ATTACHED: usize = 512;
/// The maximum number of attached streams of the hooks of one namespace at a replica.
const MAX_ATTACHED_OF_NAMESPACE: usize = 128;
/// The maximum number of attached streams of all hooks that are limited to a namespace, at a replica. The others need
/// rights in the cluster, and have no maximum of their own.
const MAX_ATTACHED_OF_NAMESPACES: usize = MAX_ATTACHED / 2;
/// The maximum number of streams of a replica that have not named their hook, so that their callers are not authorized.
const MAX_WAITING: usize = 512;
/// The maximum number of these streams of one user. It is the number of streams that a hook can attach.
const MAX_WAITING_OF_USER: usize = 64;

/// The metrics of the gRPC port.
pub struct GrpcPortMetrics {
    tls: TlsMetrics,
    grpc: GrpcMetrics,
    budget: ByteBudget,
}

impl GrpcPortMetrics {
    /// Adds the metrics to `registry`, with those of the budget that `args` name for the bytes of requests.
    pub fn register(args: &GrpcArgs, registry: &mut prometheus_client::registry::Registry) -> Self {
        let (tls, grpc) = (TlsMetrics::default(), GrpcMetrics::default());
        tls.register(registry);
        grpc.register(registry);
        GrpcPortMetrics { tls, grpc, budget: args.limits.budget(registry) }
    }
}

/// Opens the gRPC port. [`GrpcArgs::address`] returns the address that the Lease publishes for it.
///
/// # Errors
/// When the certificate cannot be read, or the port cannot be opened.
pub async fn listen(
    args: &GrpcArgs,
    secret: &CertificateSecret,
    metrics: GrpcPortMetrics,
) -> anyhow::Result<GrpcServer> {
    let GrpcPortMetrics { tls, grpc, budget } = metrics;
    let certificate = args.peers.serving_certificate(args.certificate.source(secret), tls)?;
    let server = ServerLimits {
        connections: args.limits.max_connections,
        drain: args.drain_timeout,
        ..ServerLimits::default()
    };
    let limits = GrpcLimits { server, ..GrpcLimits::default() };
    let server = GrpcServer::bind(args.grpc_bind, Arc::new(certificate), limits, grpc).await;
    Ok(server.context("could not open the gRPC port (--grpc-bind)")?.within(budget))
}

/// The parts of the controller that the services use.
pub struct ServiceDependencies {
    /// The client of the API server.
    pub client: Client,
    /// The hub that hook systems attach to. `Some` while this replica leads.
    pub hub: watch::Receiver<Option<Arc<dyn AttachHub>>>,
    /// The address of the leader's gRPC port, from
    /// [`Candidacy::holder_address`](podward_runtime::lease::Candidacy::holder_address).
    pub leader: watch::Receiver<Option<String>>,
    /// The recorder of deletion requests.
    pub deletions: Arc<dyn DeletionRecorder>,
    /// The Secret of `--tls-secret`.
    pub secret: CertificateSecret,
    /// The probe of the endpoints of hooks that are registered.
    pub probe: HookProbe,
}

/// Returns the services `HookRegistry` and `Lifecycle` for a [`GrpcServer`].
///
/// # Errors
/// When the descriptors of the services are not valid, which is a fault of the build.
pub async fn services(args: &GrpcArgs, dependencies: ServiceDependencies) -> Result<Services, ServicesError> {
    let ServiceDependencies { client, hub, leader, deletions, secret, probe } = dependencies;
    let callers = Callers::new(client.clone(), args);
    let attacher = Attacher {
        hub,
        relay: Relay::new(leader, args, &secret),
        limit: StreamLimit::new("attached streams", MAX_ATTACHED, MAX_ATTACHED),
        of_namespaces: StreamLimit::new(
            "attached streams of hooks of namespaces",
            MAX_ATTACHED_OF_NAMESPACES,
            MAX_ATTACHED_OF_NAMESPACE,
        ),
        waiting: StreamLimit::new(
            "streams that have not sent `hello` (send it immediately)",
            MAX_WAITING,
            MAX_WAITING_OF_USER,
        ),
        recheck_interval: args.recheck_interval,
    };
    let registry = HookRegistryService {
        store: HookStore::new(client.clone()),
        callers: callers.clone(),
        client: client.clone(),
        attacher,
        probe,
        lists: ListLimit::default(),
    };
    let authenticator = callers.authenticator();
    let watches = StreamLimit::new("watches", MAX_WATCHES, MAX_WATCHES_OF_USER);
    let recheck_interval = args.recheck_interval;
    let lifecycle =
        LifecycleService { callers, pods: Pods::new(client), deletions, watches, recheck_interval };
    let services = Services::new(podward_proto::FILE_DESCRIPTOR_SET)?
        .authenticate(authenticator)
        .add(HookRegistryServer::new(registry).max_decoding_message_size(MAX_REQUEST_BYTES))
        .await
        .add(LifecycleServer::new(lifecycle).max_decoding_message_size(MAX_REQUEST_BYTES))
        .await;
    Ok(services)
}
