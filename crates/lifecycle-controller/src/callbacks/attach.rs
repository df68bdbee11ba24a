//! Hook systems that connect to Podward: questions go down their streams, answers come up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use podward_proto::v1;
use podward_proto::v1::attach_response::Message;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::board::Board;
use super::metrics::HookMetrics;
use super::response::Failure;

/// Streams of one hook at the same time.
const MOST_STREAMS: usize = 64;
/// Answers that wait to be read, for each stream.
const ANSWERS: usize = 64;
/// Streams that may end under one call before it counts as failed.
const MOST_MOVES: usize = 8;

/// One stream of a hook system.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// What goes down, `attached` first. It ends when the hook is not attached to this process any more.
    pub(crate) calls: mpsc::Receiver<v1::AttachResponse>,
    /// What comes up. Dropping it, or `calls`, ends the attachment: its open calls go to another stream of the hook, if there is one.
    pub(crate) answers: mpsc::Sender<v1::AttachAnswer>,
}

/// Why a hook system can't attach.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AttachError {
    /// There is no such hook.
    #[error("hook {0:?} is not registered; register it first, with `attachment` as its connection")]
    NotRegistered(String),
    /// It is called at an endpoint.
    #[error("hook {0:?} is registered with an endpoint; register it with `attachment` as its connection")]
    NotAnAttachment(String),
    /// Its spec can't be right.
    #[error("hook {name:?} is not valid: {problem}")]
    Invalid {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// There are too many streams.
    #[error("hook {0:?} is attached {MOST_STREAMS} times already; end other streams first")]
    TooMany(String),
    /// Hooks are not known yet, or this replica has ceased to lead.
    #[error("this replica does not know the hooks; attach again")]
    NotLeading,
}

/// All streams of one hook.
#[derive(Debug)]
pub(super) struct Hub {
    hook: String,
    /// Room for questions on each stream, and as much again for cancellations.
    limit: usize,
    streams: Mutex<Vec<Arc<Stream>>>,
    last_call: AtomicU64,
    board: Arc<Mutex<Board>>,
    metrics: HookMetrics,
    /// The hook is not attached here any more.
    closed: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Stream {
    calls: mpsc::Sender<v1::AttachResponse>,
    /// Calls without an answer; `None` once the stream has ended.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<v1::HandleResponse>>>>,
}

impl Hub {
    pub(super) fn new(
        hook: &str,
        limit: usize,
        board: Arc<Mutex<Board>>,
        metrics: HookMetrics,
        closed: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Hub {
            hook: hook.to_owned(),
            limit,
            streams: Mutex::default(),
            last_call: AtomicU64::default(),
            board,
            metrics,
            closed,
            tasks,
        }
    }

    /// Ends all streams.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.streams.lock().clear();
    }

    /// Whether a hook system is attached.
    pub(super) fn probe(&self) -> Result<(), Failure> {
        if self.streams.lock().is_empty() { Err(self.nobody()) } else { Ok(()) }
    }

    fn nobody(&self) -> Failure {
        Failure::connection(format!(
            "no hook system is attached; it has to call HookRegistry.Attach with the name {:?}",
            self.hook
        ))
    }

    /// Another stream.
    pub(super) fn attach(self: &Arc<Self>) -> Result<Attachment, AttachError> {
        let (calls, calls_out) = mpsc::channel(2 * self.limit + 1);
        let (answers_in, answers) = mpsc::channel(ANSWERS);
        let stream = Arc::new(Stream { calls, waiting: Mutex::new(Some(HashMap::new())) });
        stream.send(Message::Attached(v1::Attached {}));
        {
            let mut streams = self.streams.lock();
            if self.closed.is_cancelled() {
                return Err(AttachError::NotLeading);
            }
            if streams.len() >= MOST_STREAMS {
                return Err(AttachError::TooMany(self.hook.clone()));
            }
            streams.push(stream.clone());
        }
        self.board.lock().connection(&self.hook, Ok(()), Instant::now());
        self.tasks.spawn(self.clone().read(stream, answers));
        Ok(Attachment { calls: calls_out, answers: answers_in })
    }

