//! Reads a request's body into one buffer.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Bytes};
use tokio::time::{Instant, timeout_at};

use super::limits::AdmissionLimits;
use super::response::HttpRefusal;
use crate::budget::HeldBytes;

/// A body, and the bytes of the budget that it holds.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    pub(super) bytes: Bytes,
    pub(super) _held: HeldBytes,
}

/// Reads the whole of `body` within `limits`, into bytes that `held` has from its budget.
pub(super) async fn read<B>(
    body: B,
    limits: &AdmissionLimits,
    mut held: HeldBytes,
) -> Result<ReceivedBody, HttpRefusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    // The length that the client announces is used to refuse a body. It reserves nothing.
    let announced = body.size_hint().lower();
    if usize::try_from(announced).map_or(true, |length| length > limits.body_bytes) {
        return Err(too_large(limits.body_bytes));
    }
    let bytes = collect(body, limits, &mut held).await?;
    Ok(ReceivedBody { bytes, _held: held })
}

async fn collect<B>(mut body: B, limits: &AdmissionLimits, held: &mut HeldBytes) -> Result<Bytes, HttpRefusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let start = Instant::now();
    let (mut received, mut first, mut buffer) = (0, Bytes::new(), Vec::new());
    loop {
        let Ok(frame) = timeout_at(start + time_for(received, limits), body.frame()).await else {
            return Err(too_slow(received, limits));
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            HttpRefusal::unread(
                StatusCode::BAD_REQUEST,
                format!("the body of the request broke off: {error}"),
            )
        })?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len();
        if received > limits.body_bytes {
            return Err(too_large(limits.body_bytes));
        }
        held.grow(data.len()).map_err(|error| HttpRefusal::try_again(error.to_string()))?;
        if first.is_empty() && buffer.is_empty() {
            // A body that arrives in one piece is not copied.
            first = data;
            continue;
        }
        if buffer.is_empty() {
            buffer.extend_from_slice(&std::mem::take(&mut first));
        }
        buffer.extend_from_slice(&data);
    }
    Ok(if buffer.is_empty() { first } else { Bytes::from(buffer) })
}

/// Returns the time from the start within which more than `received` bytes must have arrived.
fn time_for(received: usize, limits: &AdmissionLimits) -> Duration {
    #[allow(clippy::cast_precision_loss)]
    let seconds = received as f64 / f64::from(limits.body_bytes_per_second.max(1));
    Duration::try_from_secs_f64(seconds).map_or(limits.body_timeout, |earned| {
        limits.body_timeout.min(limits.body_grace.saturating_add(earned))
    })
}

fn too_slow(received: usize, limits: &AdmissionLimits) -> HttpRefusal {
    let AdmissionLimits { body_timeout, body_bytes_per_second, body_grace, .. } = limits;
    HttpRefusal::unread(
        StatusCode::REQUEST_TIMEOUT,
        format!(
            "the body of the request arrives too slowly, {received} bytes so far; it has {body_timeout:?}, and must \
             arrive with {body_bytes_per_second} bytes each second after {body_grace:?}"
        ),
    )
}

fn too_large(limit: usize) -> HttpRefusal {
    HttpRefusal::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!(
            "the review is larger than {limit} bytes, more than two objects that the API server can store"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;
    use crate::budget::ByteBudget;

    struct Pieces(VecDeque<&'static [u8]>, bool);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece))))),
                None if self.1 => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    fn pieces(pieces: &[&'static [u8]]) -> Pieces {
        Pieces(pieces.iter().copied().collect(), false)
    }

    const LIMITS: AdmissionLimits = AdmissionLimits {
        body_bytes: 5,
        body_timeout: Duration::from_millis(10),
        body_bytes_per_second: 1,
        body_grace: Duration::from_secs(3600),
        deferred: 0,
        decision_timeout: Duration::ZERO,
    };

    async fn read(body: Pieces, limits: &AdmissionLimits, budget: &ByteBudget) -> Result<Bytes, StatusCode> {
        let read = super::read(body, limits, budget.holder()).await;
        read.map(|body| body.bytes).map_err(|refusal| refusal.status())
    }

    #[tokio::test]
    async fn joins_pieces() {
        let (budget, limits) = (ByteBudget::new(5), LIMITS);
        assert_eq!(read(pieces(&[b"ab", b"", b"cd", b"e"]), &limits, &budget).await.unwrap(), "abcde");
        assert_eq!(read(pieces(&[b"ab"]), &limits, &budget).await.unwrap(), "ab");
        assert_eq!(read(pieces(&[]), &limits, &budget).await.unwrap(), "");
    }

    #[tokio::test]
    async fn stops_at_the_limit_also_without_an_announced_length() {
        let refused = read(pieces(&[b"abc", b"def"]), &LIMITS, &ByteBudget::default()).await;
        assert_eq!(refused, Err(StatusCode::PAYLOAD_TOO_LARGE));
    }

    #[tokio::test]
    async fn a_body_beyond_the_budget_is_refused_at_once() {
        let budget = ByteBudget::new(5);
        let mut others = budget.holder();
        others.grow(3).unwrap();
        let refused = read(pieces(&[b"ab", b"c"]), &LIMITS, &budget).await;
        assert_eq!(refused, Err(StatusCode::TOO_MANY_REQUESTS));
        // It has returned what it held.
        assert_eq!(read(pieces(&[b"a", b"b"]), &LIMITS, &budget).await.unwrap(), "ab");
    }

    #[tokio::test]
    async fn gives_up_on_a_client_that_stalls() {
        let stalled = || Pieces(VecDeque::from([b"abc".as_slice()]), true);
        let refused = read(stalled(), &LIMITS, &ByteBudget::default()).await;
        assert_eq!(refused, Err(StatusCode::REQUEST_TIMEOUT));
        // The minimum rate ends it before the timeout does.
        let rate = AdmissionLimits {
            body_timeout: Duration::from_secs(3600),
            body_bytes_per_second: 1000,
            body_grace: Duration::from_millis(1),
            ..LIMITS
        };
        let refused = read(stalled(), &rate, &ByteBudget::default()).await;
        assert_eq!(refused, Err(StatusCode::REQUEST_TIMEOUT));
        assert_eq!(time_for(5000, &rate), Duration::from_millis(5001));
        assert_eq!(time_for(usize::MAX / 2, &rate), rate.body_timeout);
    }
}
