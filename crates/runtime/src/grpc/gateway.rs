//! The checks that every request passes before its service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;

use super::deadline::timeout_of;
use super::metrics::GrpcMetrics;
use super::tracked::{RequestInFlight, TrackedBody};
use crate::authn::CertificateUser;
use crate::tls::TlsPeer;

/// The state that the requests of all connections share.
pub(super) struct GatewayState {
    pub(super) routes: Routes,
    pub(super) metrics: GrpcMetrics,
    pub(super) permits: Arc<Semaphore>,
    pub(super) first_message_timeout: Duration,
    pub(super) stop: CancellationToken,
}

/// The service of one connection.
#[derive(Clone)]
pub(super) struct Gateway {
    shared: Arc<GatewayState>,
    peer: Arc<TlsPeer>,
    user: Option<Arc<CertificateUser>>,
}

impl Gateway {
    pub(super) fn new(shared: Arc<GatewayState>, peer: TlsPeer) -> Self {
        let user = peer.certificate.as_ref().and_then(|certificate| match CertificateUser::of(certificate) {
            Ok(user) => Some(Arc::new(user)),
            Err(error) => {
                tracing::info!(address = %peer.address, "the client certificate has no user: {error}");
                None
            }
        });
        Self { shared, peer: Arc::new(peer), user }
    }

    async fn answer(self, mut request: Request<Incoming>) -> Response<TrackedBody> {
        let GatewayState { routes, metrics, permits, first_message_timeout, stop } = &*self.shared;
        let refuse = |status: Status| {
            metrics.refused(status.code());
            status.into_http()
        };
        let timeout = match timeout_of(request.headers()) {
            Ok(timeout) => timeout,
            Err(status) => return refuse(status),
        };
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            return refuse(Status::resource_exhausted(
                "too many requests are in flight at this replica; try again with back-off",
            ));
        };
        let now = Instant::now();
        let deadline = timeout.map(|timeout| now + timeout);
        let mut in_flight = RequestInFlight::new(request.uri().path().to_owned(), metrics.clone(), permit);
        request.extensions_mut().insert(Arc::clone(&self.peer));
        if let Some(user) = &self.user {
            request.extensions_mut().insert(Arc::clone(user));
        }
        let first = deadline
            .map_or(now + *first_message_timeout, |deadline| deadline.min(now + *first_message_timeout));
        let response = match timeout_at(first, routes.clone().oneshot(request)).await {
            Ok(Ok(response)) => response,
            Err(_) => {
                Status::deadline_exceeded("no answer before the request's deadline").into_http::<Body>()
            }
        };
        in_flight.observe(response.headers());
        response.map(|body| TrackedBody::new(body, in_flight, deadline, stop.clone()))
    }
}

impl Service<Request<Incoming>> for Gateway {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let gateway = self.clone();
        Box::pin(async move { Ok(gateway.answer(request).await) })
    }
}
