//! The gRPC server.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::gateway::{Gateway, GatewayState};
use super::limits::GrpcLimits;
use super::metrics::GrpcMetrics;
use super::services::Services;
use crate::tls::{BindError, ServeReport, ServingCertificate, TlsServer};

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
    /// When it can't listen on the address.
    pub async fn bind(
        address: SocketAddr,
        certificate: Arc<ServingCertificate>,
        limits: GrpcLimits,
        metrics: GrpcMetrics,
    ) -> Result<Self, BindError> {
        Ok(Self { tls: TlsServer::bind(address, certificate, limits.server).await?, limits, metrics })
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.tls.address()
    }

    /// Serves until `stop`. Then all services become unhealthy, the listener closes, streams end when they have no
    /// message to send, and the server waits for requests in flight, at most
    /// [`ServerLimits::drain`](crate::tls::ServerLimits::drain).
    pub async fn serve(self, services: Services, stop: CancellationToken) -> ServeReport {
        let (routes, health) = services.into_parts();
        let shared = Arc::new(GatewayState {
            routes,
            metrics: self.metrics,
            permits: Arc::new(Semaphore::new(self.limits.requests)),
            first_message_timeout: self.limits.first_message_timeout,
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
