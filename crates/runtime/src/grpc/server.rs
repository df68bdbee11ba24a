//! The gRPC server.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::entrance::Entrance;
use super::gateway::{Gateway, GatewayState};
use super::limits::GrpcLimits;
use super::metrics::GrpcMetrics;
use super::services::{ServiceParts, Services};
use crate::admin::ReadinessCondition;
use crate::budget::ByteBudget;
use crate::serving_check;
use crate::tls::{BindError, ServeReport, ServingCertificate, TlsServer};

/// A listening gRPC server.
#[derive(Debug)]
pub struct GrpcServer {
    tls: TlsServer,
    certificate: Arc<ServingCertificate>,
    limits: GrpcLimits,
    metrics: GrpcMetrics,
    budget: ByteBudget,
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
        let tls = TlsServer::bind(address, Arc::clone(&certificate), limits.server).await?;
        Ok(Self { tls, certificate, limits, metrics, budget: ByteBudget::default() })
    }

    /// Counts the messages of requests against `budget`. Without it the server has a budget of its own.
    #[must_use]
    pub fn within(self, budget: ByteBudget) -> Self {
        Self { budget, ..self }
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.tls.address()
    }

    /// Keeps `serves` true while the port serves, until `end`.
    pub fn check_repeatedly(
        &self,
        serves: ReadinessCondition,
        end: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        serving_check::check_repeatedly(self.address(), Arc::clone(&self.certificate), serves, end)
    }

    /// Serves until `stop`. Then all services become unhealthy, the listener closes, streams end when they have no
    /// message to send, and the server waits for requests in flight, at most
    /// [`ServerLimits::drain`](crate::tls::ServerLimits::drain).
    pub async fn serve(self, services: Services, stop: CancellationToken) -> ServeReport {
        let ServiceParts { routes, health, names, authenticator } = services.into_parts();
        let shared = Arc::new(GatewayState {
            routes,
            entrance: Entrance::new(names.into_iter().collect(), authenticator, &self.limits),
            budget: self.budget,
            metrics: self.metrics,
            permits: Arc::new(Semaphore::new(self.limits.requests)),
            limits: self.limits,
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
