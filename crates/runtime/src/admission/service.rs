//! The HTTP service of a webhook.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::Service;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};

use super::body::{self, ReceivedBody};
use super::decision::DeferredDecisions;
use super::limits::AdmissionLimits;
use super::metrics::{AdmissionMetrics, AdmissionOutcome};
use super::response::HttpRefusal;
use super::webhook::Webhook;
use super::webhooks::{AdmissionContext, UnreadReview, Webhooks};
use crate::budget::{ByteBudget, HeldBytes};
use crate::telemetry::traces::Spans;
use crate::tls::ConnectionProof;

/// Serves [`Webhook`]s over HTTP. Clones share all state.
#[derive(Clone)]
pub struct AdmissionService {
    inner: Arc<ServiceInner>,
    budget: ByteBudget,
}

struct ServiceInner {
    webhooks: Webhooks,
    context: AdmissionContext,
}

impl fmt::Debug for AdmissionService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionService").field("limits", &self.inner.context.limits).finish_non_exhaustive()
    }
}

impl AdmissionService {
    /// Serves `webhook` within `limits`.
    pub fn new(webhook: impl Webhook, metrics: AdmissionMetrics, limits: AdmissionLimits) -> Self {
        Self::of(Webhooks::default().and(webhook), metrics, limits, Spans::none())
    }

    /// Serves several webhooks, each on the paths of its routes. Sends `spans` of decisions about operations.
    pub fn of(webhooks: Webhooks, metrics: AdmissionMetrics, limits: AdmissionLimits, spans: Spans) -> Self {
        let deferred = DeferredDecisions::new(limits.deferred);
        let context = AdmissionContext { metrics, limits, deferred, spans };
        Self { inner: Arc::new(ServiceInner { webhooks, context }), budget: ByteBudget::default() }
    }

    /// Counts the bodies of requests against `budget`. Without it the service has a budget of its own.
    #[must_use]
    pub fn within(self, budget: ByteBudget) -> Self {
        Self { budget, ..self }
    }

    /// Returns the answer to one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let start = Instant::now();
        let ServiceInner { webhooks, context } = self.inner.as_ref();
        let _in_flight = InFlightReview::new(&context.metrics);
        let Some((webhook, route)) = webhooks.at(request.uri().path()) else {
            let paths: Vec<&str> = webhooks.routes().map(|route| route.path).collect();
            let text = format!("nothing is served here; send reviews to {}", paths.join(" or "));
            return HttpRefusal::new(StatusCode::NOT_FOUND, text).encode();
        };
        // Nobody else knows the path.
        if let Some(proof) = request.extensions().get::<ConnectionProof>() {
            proof.prove();
        }
        let answered = match read(request, &context.limits, self.budget.holder()).await {
            Ok((query, body)) => {
                let review = UnreadReview { route, query: query.as_deref(), body: &body.bytes, start };
                webhook.answer(context, review).await
            }
            Err(refusal) => Err(refusal),
        };
        match answered {
            Ok(response) => response,
            Err(refusal) => {
                let took = start.elapsed();
                if refusal.status() == StatusCode::TOO_MANY_REQUESTS {
                    context.metrics.out_of_memory(route.path);
                }
                let outcome = match refusal.is_unread() {
                    true => AdmissionOutcome::Unread,
                    false => AdmissionOutcome::Invalid,
                };
                context.metrics.finished(route.path, "unknown", outcome, took);
                tracing::warn!(
                    path = route.path,
                    status = refusal.status().as_u16(),
                    "{}",
                    refusal.message()
                );
                let mut response = refusal.encode();
                if refusal.status() == StatusCode::METHOD_NOT_ALLOWED {
                    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                }
                response
            }
        }
    }
}

/// Returns the query and the body of a request.
async fn read<B>(
    request: Request<B>,
    limits: &AdmissionLimits,
    held: HeldBytes,
) -> Result<(Option<String>, ReceivedBody), HttpRefusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: fmt::Display,
{
    if request.method() != Method::POST {
        return Err(HttpRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "a review must be sent by POST"));
    }
    if !is_json(request.headers()) {
        return Err(HttpRefusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a review must be sent as application/json",
        ));
    }
    let (head, body) = request.into_parts();
    let body = body::read(body, limits, held).await?;
    Ok((head.uri.query().map(str::to_owned), body))
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

struct InFlightReview<'a>(&'a AdmissionMetrics);

impl<'a> InFlightReview<'a> {
    fn new(metrics: &'a AdmissionMetrics) -> Self {
        metrics.in_flight.inc();
        Self(metrics)
    }
}

impl Drop for InFlightReview<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

impl<B> Service<Request<B>> for AdmissionService
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: fmt::Display,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.handle(request).await) })
    }
}
