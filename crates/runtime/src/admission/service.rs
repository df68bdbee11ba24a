//! The HTTP service of a webhook.

use std::convert::Infallible;
use std::fmt::{self, Write};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::Service;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use json_patch::{Patch, PatchOperation};
use serde::de::DeserializeOwned;

use super::body;
use super::decision::{Decision, Waiting, deadline};
use super::decode::{AdmissionRequest, DecodeError, Operation, Resource, decode};
use super::metrics::{AdmissionMetrics, Outcome};
use super::response::{AdmissionResponse, Refusal};
use super::traced::{self, TracedPod};
use crate::telemetry::traces::Spans;

/// The judgement of a webhook.
pub trait Webhook: Send + Sync + 'static {
    /// What is read of the object.
    type Object: DeserializeOwned + Send + Sync;

    /// What is served. Core-group resources of version v1 only.
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

/// Serves a [`Webhook`] over HTTP. Clones share everything.
pub struct AdmissionService<W> {
    inner: Arc<Inner<W>>,
}

struct Inner<W> {
    webhook: W,
    metrics: AdmissionMetrics,
    limits: Limits,
    waiting: Waiting,
    spans: Spans,
}

impl<W> Clone for AdmissionService<W> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<W> fmt::Debug for AdmissionService<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionService").field("limits", &self.inner.limits).finish_non_exhaustive()
    }
}

impl<W: Webhook> AdmissionService<W> {
    /// Serves `webhook` within `limits`.
    pub fn new(webhook: W, metrics: AdmissionMetrics, limits: Limits) -> Self {
        Self::traced(webhook, metrics, limits, Spans::none())
    }

