//! The body of a response, while its request is in flight.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Code, Status};

use super::metered::MessageBytes;
use super::metrics::GrpcMetrics;
use crate::connections::PeerPlace;

/// The largest part of a message that is sent at once, in bytes. The HTTP/2 library takes a whole part, and then asks for
/// more without waiting for the client: a message in one part would be in its memory when the body has ended, and no
/// limit of the request would apply to it.
const PART: usize = 32 << 10;

/// What an answer holds until its client has read it or the request ends otherwise, such as a place among answers that
/// need memory. A service adds it to the extensions of its response.
#[derive(Clone)]
pub struct HeldByAnswer {
    _held: Arc<dyn Any + Send + Sync>,
}

impl HeldByAnswer {
    /// Holds `held`, which is dropped at the end of the request.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self { _held: Arc::new(held) }
    }
}

/// A request in flight. Its drop is the end of the request, which is counted with the last observed code. Without a
/// code, the client has cancelled it.
pub(super) struct RequestInFlight {
    path: String,
    metrics: GrpcMetrics,
    began: Instant,
    code: Code,
    _answer: Option<HeldByAnswer>,
    _holds: HeldByRequest,
}

/// What a request holds until its end.
pub(super) struct HeldByRequest {
    pub(super) _permit: OwnedSemaphorePermit,
    pub(super) _place: Option<PeerPlace>,
    pub(super) _bytes: MessageBytes,
}

impl RequestInFlight {
    pub(super) fn new(path: String, metrics: GrpcMetrics, holds: HeldByRequest) -> Self {
        metrics.in_flight.inc();
        Self { path, metrics, began: Instant::now(), code: Code::Cancelled, _answer: None, _holds: holds }
    }

    /// Keeps what the answer holds.
    pub(super) fn keep(&mut self, answer: Option<HeldByAnswer>) {
        self._answer = answer;
    }

    pub(super) fn observe(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.code = status.code();
        }
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        self.metrics.ended(&self.path, self.code, self.began.elapsed().as_secs_f64());
    }
}

/// Forwards the response. The request's deadline ends it, and the stop of the server while it waits for the next message.
/// The default is the empty body of a rejected request.
///
/// It is not polled while the client does not read. [`SentAnswer`](crate::connections::SentAnswer) then ends the request
/// at its deadline.
#[derive(Default)]
pub(super) struct TrackedBody {
    inner: Option<tonic::body::Body>,
    /// The rest of the message of which a part was sent.
    rest: Bytes,
    in_flight: Option<RequestInFlight>,
    deadline: Option<Pin<Box<Sleep>>>,
    stop: CancellationToken,
    stopped: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl TrackedBody {
    pub(super) fn new(
        inner: tonic::body::Body,
        in_flight: RequestInFlight,
        deadline: Option<tokio::time::Instant>,
        stop: CancellationToken,
    ) -> Self {
        let deadline = deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline)));
        let in_flight = Some(in_flight);
        Self { inner: Some(inner), rest: Bytes::new(), in_flight, deadline, stop, stopped: None }
    }

    fn observe(&mut self, trailers: &HeaderMap) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.observe(trailers);
        }
    }

    fn next_part(&mut self) -> Bytes {
        self.rest.split_to(self.rest.len().min(PART))
    }

    /// Returns true if the request's deadline has passed.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready())
    }

    /// Returns the status with which a response without a message to send ends.
    fn ends(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        let stop = &self.stop;
        let stopped = self.stopped.get_or_insert_with(|| Box::pin(stop.clone().cancelled_owned()));
        stopped
            .as_mut()
            .poll(context)
            .map(|()| Status::unavailable("this replica is being stopped; connect to another one"))
    }

    /// Ends the response with `status`, whose trailers it returns.
    fn end(&mut self, status: &Status) -> Result<Frame<Bytes>, Status> {
        (self.inner, self.rest) = (None, Bytes::new());
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers)?;
        self.observe(&trailers);
        Ok(Frame::trailers(trailers))
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.inner.is_some() && this.is_late(context) {
            let late = Status::deadline_exceeded("the request's deadline has passed");
            return Poll::Ready(Some(this.end(&late)));
        }
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.next_part()))));
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        match Pin::new(inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    this.observe(trailers);
                }
                let frame = frame.into_data().map(|message| {
                    this.rest = message;
                    Frame::data(this.next_part())
                });
                Poll::Ready(Some(Ok(frame.unwrap_or_else(|other| other))))
            }
            Poll::Pending => this.ends(context).map(|status| Some(this.end(&status))),
            ended => ended,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) if self.rest.is_empty() => inner.size_hint(),
            _ => SizeHint::default(),
        }
    }
}