    /// Takes answers until the stream ends.
    async fn read(self: Arc<Self>, stream: Arc<Stream>, mut answers: mpsc::Receiver<v1::AttachAnswer>) {
        loop {
            let answer = tokio::select! {
                () = self.closed.cancelled() => break,
                () = stream.calls.closed() => break,
                answer = answers.recv() => answer,
            };
            let Some(v1::AttachAnswer { call_id, response }) = answer else { break };
            match stream.take(call_id) {
                // An answer without a response has no outcome, which is told to whoever waits.
                Some(waits) => drop(waits.send(response.unwrap_or_default())),
                None => self.metrics.ignored(&self.hook),
            }
        }
        let is_last = {
            let mut streams = self.streams.lock();
            streams.retain(|other| !Arc::ptr_eq(other, &stream));
            streams.is_empty()
        };
        // Whoever waits for one of these asks another stream.
        stream.waiting.lock().take();
        if is_last && !self.closed.is_cancelled() {
            self.board.lock().connection(&self.hook, Err(self.nobody()), Instant::now());
        }
    }

    /// Asks one of the streams; another one if that ends. When the call is dropped the hook system is told.
    pub(super) async fn handle(
        &self,
        request: v1::HandleRequest,
        timeout: Duration,
    ) -> Result<v1::HandleResponse, Failure> {
        let asked = async {
            for _ in 0..MOST_MOVES {
                let mut call = self.send(&request)?;
                if let Ok(response) = (&mut call.answer).await {
                    return Ok(response);
                }
            }
            Err(Failure::answer("the hook system's streams ended, one after the other, before an answer"))
        };
        tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| {
            Err(Failure::answer(format!(
                "the attached hook system gave no answer within {timeout:?} (spec.callTimeoutMilliseconds)"
            )))
        })
    }

    /// To the stream with the fewest open calls.
    fn send(&self, request: &v1::HandleRequest) -> Result<OpenCall, Failure> {
        let mut streams: Vec<(usize, Arc<Stream>)> = {
            let streams = self.streams.lock();
            streams.iter().map(|stream| (stream.open(), stream.clone())).collect()
        };
        if streams.is_empty() {
            return Err(self.nobody());
        }
        streams.sort_by_key(|(open, _)| *open);
        let call_id = self.last_call.fetch_add(1, Ordering::Relaxed) + 1;
        for (_, stream) in streams {
            let (answered, answer) = oneshot::channel();
            if let Some(waiting) = stream.waiting.lock().as_mut() {
                waiting.insert(call_id, answered);
            }
            let question = v1::AttachCall { call_id, request: Some(request.clone()) };
            if stream.send(Message::Call(question)) {
                return Ok(OpenCall { stream, call_id, answer });
            }
            // It isn't read, or has ended just now.
            stream.take(call_id);
        }
        Err(Failure::answer("the attached hook system does not read its stream"))
    }
}

impl Stream {
    fn open(&self) -> usize {
        self.waiting.lock().as_ref().map_or(0, HashMap::len)
    }

    fn take(&self, call_id: u64) -> Option<oneshot::Sender<v1::HandleResponse>> {
        self.waiting.lock().as_mut()?.remove(&call_id)
    }

    /// Gives whether there was room.
    fn send(&self, message: Message) -> bool {
        self.calls.try_send(v1::AttachResponse { message: Some(message) }).is_ok()
    }
}

/// A call in flight.
struct OpenCall {
    stream: Arc<Stream>,
    call_id: u64,
    answer: oneshot::Receiver<v1::HandleResponse>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if self.stream.take(self.call_id).is_some() {
            self.stream.send(Message::Cancelled(v1::AttachCallCancelled { call_id: self.call_id }));
        }
    }
}
