//! What is done with a review, whatever its object is.

use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use json_patch::{Patch, PatchOperation};

use super::decision::{Decision, Waiting, deadline};
use super::decode::{AdmissionRequest, DecodeError, Resource, decode};
use super::metrics::{AdmissionMetrics, Outcome};
use super::response::{AdmissionResponse, Refusal};
use super::service::{Limits, Route, Webhook};
use super::traced;
use crate::telemetry::traces::Spans;

/// The webhooks of a process, which may be about different kinds of objects.
#[derive(Default)]
pub struct Webhooks(Vec<Box<dyn Judge>>);

impl Webhooks {
    /// Adds one, on paths that no other has.
    #[must_use]
    pub fn and(mut self, webhook: impl Webhook) -> Self {
        self.0.push(Box::new(webhook));
        self
    }

    pub(super) fn routes(&self) -> impl Iterator<Item = &'static Route> {
        self.0.iter().flat_map(|webhook| webhook.served())
    }

    pub(super) fn at(&self, path: &str) -> Option<(&dyn Judge, &'static Route)> {
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

/// What the webhooks of a process share.
pub(super) struct Room {
    pub(super) metrics: AdmissionMetrics,
    pub(super) limits: Limits,
    pub(super) waiting: Waiting,
    pub(super) spans: Spans,
}

/// A request that is still to be read.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) route: &'static Route,
    pub(super) query: Option<&'a str>,
    pub(super) body: &'a [u8],
    pub(super) start: Instant,
}

/// A [`Webhook`], without saying of what objects.
pub(super) trait Judge: Send + Sync {
    fn served(&self) -> &'static [Route];

    fn answer<'a>(
        &'a self,
        room: &'a Room,
        asked: Asked<'a>,
    ) -> BoxFuture<'a, Result<Response<Full<Bytes>>, Refusal>>;
}

impl<W: Webhook> Judge for W {
    fn served(&self) -> &'static [Route] {
        self.routes()
    }

    fn answer<'a>(
        &'a self,
        room: &'a Room,
        asked: Asked<'a>,
    ) -> BoxFuture<'a, Result<Response<Full<Bytes>>, Refusal>> {
        let Asked { route, query, body, start } = asked;
        async move {
            match decode::<W::Object>(body) {
                Ok(request) => {
                    let deadline = || start + deadline(query, room.limits.decision);
                    Ok(judge(self, room, route, &request, start, deadline).await)
                }
                Err(DecodeError { uid: Some(uid), message }) => {
                    room.metrics.finished(route.path, "unknown", Outcome::Invalid, start.elapsed());
                    tracing::warn!(path = route.path, uid = uid.as_ref(), "{message}");
                    Ok(AdmissionResponse::bad_request(message).encode(&uid))
                }
                Err(DecodeError { uid: None, message }) => {
                    Err(Refusal::new(StatusCode::BAD_REQUEST, message))
                }
            }
        }
        .boxed()
    }
}

async fn judge<W: Webhook>(
    webhook: &W,
    room: &Room,
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
        None => match webhook.decide(route, request) {
            Decision::Now(response) => (response, false),
            Decision::Later(work) => {
                let waited = room.waiting.run(work, deadline()).await;
                (
                    waited.unwrap_or_else(|hindrance| {
                        room.metrics.hindered(route.path, hindrance);
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
    room.metrics.finished(route.path, request.operation.as_str(), outcome, took);
    if !response.warnings.is_empty() {
        room.metrics.warned(route.path);
    }
    record(route, request, &response, took);
    if room.spans.are_wanted()
        && let Some(pod) = webhook.traced(request)
    {
        traced::tell(&room.spans, route, request, &pod, &response, took);
    }
    answer
}

/// What is answered to a request that the webhook configuration should not have sent here.
fn misfit<T>(route: &Route, request: &AdmissionRequest<'_, T>) -> Option<AdmissionResponse> {
    let Resource { group, version, resource } = &request.resource;
    let asked = (resource.as_ref(), request.sub_resource.as_ref());
    if (group.as_ref(), version.as_ref()) != route.api || !route.resources.contains(&asked) {
        let served: Vec<String> = route.resources.iter().map(|(name, sub)| slashed(name, sub)).collect();
        return Some(AdmissionResponse::bad_request(format!(
            "{} judges {} of {}, not {} of {group}/{version}; mend the rules of the webhook configuration",
            route.path,
            served.join(" and "),
            Slashed(route.api.0, route.api.1),
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
