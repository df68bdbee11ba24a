//! Reads a request's body into one buffer.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Bytes};

use super::response::HttpRefusal;

/// Reads the whole of `body`, at most `limit` bytes, within `timeout`.
pub(super) async fn read<B>(body: B, limit: usize, timeout: Duration) -> Result<Bytes, HttpRefusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    // The length that the client announces is used to refuse a body, and as the buffer's size.
    let announced = body.size_hint();
    if usize::try_from(announced.lower()).map_or(true, |length| length > limit) {
        return Err(too_large(limit));
    }
    let expected = announced.exact().and_then(|length| usize::try_from(length).ok());
    match tokio::time::timeout(timeout, collect(body, limit, expected)).await {
        Ok(result) => result,
        Err(_) => Err(HttpRefusal::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body of the request did not arrive within {timeout:?}"),
        )),
    }
}

async fn collect<B>(mut body: B, limit: usize, expected: Option<usize>) -> Result<Bytes, HttpRefusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut first = Bytes::new();
    let mut buffer: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            HttpRefusal::new(StatusCode::BAD_REQUEST, format!("the body of the request broke off: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + buffer.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        if first.is_empty() && buffer.is_empty() {
            // A body that arrives in one piece is not copied.
            first = data;
            continue;
        }
        if buffer.is_empty() {
            buffer.reserve_exact(expected.unwrap_or(first.len() + data.len()));
            buffer.extend_from_slice(&std::mem::take(&mut first));
        }
        buffer.extend_from_slice(&data);
    }
    Ok(if buffer.is_empty() { first } else { Bytes::from(buffer) })
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

    const TIMEOUT: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn joins_pieces() {
        assert_eq!(read(pieces(&[b"ab", b"", b"cd", b"e"]), 5, TIMEOUT).await.unwrap(), "abcde");
        assert_eq!(read(pieces(&[b"ab"]), 5, TIMEOUT).await.unwrap(), "ab");
        assert_eq!(read(pieces(&[]), 5, TIMEOUT).await.unwrap(), "");
    }

    #[tokio::test]
    async fn stops_at_the_limit_also_without_an_announced_length() {
        let refusal = read(pieces(&[b"abc", b"def"]), 5, TIMEOUT).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn gives_up_on_a_client_that_stalls() {
        let stalled = Pieces(VecDeque::from([b"abc".as_slice()]), true);
        assert_eq!(read(stalled, 5, TIMEOUT / 100).await.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
    }
}