    /// The same, with `spans` of what is decided about operations.
    pub fn traced(webhook: W, metrics: AdmissionMetrics, limits: Limits, spans: Spans) -> Self {
        let waiting = Waiting::new(limits.waiting);
        Self { inner: Arc::new(Inner { webhook, metrics, limits, waiting, spans }) }
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let start = Instant::now();
        let inner = self.inner.as_ref();
        let _in_flight = InFlight::enter(&inner.metrics);
        let routes = inner.webhook.routes();
        let Some(route) = routes.iter().find(|route| route.path == request.uri().path()) else {
            let paths: Vec<&str> = routes.iter().map(|route| route.path).collect();
            let text = format!("nothing is served here; reviews go to {}", paths.join(" or "));
            return Refusal::new(StatusCode::NOT_FOUND, text).encode();
        };
        match inner.answer(route, request, start).await {
            Ok(response) => response,
            Err(refusal) => {
                let took = start.elapsed();
                inner.metrics.finished(route.path, "unknown", Outcome::Invalid, took);
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

impl<W: Webhook> Inner<W> {
    async fn answer<B>(
        &self,
        route: &'static Route,
        request: Request<B>,
        start: Instant,
    ) -> Result<Response<Full<Bytes>>, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        if request.method() != Method::POST {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a review is sent by POST"));
        }
        if !is_json(request.headers()) {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a review is sent as application/json",
            ));
        }
        let (head, body) = request.into_parts();
        let body = body::read(body, self.limits.body, self.limits.patience).await?;
        match decode::<W::Object>(&body) {
            Ok(request) => {
                let deadline = || start + deadline(head.uri.query(), self.limits.decision);
                Ok(self.judge(route, &request, start, deadline).await)
            }
            Err(DecodeError { uid: Some(uid), message }) => {
                self.metrics.finished(route.path, "unknown", Outcome::Invalid, start.elapsed());
                tracing::warn!(path = route.path, uid = uid.as_ref(), "{message}");
                Ok(AdmissionResponse::bad_request(message).encode(&uid))
            }
            Err(DecodeError { uid: None, message }) => Err(Refusal::new(StatusCode::BAD_REQUEST, message)),
        }
    }

    async fn judge(
        &self,
        route: &'static Route,
        request: &AdmissionRequest<'_, W::Object>,
        start: Instant,
        deadline: impl FnOnce() -> Instant,
    ) -> Response<Full<Bytes>> {
        let (response, invalid) = match misfit(route, request) {
            Some(response) => {
                let invalid = !response.allowed;
                (response, invalid)
            }
            None => match self.webhook.decide(route, request) {
                Decision::Now(response) => (response, false),
                Decision::Later(work) => {
                    let waited = self.waiting.run(work, deadline()).await;
                    (
                        waited.unwrap_or_else(|hindrance| {
                            self.metrics.hindered(route.path, hindrance);
                            hindrance.response()
                        }),
                        false,
                    )
                }
            },
        };
        let answer = response.encode(&request.uid);
        let outcome = match &response {
            _ if invalid => Outcome::Invalid,
            AdmissionResponse { allowed: false, .. } => Outcome::Denied,
            AdmissionResponse { patch: Some(_), .. } => Outcome::Patched,
            AdmissionResponse { .. } => Outcome::Allowed,
        };
        let took = start.elapsed();
        self.metrics.finished(route.path, request.operation.as_str(), outcome, took);
        if !response.warnings.is_empty() {
            self.metrics.warned(route.path);
        }
        record(route, request, &response, took);
        if self.spans.are_wanted()
            && let Some(pod) = self.webhook.traced(request)
        {
            traced::tell(&self.spans, route, request, &pod, &response, took);
        }
        answer
    }
}

/// What is answered to a request that the webhook configuration should not have sent here.
fn misfit<T>(route: &Route, request: &AdmissionRequest<'_, T>) -> Option<AdmissionResponse> {
    let Resource { group, version, resource } = &request.resource;
    let asked = (resource.as_ref(), request.sub_resource.as_ref());
    if !group.is_empty() || version != "v1" || !route.resources.contains(&asked) {
        let served: Vec<String> = route.resources.iter().map(|(name, sub)| slashed(name, sub)).collect();
        return Some(AdmissionResponse::bad_request(format!(
            "{} judges {} of v1, not {} of {group}/{version}; mend the rules of the webhook configuration",
            route.path,
            served.join(" and "),
            slashed(asked.0, asked.1),
        )));
    }
    // Let through: a rule too many must not stop what it was never meant for.
    (!route.operations.contains(&request.operation)).then(|| {
        AdmissionResponse::allow().warn([format!(
            "{} has nothing to say on {}; mend the rules of the webhook configuration",
            route.path, request.operation
        )])
    })
}

fn slashed(resource: &str, sub_resource: &str) -> String {
    if sub_resource.is_empty() { resource.to_owned() } else { format!("{resource}/{sub_resource}") }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// One span a decision. It is opened once the outcome is known: only then is it clear whether the decision is worth more than
/// `debug`, and a span whose fields all come at once is much cheaper to write as JSON than one that is added to.
fn record<T>(route: &Route, request: &AdmissionRequest<'_, T>, response: &AdmissionResponse, took: Duration) {
    macro_rules! record_at {
        ($span:ident, $event:ident, $text:expr) => {
            let span = tracing::$span!(
                "admission",
                path = route.path,
                uid = request.uid.as_ref(),
                object = %Slashed(&request.namespace, &request.name),
                operation = request.operation.as_str(),
                resource = %Slashed(&request.resource.resource, &request.sub_resource),
                user = request.user_info.username.as_ref(),
                dry_run = request.dry_run,
                allowed = response.allowed,
                patched = %PatchedKeys(response.patch.as_ref()),
                warnings = response.warnings.len(),
                duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            );
            span.in_scope(|| tracing::$event!("{}", $text));
        };
    }
    if !response.allowed && !response.is_repeated {
        record_at!(info_span, info, response.message);
    } else if let Some(warning) = response.warnings.first() {
        record_at!(info_span, info, warning);
    } else if response.patch.is_some() {
        record_at!(info_span, info, "patched");
    } else {
        let text = if response.allowed { "allowed" } else { response.message.as_str() };
        record_at!(debug_span, debug, text);
    }
}

struct Slashed<'a>(&'a str, &'a str);

impl fmt::Display for Slashed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        if !self.0.is_empty() && !self.1.is_empty() {
            f.write_char('/')?;
        }
        f.write_str(self.1)
    }
}

/// The keys that a patch touches: `+` set, `-` removed.
struct PatchedKeys<'a>(Option<&'a Patch>);

impl fmt::Display for PatchedKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operation) in self.0.iter().flat_map(|patch| patch.0.iter()).enumerate() {
            if index > 0 {
                f.write_char(' ')?;
            }
            f.write_char(if matches!(operation, PatchOperation::Remove(_)) { '-' } else { '+' })?;
            // The last token that is a name: an entry appended to a list has `-` there.
            let named = operation.path().tokens().filter(|token| token.encoded() != "-").last();
            f.write_str(&named.as_ref().map(|token| token.decoded()).unwrap_or_default())?;
        }
        Ok(())
    }
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

impl<W, B> Service<Request<B>> for AdmissionService<W>
where
    W: Webhook,
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
