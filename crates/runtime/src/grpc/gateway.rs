//! The checks that every request passes before its service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;

use super::deadline::timeout_of;
use super::entrance::{Admitted, Entrance};
use super::limits::GrpcLimits;
use super::metered::MeteredBody;
use super::metrics::GrpcMetrics;
use super::tracked::{HeldByAnswer, HeldByRequest, RequestInFlight, TrackedBody};
use crate::authn::CertificateUser;
use crate::budget::ByteBudget;
use crate::connections::{ConnectionProof, SentAnswer};
use crate::tls::TlsPeer;

/// The state that the requests of all connections share.
pub(super) struct GatewayState {
    pub(super) routes: Routes,
    pub(super) metrics: GrpcMetrics,
    pub(super) permits: Arc<Semaphore>,
    pub(super) entrance: Entrance,
    pub(super) budget: ByteBudget,
    pub(super) limits: GrpcLimits,
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
        let GatewayState { routes, entrance, budget, metrics, permits, limits, stop } = &*self.shared;
        let refuse = |status: Status| {
            metrics.refused(status.code());
            status.into_http()
        };
        let timeout = match timeout_of(request.headers()) {
            Ok(timeout) => timeout,
            Err(status) => return refuse(status),
        };
        let now = Instant::now();
        let mut deadline = timeout.map(|timeout| now + timeout);
        let mut first = now + limits.first_message_timeout;
        first = deadline.map_or(first, |deadline| deadline.min(first));
        request.extensions_mut().insert(Arc::clone(&self.peer));
        if let Some(user) = &self.user {
            request.extensions_mut().insert(Arc::clone(user));
        }
        let Some(proof) = request.extensions().get::<ConnectionProof>().cloned() else {
            return refuse(Status::internal("the request has no connection; this is a fault of the server"));
        };
        let place = match timeout_at(first, entrance.admit(&request, &proof)).await {
            Ok(Ok(Admitted::Caller(identity))) => {
                request.extensions_mut().insert(identity);
                None
            }
            Ok(Ok(Admitted::Anyone(place))) => {
                let last = now + limits.open_timeout;
                deadline = Some(deadline.map_or(last, |deadline| deadline.min(last)));
                first = first.min(last);
                Some(place)
            }
            Ok(Ok(Admitted::Unchecked)) => None,
            Ok(Err(status)) => return refuse(status),
            Err(_) => {
                return refuse(Status::deadline_exceeded(
                    "the caller was not authenticated before the request's deadline; try again",
                ));
            }
        };
        if let (Some(deadline), Some(answer)) = (deadline, SentAnswer::current()) {
            answer.end_at(deadline);
        }
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            return refuse(Status::resource_exhausted(
                "too many requests are in flight at this replica; try again with back-off",
            ));
        };
        let bytes = Arc::new(Mutex::new(budget.holder()));
        let path = request.uri().path().to_owned();
        let holds = HeldByRequest { _permit: permit, _place: place, _bytes: Arc::clone(&bytes) };
        let mut in_flight = RequestInFlight::new(path, metrics.clone(), holds);
        let request = request.map(|body| MeteredBody::new(body, bytes, limits.message_timeout));
        let mut response = match timeout_at(first, routes.clone().oneshot(request)).await {
            Ok(Ok(response)) => response,
            Err(_) => {
                Status::deadline_exceeded("no answer before the request's deadline").into_http::<Body>()
            }
        };
        in_flight.observe(response.headers());
        in_flight.keep(response.extensions_mut().remove::<HeldByAnswer>());
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
