//! The services of a port, with health and reflection.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::IntoResponse;
use hyper::Request;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;

use super::limits::MAX_OPEN_MESSAGE_BYTES;
use crate::authn::Authenticator;

/// Reflection can't be set up, because the descriptors are invalid.
#[derive(Debug, thiserror::Error)]
#[error("could not read the descriptors of the gRPC services: {0}")]
pub struct ServicesError(#[from] tonic_reflection::server::Error);

/// A generated server, as from `LifecycleServer::new(..)`.
pub trait Servable:
    Service<Request<Body>, Error = Infallible, Response: IntoResponse, Future: Send + 'static>
    + NamedService
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Servable for S where
    S: Service<Request<Body>, Error = Infallible, Response: IntoResponse, Future: Send + 'static>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The services of a port. Health (`grpc.health.v1`) and reflection (`grpc.reflection.v1`) are always among them. They
/// need no credentials, because their content is public.
pub struct Services {
    routes: RoutesBuilder,
    health: HealthReporter,
    names: Vec<&'static str>,
    authenticator: Option<Arc<Authenticator>>,
}

/// The parts of [`Services`] that a server needs.
pub(super) struct ServiceParts {
    pub(super) routes: Routes,
    pub(super) health: ServiceHealth,
    pub(super) names: Vec<&'static str>,
    pub(super) authenticator: Option<Arc<Authenticator>>,
}

impl Services {
    /// Returns health and reflection for `descriptors`, an encoded `FileDescriptorSet`.
    ///
    /// # Errors
    /// When `descriptors` can't be decoded.
    pub fn new(descriptors: &[u8]) -> Result<Self, ServicesError> {
        let (health, health_server) = tonic_health::server::health_reporter();
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(descriptors)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let mut routes = Routes::builder();
        routes
            .add_service(health_server.max_decoding_message_size(MAX_OPEN_MESSAGE_BYTES))
            .add_service(reflection.max_decoding_message_size(MAX_OPEN_MESSAGE_BYTES));
        Ok(Self { routes, health, names: Vec::new(), authenticator: None })
    }

    /// Authenticates the callers of all services except health and reflection, before the server reads a message.
    /// Without it the services must do so themselves.
    #[must_use]
    pub fn authenticate(self, authenticator: Arc<Authenticator>) -> Self {
        Self { authenticator: Some(authenticator), ..self }
    }

    /// Adds `service`, which is healthy as long as the server runs.
    pub async fn add<S: Servable>(mut self, service: S) -> Self {
        self.routes.add_service(service);
        self.health.set_service_status(S::NAME, ServingStatus::Serving).await;
        self.names.push(S::NAME);
        self
    }

    pub(super) fn into_parts(self) -> ServiceParts {
        ServiceParts {
            routes: self.routes.routes().prepare(),
            health: ServiceHealth { reporter: self.health, names: self.names.clone() },
            names: self.names,
            authenticator: self.authenticator,
        }
    }
}

/// The health of the services.
pub(super) struct ServiceHealth {
    reporter: HealthReporter,
    names: Vec<&'static str>,
}

impl ServiceHealth {
    /// Makes all services unhealthy.
    pub(super) async fn end(self) {
        for name in std::iter::once("").chain(self.names) {
            self.reporter.set_service_status(name, ServingStatus::NotServing).await;
        }
    }
}
