//! The webhooks of a process, independent of the kinds of their objects.

use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use json_patch::{Patch, PatchOperation};

use super::decision::{AdmissionDecision, DeferredDecisions, decision_timeout};
use super::decode::{AdmissionRequest, AdmissionResource, DecodeError, decode};
use super::limits::AdmissionLimits;
use super::metrics::{AdmissionMetrics, AdmissionOutcome};
use super::response::{AdmissionResponse, HttpRefusal};
use super::spans;
use super::webhook::{Webhook, WebhookRoute};
use crate::telemetry::traces::Spans;

/// The webhooks of a process, which may read different kinds of objects.
#[derive(Default)]
pub struct Webhooks(Vec<Box<dyn ErasedWebhook>>);

impl Webhooks {
    /// Adds a webhook. No other one may have the same paths.
    #[must_use]
    pub fn and(mut self, webhook: impl Webhook) -> Self {
        self.0.push(Box::new(webhook));
        self
    }

    pub(super) fn routes(&self) -> impl Iterator<Item = &'static WebhookRoute> {
        self.0.iter().flat_map(|webhook| webhook.served())
    }

    pub(super) fn at(&self, path: &str) -> Option<(&dyn ErasedWebhook, &'static WebhookRoute)> {
        self.0.iter().find_map(|webhook| {
            let route = webhook.served().iter().find(|route| route.path == path)?;
            Some((webhook.as_ref(), route))
        })
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes().map(|route| route.path)).finish()
    }
}

/// The state that the webhooks of a process share.
pub(super) struct AdmissionContext {
    pub(super) metrics: AdmissionMetrics,
    pub(super) limits: AdmissionLimits,
    pub(super) deferred: DeferredDecisions,
    pub(super) spans: Spans,
}

/// A request whose body was received but not parsed.
#[derive(Clone, Copy)]
pub(super) struct UnreadReview<'a> {
    pub(super) route: &'static WebhookRoute,
    pub(super) query: Option<&'a str>,
    pub(super) body: &'a [u8],
    pub(super) start: Instant,
}

/// A [`Webhook`] without its type of objects.
pub(super) trait ErasedWebhook: Send + Sync {
    fn served(&self) -> &'static [WebhookRoute];

    fn answer<'a>(
        &'a self,
        context: &'a AdmissionContext,
        review: UnreadReview<'a>,
    ) -> BoxFuture<'a, Result<Response<Full<Bytes>>, HttpRefusal>>;
}

impl<W: Webhook> ErasedWebhook for W {
    fn served(&self) -> &'static [WebhookRoute] {
        self.routes()
    }

    fn answer<'a>(
        &'a self,
        context: &'a AdmissionContext,
        review: UnreadReview<'a>,
    ) -> BoxFuture<'a, Result<Response<Full<Bytes>>, HttpRefusal>> {
        let UnreadReview { route, query, body, start } = review;
        async move {
            match decode::<W::Object>(body) {
                Ok(request) => {
                    let deadline = || start + decision_timeout(query, context.limits.decision_timeout);
                    Ok(review_object(self, context, route, &request, start, deadline).await)
                }
                Err(DecodeError { uid: Some(uid), message }) => {
                    context.metrics.finished(
                        route.path,
                        "unknown",
                        AdmissionOutcome::Invalid,
                        start.elapsed(),
                    );
                    tracing::warn!(path = route.path, uid = uid.as_ref(), "{message}");
                    Ok(AdmissionResponse::bad_request(message).encode(&uid))
                }
                Err(DecodeError { uid: None, message }) => {
                    Err(HttpRefusal::new(StatusCode::BAD_REQUEST, message))
                }
            }
        }
        .boxed()
    }
}

