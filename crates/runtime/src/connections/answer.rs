//! An answer while it is sent: how long it may wait for its client.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::open::ConnectionProof;

tokio::task_local! {
    /// The answer that the present task sends.
    static SENDING: SentAnswer;
}

/// The answer that a task sends: to one request of an HTTP/2 connection, or to each request of an HTTP/1.1 connection in
/// turn.
///
/// A client decides how much of an answer it reads, and no other part is asked of its body until it does. So the body
/// cannot see that time passes. [`within_limits`](Self::within_limits) does.
#[derive(Clone, Debug)]
pub(crate) struct SentAnswer {
    proof: ConnectionProof,
    state: Arc<Mutex<SendState>>,
}

#[derive(Debug, Default)]
struct SendState {
    /// Since when a part waits for the client to read on.
    unread_since: Option<Instant>,
    /// The deadline of the request.
    deadline: Option<Instant>,
}

impl SentAnswer {
    /// Returns the answers of a task that serves the connection of `proof`.
    pub(crate) fn new(proof: ConnectionProof) -> Self {
        Self { proof, state: Arc::default() }
    }

    /// Returns the answer that the present task sends; `None` outside of [`within_limits`](Self::within_limits).
    pub(crate) fn current() -> Option<Self> {
        SENDING.try_with(Clone::clone).ok()
    }

    /// Begins the next request.
    pub(crate) fn begin(&self) {
        *self.state.lock() = SendState::default();
    }

    /// Ends the request at `deadline` if its client does not read the answer then.
    pub(crate) fn end_at(&self, deadline: Instant) {
        self.state.lock().deadline = Some(deadline);
    }

    /// A part was taken from the body, to be sent.
    pub(crate) fn part_taken(&self) {
        self.state.lock().unread_since = Some(Instant::now());
    }

    /// The part that was taken last is sent: the body is asked for more, or is dropped.
    pub(crate) fn part_sent(&self) {
        self.state.lock().unread_since = None;
    }

    /// Runs `serve`, which sends the answer. Returns `None` as soon as the answer has waited too long for its client. An
    /// unproven connection is then closed.
    pub(crate) async fn within_limits<F: Future>(self, serve: F) -> Option<F::Output> {
        let answer = self.clone();
        SENDING
            .scope(self, async move {
                let mut serve = pin!(serve);
                let mut timer = pin!(sleep_until(Instant::now()));
                let ended = std::future::poll_fn(|context| {
                    if let Poll::Ready(output) = serve.as_mut().poll(context) {
                        return Poll::Ready(Some(output));
                    }
                    // The body is asked for parts by `serve` only, so nothing changes until it is polled again.
                    let Some(due) = answer.due() else { return Poll::Pending };
                    if timer.deadline() != due {
                        timer.as_mut().reset(due);
                    }
                    // A connection that was proven meanwhile has more time.
                    while timer.as_mut().poll(context).is_ready() {
                        match answer.due() {
                            Some(later) if later > Instant::now() => timer.as_mut().reset(later),
                            _ => return Poll::Ready(None),
                        }
                    }
                    Poll::Pending
                })
                .await;
                if ended.is_none() {
                    answer.proof.not_read();
                }
                ended
            })
            .await
    }

    /// Returns when the wait for the client ends; `None` if the answer does not wait.
    fn due(&self) -> Option<Instant> {
        let SendState { unread_since, deadline } = *self.state.lock();
        let due = unread_since? + self.proof.unread_limit();
        Some(deadline.map_or(due, |deadline| deadline.min(due)))
    }
}
