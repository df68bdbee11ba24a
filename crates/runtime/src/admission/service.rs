//! The HTTP service of a webhook.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::Service;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;

use super::body;
use super::decision::{Decision, Waiting};
use super::decode::{AdmissionRequest, Operation};
use super::judge::{Asked, Room, Webhooks};
use super::metrics::{AdmissionMetrics, Outcome};
use super::response::Refusal;
use super::traced::TracedPod;
use crate::telemetry::traces::Spans;

/// The judgement of a webhook.
pub trait Webhook: Send + Sync + 'static {
    /// What is read of the object.
    type Object: DeserializeOwned + Send + Sync;

    /// What is served.
    fn routes(&self) -> &'static [Route];

    /// Judges one write. `route` is the one of [`routes`](Self::routes) that was asked, and the request fits it.
    ///
    /// What can be said from the request and from memory is said here, without waiting; the rest is for [`Decision::later`].
    fn decide<'a>(
        &'a self,
        route: &'static Route,
        request: &'a AdmissionRequest<'a, Self::Object>,
    ) -> Decision<'a>;

    /// The pod that a request is about, for the traces of its operations. Asked only when somebody wants them.
    fn traced<'a>(&self, _request: &'a AdmissionRequest<'_, Self::Object>) -> Option<TracedPod<'a>> {
        None
    }
}

/// One path of a webhook and what may be asked there, which is what the webhook configuration's rules must say too.
#[derive(Debug)]
pub struct Route {
    /// For example `/mutate`.
    pub path: &'static str,
    /// API group and version of the resources: `("", "v1")` for pods.
    pub api: (&'static str, &'static str),
    /// Resource and subresource, as in `("pods", "status")`.
    pub resources: &'static [(&'static str, &'static str)],
    /// Operations.
    pub operations: &'static [Operation],
}

/// Bounds on a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Time for a body to arrive.
    pub patience: Duration,
    /// Decisions that may wait for something from elsewhere at the same time.
    pub waiting: usize,
    /// Time for such a decision, from the request's head on, when the API server doesn't say how long it waits itself.
    pub decision: Duration,
}

impl Default for Limits {
    /// 6 MiB: an object is at most 1.5 MiB in etcd, a review holds two, and JSON may take twice the room. 10 s: the API server
    /// itself gives up sooner. 512 decisions: a review of usual size takes 30 kB while it waits.
    fn default() -> Self {
        Self {
            body: 6 << 20,
            patience: Duration::from_secs(10),
            waiting: 512,
            decision: Duration::from_secs(8),
        }
    }
}

/// Serves [`Webhook`]s over HTTP. Clones share everything.
#[derive(Clone)]
pub struct AdmissionService {
    inner: Arc<Inner>,
}

struct Inner {
    webhooks: Webhooks,
    room: Room,
}

impl fmt::Debug for AdmissionService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionService").field("limits", &self.inner.room.limits).finish_non_exhaustive()
    }
}

impl AdmissionService {
    /// Serves `webhook` within `limits`.
    pub fn new(webhook: impl Webhook, metrics: AdmissionMetrics, limits: Limits) -> Self {
        Self::of(Webhooks::default().and(webhook), metrics, limits, Spans::none())
    }

    /// Serves several, each on the paths of its routes, with `spans` of what is decided about operations.
    pub fn of(webhooks: Webhooks, metrics: AdmissionMetrics, limits: Limits, spans: Spans) -> Self {
        let waiting = Waiting::new(limits.waiting);
        Self { inner: Arc::new(Inner { webhooks, room: Room { metrics, limits, waiting, spans } }) }
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let start = Instant::now();
        let Inner { webhooks, room } = self.inner.as_ref();
        let _in_flight = InFlight::enter(&room.metrics);
        let Some((judge, route)) = webhooks.at(request.uri().path()) else {
            let paths: Vec<&str> = webhooks.routes().map(|route| route.path).collect();
            let text = format!("nothing is served here; reviews go to {}", paths.join(" or "));
            return Refusal::new(StatusCode::NOT_FOUND, text).encode();
        };
        let answered = match read(request, &room.limits).await {
            Ok((query, body)) => {
                judge.answer(room, Asked { route, query: query.as_deref(), body: &body, start }).await
            }
            Err(refusal) => Err(refusal),
        };
        match answered {
            Ok(response) => response,
            Err(refusal) => {
                let took = start.elapsed();
                room.metrics.finished(route.path, "unknown", Outcome::Invalid, took);
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

/// The query and the body of a request.
async fn read<B>(request: Request<B>, limits: &Limits) -> Result<(Option<String>, Bytes), Refusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: fmt::Display,
{
    if request.method() != Method::POST {
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a review is sent by POST"));
    }
    if !is_json(request.headers()) {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a review is sent as application/json"));
    }
    let (head, body) = request.into_parts();
    let body = body::read(body, limits.body, limits.patience).await?;
    Ok((head.uri.query().map(str::to_owned), body))
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

struct InFlight<'a>(&'a AdmissionMetrics);

impl<'a> InFlight<'a> {
    fn enter(metrics: &'a AdmissionMetrics) -> Self {
        metrics.in_flight.inc();
        Self(metrics)
    }
}

impl Drop for InFlight<'_> {
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
