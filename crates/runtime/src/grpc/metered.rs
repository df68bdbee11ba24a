//! The body of a request: its messages count against the byte budget, and must not arrive too slowly.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::Sleep;
use tonic::Status;

use crate::budget::HeldBytes;

/// A gRPC message is preceded by a flag and its length (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX: usize = 5;

/// The bytes that a request holds: those of its last message. The request and its body share them, because a service
/// still uses a message when the body has ended.
pub(super) type MessageBytes = Arc<Mutex<HeldBytes>>;

/// Forwards a request's body. A message holds bytes of the budget from its first byte until the next message begins, or
/// the request ends. A message that takes longer than its timeout ends the body.
pub(super) struct MeteredBody {
    inner: Incoming,
    held: MessageBytes,
    position: MessagePosition,
    timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl MeteredBody {
    pub(super) fn new(inner: Incoming, held: MessageBytes, timeout: Duration) -> Self {
        Self { inner, held, position: MessagePosition::default(), timeout, timer: None }
    }

    /// Counts `data`.
    fn count(&mut self, data: &[u8]) -> Result<(), Status> {
        let Passed { begun, of_last } = self.position.pass(data);
        let mut held = self.held.lock();
        if begun > 0 {
            held.release();
            self.timer = None;
        }
        if !self.position.is_inside() {
            self.timer = None;
        }
        held.grow(of_last).map_err(|error| Status::resource_exhausted(error.to_string()))
    }

    /// Returns the status with which a body that waits for the rest of a message ends.
    fn ends(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if !self.position.is_inside() {
            return Poll::Pending;
        }
        let timeout = self.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        timer.as_mut().poll(context).map(|()| {
            Status::deadline_exceeded(format!("a message of the request did not arrive within {timeout:?}"))
        })
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
                Poll::Ready(Some(counted.map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(Status::from_error(error.into())))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.ends(context).map(|status| Some(Err(status))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Where in the sequence of messages the next byte is.
#[derive(Clone, Copy, Debug, Default)]
struct MessagePosition {
    prefix: [u8; PREFIX],
    prefix_bytes: usize,
    content: usize,
}

/// What some bytes contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    /// Messages that begin in them.
    begun: usize,
    /// Bytes of the last message.
    of_last: usize,
}

impl MessagePosition {
    fn pass(&mut self, data: &[u8]) -> Passed {
        let mut passed = Passed { begun: 0, of_last: 0 };
        let mut rest = data;
        while let Some(&first) = rest.first() {
            let taken = if self.content > 0 {
                let taken = self.content.min(rest.len());
                self.content -= taken;
                taken
            } else {
                if self.prefix_bytes == 0 {
                    passed = Passed { begun: passed.begun + 1, of_last: 0 };
                }
                if let Some(place) = self.prefix.get_mut(self.prefix_bytes) {
                    *place = first;
                }
                self.prefix_bytes += 1;
                if self.prefix_bytes == PREFIX {
                    let [_, length @ ..] = self.prefix;
                    // A length that does not fit ends the request: no message may be that long.
                    self.content = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                    self.prefix_bytes = 0;
                }
                1
            };
            passed.of_last += taken;
            rest = rest.get(taken..).unwrap_or_default();
        }
        passed
    }

    /// True if a message has begun and not ended.
    fn is_inside(&self) -> bool {
        self.content > 0 || self.prefix_bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.resize(PREFIX + length as usize, 7);
        bytes
    }

    proptest! {
        #[test]
        fn messages_are_told_apart_however_they_are_cut(
            lengths in prop::collection::vec(0_u32..50, 1..8),
            cuts in prop::collection::vec(1_usize..20, 1..20),
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|&length| message(length)).collect();
            let (mut position, mut begun, mut of_last, mut rest) = (MessagePosition::default(), 0, 0, &bytes[..]);
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                let passed = position.pass(piece);
                begun += passed.begun;
                of_last = if passed.begun > 0 { passed.of_last } else { of_last + passed.of_last };
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(!position.is_inside());
            prop_assert_eq!(begun, lengths.len());
            prop_assert_eq!(of_last, PREFIX + *lengths.last().unwrap() as usize);
        }
    }
}
