//! The API server as a client of a webhook: its connections, and what it repeats.
//!
//! Its source has the rules, in Kubernetes 1.36 with Go 1.26:
//!
//! - It calls a webhook by HTTP/1.1 (`NextProtos` in `apiserver/pkg/util/webhook/client.go`). A review takes an idle
//!   connection, or else a new one; at most 25 stay idle (`client-go/transport/cache.go`).
//! - The dispatchers of admission webhooks send each review once. `WithExponentialBackoff` is for webhooks that
//!   authenticate, authorize or audit, and client-go repeats only a GET whose connection has ended
//!   (`client-go/rest/request.go`).
//! - `net/http` repeats a POST only if nothing of it was written to a connection that was used before
//!   (`shouldRetryRequest`). So a review fails if its new connection is refused, or if its connection ends before the
//!   answer.
//!
//! Two things are different. The connection that was idle for the longest time is used first, so that both replicas get
//! reviews at any rate; Go uses the one that was used last. A review that finds no idle connection waits for its new one,
//! even if another one becomes idle before.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use futures::{StreamExt, poll};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;

use super::service::WebhookService;
use crate::webhook::client::ExpectedAnswer;
use crate::webhook::server::secret;

/// The timeout of a review, from the time at which it was due.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The largest number of idle connections.
const MAX_IDLE: usize = 25;

type Connection = SendRequest<Full<Bytes>>;

/// A client of the Service of a webhook.
pub(super) struct ApiServer<'a> {
    service: &'a WebhookService,
    review: Bytes,
    idle: RefCell<VecDeque<Connection>>,
}

/// A review, and its latency from the time at which it was due.
pub(super) struct ReviewOutcome {
    pub(super) due: Instant,
    pub(super) result: Result<Duration, FailedReview>,
}

/// Why a review failed.
#[derive(Debug)]
pub(super) enum FailedReview {
    /// Its new connection was refused.
    NotConnected(anyhow::Error),
    /// Its connection ended before the answer.
    NotAnswered(hyper::Error),
    /// The answer is not the expected one.
    WrongAnswer(String),
    /// It took too long.
    TimedOut,
}

impl fmt::Display for FailedReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, details) = match self {
            FailedReview::NotConnected(error) => ("not connected", format!("{error:#}")),
            FailedReview::NotAnswered(error) => ("not answered", format!("{error:?}")),
            FailedReview::WrongAnswer(answer) => ("wrong answer", answer.clone()),
            FailedReview::TimedOut => ("timed out", format!("{} s", TIMEOUT.as_secs())),
        };
        if f.alternate() { write!(f, "{reason}: {details}") } else { f.write_str(reason) }
    }
}

impl<'a> ApiServer<'a> {
    /// Opens `connections` to `service`, for reviews with the body `review`, which are to be answered with a patch.
    pub(super) async fn start(
        service: &'a WebhookService,
        review: Vec<u8>,
        connections: usize,
    ) -> Result<ApiServer<'a>> {
        let idle = try_join_all((0..connections).map(|_| connect(service))).await?;
        Ok(ApiServer { service, review: review.into(), idle: RefCell::new(idle.into()) })
    }

    /// Sends `per_second` reviews each second for the time `each`, from `start` on, however slow the answers. Returns
    /// when all are answered or have failed.
    pub(super) async fn reviews(
        &self,
        per_second: u32,
        start: Instant,
        each: Duration,
    ) -> Vec<ReviewOutcome> {
        let spacing = Duration::from_secs(1) / per_second;
        let (mut outcomes, mut pending, mut due) = (Vec::new(), FuturesUnordered::new(), start);
        while due < start + each {
            // A timer would be a millisecond late. The CPU is reserved, so this spins.
            while Instant::now() < due {
                while let Poll::Ready(Some(outcome)) = poll!(pending.next()) {
                    outcomes.push(outcome);
                }
                tokio::task::yield_now().await;
            }
            pending.push(self.review(due));
            // It is sent before the next one, even if both are late.
            if let Poll::Ready(Some(outcome)) = poll!(pending.next()) {
                outcomes.push(outcome);
            }
            due += spacing;
        }
        outcomes.extend(pending.collect::<Vec<_>>().await);
        outcomes
    }

    async fn review(&self, due: Instant) -> ReviewOutcome {
        let answered = tokio::time::timeout_at((due + TIMEOUT).into(), self.exchange()).await;
        let result = match answered {
            Ok(Ok(connection)) => {
                let latency = due.elapsed();
                self.keep(connection).await;
                Ok(latency)
            }
            Ok(Err(failed)) => Err(failed),
            Err(_) => Err(FailedReview::TimedOut),
        };
        ReviewOutcome { due, result }
    }

    /// Sends a review, and returns its connection when it is answered.
    async fn exchange(&self) -> Result<Connection, FailedReview> {
        loop {
            let idle = self.idle_connection();
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => connect(self.service).await.map_err(FailedReview::NotConnected)?,
            };
            let request = self.request().map_err(FailedReview::NotConnected)?;
            let response = match connection.try_send_request(request).await {
                Ok(response) => response,
                Err(mut error) => {
                    let is_unwritten = error.take_message().is_some();
                    if is_unwritten && !is_new {
                        continue;
                    }
                    return Err(FailedReview::NotAnswered(error.into_error()));
                }
            };
            let status = response.status();
            let body = response.into_body().collect().await.map_err(FailedReview::NotAnswered)?.to_bytes();
            if status != StatusCode::OK || !ExpectedAnswer::Patched.is_met_by(&body) {
                return Err(FailedReview::WrongAnswer(format!(
                    "{status} {}",
                    String::from_utf8_lossy(&body)
                )));
            }
            return Ok(connection);
        }
    }

    fn request(&self) -> Result<Request<Full<Bytes>>> {
        let request = Request::post(secret().path("/mutate?timeout=2s"))
            .header("Host", "webhook.podward-system.svc:443")
            .header("User-Agent", "kube-apiserver-admission")
            .header("Accept", "application/json, */*")
            .header("Content-Type", "application/json");
        request.body(Full::new(self.review.clone())).context("make a review")
    }

    /// Returns an idle connection that the replica has not closed.
    fn idle_connection(&self) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop_front()).find(|connection| !connection.is_closed())
    }

    /// Keeps the connection for a later review, unless the answer has ended it.
    async fn keep(&self, mut connection: Connection) {
        if connection.ready().await.is_err() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push_back(connection);
        }
    }
}

async fn connect(service: &WebhookService) -> Result<Connection> {
    let stream = service.connect().await?;
    let (sender, connection) =
        handshake(TokioIo::new(stream)).await.context("begin HTTP with the webhook")?;
    // It ends when the sender is dropped or the replica closes it; reviews report errors.
    tokio::spawn(connection);
    Ok(sender)
}
