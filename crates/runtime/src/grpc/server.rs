//! The server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::gateway::{Gateway, Shared};
use super::metrics::GrpcMetrics;
use super::services::Services;
use crate::tls::{BindError, Certificates, ServeReport, ServerLimits, TlsServer};

/// Bounds on what clients can hold. A message has [`MAX_MESSAGE_BYTES`](super::MAX_MESSAGE_BYTES) at most.
#[derive(Clone, Copy, Debug)]
pub struct GrpcLimits {
    /// Of connections: how many, with how many requests each, and how patient.
    pub server: ServerLimits,
    /// Requests and streams at a time, of all connections; more are refused with RESOURCE_EXHAUSTED.
    pub requests: usize,
    /// Time for the first word of an answer, whatever deadline the client gives.
    pub patience: Duration,
}

impl Default for GrpcLimits {
    fn default() -> Self {
        Self { server: ServerLimits::default(), requests: 2048, patience: Duration::from_secs(60) }
    }
}

/// A listening gRPC server.
#[derive(Debug)]
pub struct GrpcServer {
    tls: TlsServer,
    limits: GrpcLimits,
    metrics: GrpcMetrics,
}

impl GrpcServer {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address can't be had.
    pub async fn bind(
        address: SocketAddr,
        certificates: Arc<Certificates>,
        limits: GrpcLimits,
        metrics: GrpcMetrics,
    ) -> Result<Self, BindError> {
        Ok(Self { tls: TlsServer::bind(address, certificates, limits.server).await?, limits, metrics })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.tls.address()
    }

    /// Serves until `stop`. Then nothing is healthy any more, nothing is accepted, streams end at their next pause, and requests in
    /// flight are waited for, but no longer than [`ServerLimits::drain`].
    pub async fn serve(self, services: Services, stop: CancellationToken) -> ServeReport {
        let (routes, health) = services.into_parts();
        let shared = Arc::new(Shared {
            routes,
            metrics: self.metrics,
            places: Arc::new(Semaphore::new(self.limits.requests)),
            patience: self.limits.patience,
            stop: stop.clone(),
        });
        let make = move |peer| Gateway::new(shared, peer);
        let (report, ()) = tokio::join!(self.tls.serve_each(make, stop.clone()), async {
            stop.cancelled().await;
            health.end().await;
        });
        report
    }
}