async fn review_object<W: Webhook>(
    webhook: &W,
    context: &AdmissionContext,
    route: &'static WebhookRoute,
    request: &AdmissionRequest<'_, W::Object>,
    start: Instant,
    deadline: impl FnOnce() -> Instant,
) -> Response<Full<Bytes>> {
    let (response, invalid) = match mismatch(route, request) {
        Some(response) => {
            let invalid = !response.allowed;
            (response, invalid)
        }
        None => match webhook.decide(route, request) {
            AdmissionDecision::Now(response) => (response, false),
            AdmissionDecision::Deferred(work) => {
                let made = context.deferred.run(work, deadline()).await;
                let response = made.unwrap_or_else(|failure| {
                    context.metrics.undecided(route.path, failure);
                    failure.response()
                });
                (response, false)
            }
        },
    };
    let answer = response.encode(&request.uid);
    let outcome = match &response {
        _ if invalid => AdmissionOutcome::Invalid,
        AdmissionResponse { allowed: false, .. } => AdmissionOutcome::Denied,
        AdmissionResponse { patch: Some(_), .. } => AdmissionOutcome::Patched,
        AdmissionResponse { .. } => AdmissionOutcome::Allowed,
    };
    let took = start.elapsed();
    context.metrics.finished(route.path, request.operation.as_str(), outcome, took);
    if !response.warnings.is_empty() {
        context.metrics.warned(route.path);
    }
    log_decision(route, request, &response, took);
    if context.spans.are_wanted() {
        let pod = webhook.traced(request);
        let made = spans::of(route, request, pod.as_ref(), &response, took);
        made.into_iter().for_each(|span| context.spans.send(span));
    }
    answer
}

/// Returns the response to a request that does not match `route`; `None` if it matches. The webhook configuration
/// should not have sent it here.
fn mismatch<T>(route: &WebhookRoute, request: &AdmissionRequest<'_, T>) -> Option<AdmissionResponse> {
    let AdmissionResource { group, version, resource } = &request.resource;
    let requested = (resource.as_ref(), request.sub_resource.as_ref());
    if (group.as_ref(), version.as_ref()) != route.api || !route.resources.contains(&requested) {
        let served: Vec<String> = route.resources.iter().map(|(name, sub)| slashed(name, sub)).collect();
        return Some(AdmissionResponse::bad_request(format!(
            "{} reviews {} of {}, not {} of {group}/{version}; fix the rules of the webhook configuration",
            route.path,
            served.join(" and "),
            Slashed(route.api.0, route.api.1),
            slashed(requested.0, requested.1),
        )));
    }
    // Allowed: a rule that matches too much must not stop writes that are of no concern here.
    (!route.operations.contains(&request.operation)).then(|| {
        AdmissionResponse::allow().warn([format!(
            "{} does not review {}; fix the rules of the webhook configuration",
            route.path, request.operation
        )])
    })
}

fn slashed(resource: &str, sub_resource: &str) -> String {
    if sub_resource.is_empty() { resource.to_owned() } else { format!("{resource}/{sub_resource}") }
}

/// Logs a decision as one span. The span is opened when the outcome is known: its level depends on the outcome, and a
/// span whose fields are all set at once is much cheaper to write as JSON.
fn log_decision<T>(
    route: &WebhookRoute,
    request: &AdmissionRequest<'_, T>,
    response: &AdmissionResponse,
    took: Duration,
) {
    macro_rules! log_at {
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
        log_at!(info_span, info, response.message);
    } else if let Some(warning) = response.warnings.first() {
        log_at!(info_span, info, warning);
    } else if response.patch.is_some() {
        log_at!(info_span, info, "patched");
    } else {
        let text = if response.allowed { "allowed" } else { response.message.as_str() };
        log_at!(debug_span, debug, text);
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
            // The last token that is a name. An entry that is appended to a list has the token `-`.
            let named = operation.path().tokens().filter(|token| token.encoded() != "-").last();
            f.write_str(&named.as_ref().map(|token| token.decoded()).unwrap_or_default())?;
        }
        Ok(())
    }
}
