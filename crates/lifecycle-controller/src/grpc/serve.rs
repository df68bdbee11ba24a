//! The port and its services, made of their parts.

use std::sync::Arc;

use anyhow::Context;
use kube::Client;
use podward_proto::v1::hook_registry_server::HookRegistryServer;
use podward_proto::v1::lifecycle_server::LifecycleServer;
use podward_runtime::grpc::{
    GrpcLimits, GrpcMetrics, GrpcServer, MAX_MESSAGE_BYTES, Services, ServicesError,
};
use podward_runtime::tls::TlsMetrics;
use tokio::sync::watch;

use super::args::GrpcArgs;
use super::attach::{AttachHub, Attacher};
use super::callers::Callers;
use super::lifecycle::{Deletions, LifecycleService};
use super::limits::Places;
use super::pods::Pods;
use super::registry::Registry;
use super::relay::Relay;
use super::store::Store;

/// Streams that a replica serves at a time, of each kind. Each watch is one at the API server, too.
const WATCHES: usize = 512;
const ATTACHED: usize = 512;

/// What is counted of the port.
pub(crate) struct Metrics {
    tls: TlsMetrics,
    grpc: GrpcMetrics,
}

impl Metrics {
    /// Adds the metrics to `registry`.
    pub(crate) fn register(registry: &mut prometheus_client::registry::Registry) -> Self {
        let (tls, grpc) = (TlsMetrics::default(), GrpcMetrics::default());
        tls.register(registry);
        grpc.register(registry);
        Metrics { tls, grpc }
    }
}

/// Listens on the gRPC port. Where that is, and what the Lease says of it, is [`GrpcArgs::address`] of the server's address.
///
/// # Errors
/// When the certificate can't be read, or the port can't be had.
pub(crate) async fn listen(args: &GrpcArgs, metrics: Metrics) -> anyhow::Result<GrpcServer> {
    let Metrics { tls, grpc } = metrics;
    let certificates = args.peers.certificates(&args.certificate, tls)?;
    let server = GrpcServer::bind(args.grpc_bind, Arc::new(certificates), GrpcLimits::default(), grpc).await;
    server.context("could not open the gRPC port (--grpc-bind)")
}

/// What the services need of the rest of the controller.
pub(crate) struct Parts {
    pub(crate) client: Client,
    /// Where hook systems attach; `Some` while this replica leads.
    pub(crate) hub: watch::Receiver<Option<Arc<dyn AttachHub>>>,
    /// Where the leader's gRPC port is: [`Candidacy::holder_address`](podward_runtime::lease::Candidacy::holder_address).
    pub(crate) leader: watch::Receiver<Option<String>>,
    pub(crate) deletions: Arc<dyn Deletions>,
}

/// `HookRegistry` and `Lifecycle`, to be given to a [`GrpcServer`](podward_runtime::grpc::GrpcServer).
///
/// # Errors
/// Never for a program that was built whole.
pub(crate) async fn services(args: &GrpcArgs, parts: Parts) -> Result<Services, ServicesError> {
    let Parts { client, hub, leader, deletions } = parts;
    let callers = Callers::new(client.clone(), args);
    let attacher = Attacher {
        hub,
        relay: Relay::new(leader, args),
        places: Places::new("attached hook systems", ATTACHED),
    };
    let registry = Registry {
        store: Store::new(client.clone()),
        callers: callers.clone(),
        client: client.clone(),
        attacher,
    };
    let watches = Places::new("watches", WATCHES);
    let lifecycle = LifecycleService { callers, pods: Pods::new(client), deletions, watches };
    let services = Services::new(podward_proto::FILE_DESCRIPTOR_SET)?
        .add(HookRegistryServer::new(registry).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .await
        .add(LifecycleServer::new(lifecycle).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .await;
    Ok(services)
}
