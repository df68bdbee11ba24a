//! The services of a port, with health and reflection.

use std::convert::Infallible;

use axum::response::IntoResponse;
use hyper::Request;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;

use super::limits::MAX_MESSAGE_BYTES;

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
            .add_service(health_server.max_decoding_message_size(MAX_MESSAGE_BYTES))
            .add_service(reflection.max_decoding_message_size(MAX_MESSAGE_BYTES));
        Ok(Self { routes, health, names: Vec::new() })
    }

    /// Adds `service`, which is healthy as long as the server runs.
    pub async fn add<S: Servable>(mut self, service: S) -> Self {
        self.routes.add_service(service);
        self.health.set_service_status(S::NAME, ServingStatus::Serving).await;
        self.names.push(S::NAME);
        self
    }

    pub(super) fn into_parts(self) -> (Routes, ServiceHealth) {
        (self.routes.routes().prepare(), ServiceHealth { reporter: self.health, names: self.names })
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
