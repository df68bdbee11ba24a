//! Hook systems that connect to Podward. Each opens a stream, receives calls on it and sends answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use podward_api::MAX_CONCURRENT_CALLS;
use podward_proto::v1;
use podward_proto::v1::attach_response::Message;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::HookMetrics;
use crate::questions::failure::CallFailure;
use crate::questions::table::QuestionTable;

/// The maximum number of streams of one hook.
const MAX_STREAMS: usize = 64;
/// The number of unread answers per stream.
const ANSWER_BUFFER: usize = 64;
/// The number of unread messages per stream: as many calls as a hook can allow, their cancellations, and `Attached`.
const CALL_BUFFER: usize = 2 * MAX_CONCURRENT_CALLS as usize + 1;
/// A call fails after so many streams have ended before they answered it.
const MAX_STREAM_CHANGES: usize = 8;

/// One stream of a hook system.
#[derive(Debug)]
pub struct Attachment {
    /// The messages to the hook system, `attached` first. Ends when the hook is no longer attached to this process.
    pub calls: mpsc::Receiver<v1::AttachResponse>,
    /// The answers of the hook system. Dropping it, or `calls`, ends the stream; its open calls move to another stream.
    pub answers: mpsc::Sender<v1::AttachAnswer>,
}

/// The reason why a hook system can't attach.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// The hook does not exist.
    #[error("hook {0:?} is not registered; register it first, with `attachment` as its connection")]
    NotRegistered(String),
    /// The hook has an endpoint.
    #[error("hook {0:?} is registered with an endpoint; register it with `attachment` as its connection")]
    NotAnAttachment(String),
    /// The spec of the hook is invalid.
    #[error("hook {name:?} is not valid: {problem}")]
    Invalid {
        /// Its name.
        name: String,
        /// The reason.
        problem: String,
    },
    /// The hook has too many streams.
    #[error("hook {0:?} is attached {MAX_STREAMS} times already; end other streams first")]
    TooMany(String),
    /// The hooks are not known yet, or this replica is no longer the leader.
    #[error("this replica does not know the hooks; attach again")]
    NotLeading,
}

/// All streams of one hook.
#[derive(Debug)]
pub(crate) struct AttachedStreams {
    hook: String,
    /// The maximum number of calls on a stream. The stream has room for as many cancellations.
    limit: AtomicUsize,
    streams: Mutex<Vec<Arc<AttachedStream>>>,
    last_call: AtomicU64,
    table: Arc<Mutex<QuestionTable>>,
    metrics: HookMetrics,
    /// Cancelled when the hook is no longer attached to this process.
    closed: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct AttachedStream {
    calls: mpsc::Sender<v1::AttachResponse>,
    /// Calls without an answer; `None` once the stream has ended.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<v1::HandleResponse>>>>,
    /// The calls that have timed out since the last answer.
    unanswered: AtomicUsize,
}

impl AttachedStreams {
    pub(crate) fn new(
        hook: &str,
        limit: usize,
        table: Arc<Mutex<QuestionTable>>,
        metrics: HookMetrics,
        closed: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        AttachedStreams {
            hook: hook.to_owned(),
            limit: AtomicUsize::new(limit),
            streams: Mutex::default(),
            last_call: AtomicU64::default(),
            table,
            metrics,
            closed,
            tasks,
        }
    }

    /// Sets the maximum number of calls on a stream, also for open streams.
    pub(crate) fn limit(&self, calls: usize) {
        self.limit.store(calls, Ordering::Relaxed);
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.streams.lock().clear();
    }

    /// Fails if no hook system is attached.
    pub(crate) fn probe(&self) -> Result<(), CallFailure> {
        if self.streams.lock().is_empty() { Err(self.not_attached()) } else { Ok(()) }
    }

    fn not_attached(&self) -> CallFailure {
        CallFailure::connection(format!(
            "no hook system is attached; it has to call HookRegistry.Attach with the name {:?}",
            self.hook
        ))
    }

    /// Opens a stream.
    pub(crate) fn attach(self: &Arc<Self>) -> Result<Attachment, AttachError> {
        let (calls, calls_out) = mpsc::channel(CALL_BUFFER);
        let (answers_in, answers) = mpsc::channel(ANSWER_BUFFER);
        let waiting = Mutex::new(Some(HashMap::new()));
        let stream = Arc::new(AttachedStream { calls, waiting, unanswered: AtomicUsize::default() });
        stream.send(Message::Attached(v1::Attached {}));
        {
            let mut streams = self.streams.lock();
            if self.closed.is_cancelled() {
                return Err(AttachError::NotLeading);
            }
            if streams.len() >= MAX_STREAMS {
                return Err(AttachError::TooMany(self.hook.clone()));
            }
            streams.push(stream.clone());
            // While `streams` is locked: reports come in the order in which streams begin and end.
            self.table.lock().connection(&self.hook, Ok(()), Instant::now());
        }
        self.tasks.spawn(self.clone().read(stream, answers));
        Ok(Attachment { calls: calls_out, answers: answers_in })
    }

    /// Receives answers until the stream ends.
    async fn read(
        self: Arc<Self>,
        stream: Arc<AttachedStream>,
        mut answers: mpsc::Receiver<v1::AttachAnswer>,
    ) {
        loop {
            let answer = tokio::select! {
                // An answer to a hook that is gone must not bring back its metrics.
                biased;
                () = self.closed.cancelled() => break,
                () = stream.calls.closed() => break,
                answer = answers.recv() => answer,
            };
            let Some(v1::AttachAnswer { call_id, response }) = answer else { break };
            // A late answer too shows that the hook system answers on this stream.
            stream.unanswered.store(0, Ordering::Relaxed);
            match stream.take(call_id) {
                // An answer without a response has no outcome. The caller reports that.
                Some(waits) => drop(waits.send(response.unwrap_or_default())),
                None => self.metrics.ignored(&self.hook),
            }
        }
        {
            let mut streams = self.streams.lock();
            streams.retain(|other| !Arc::ptr_eq(other, &stream));
            // The callers move to another stream.
            stream.waiting.lock().take();
            if streams.is_empty() && !self.closed.is_cancelled() {
                self.table.lock().connection(&self.hook, Err(self.not_attached()), Instant::now());
            }
        }
    }

    /// Calls one of the streams, and another one if it ends. Dropping the future cancels the call at the hook system.
    /// `traceparent` is the W3C trace context of the call, or empty.
    pub(crate) async fn handle(
        &self,
        request: v1::HandleRequest,
        traceparent: String,
        timeout: Duration,
    ) -> Result<v1::HandleResponse, CallFailure> {
        let until = tokio::time::Instant::now() + timeout;
        for change in 0..MAX_STREAM_CHANGES {
            let sent = self.send(&request, &traceparent);
            let mut call = sent.map_err(|failure| CallFailure { may_have_arrived: change > 0, ..failure })?;
            match tokio::time::timeout_at(until, &mut call.answer).await {
                Ok(Ok(response)) => return Ok(response),
                // The stream has ended.
                Ok(Err(_)) => {}
                Err(_) => {
                    call.stream.unanswered.fetch_add(1, Ordering::Relaxed);
                    return Err(CallFailure::answer(format!(
                        "the attached hook system gave no answer within {timeout:?} (spec.callTimeoutMilliseconds)"
                    )));
                }
            }
        }
        Err(CallFailure::answer("the hook system's streams ended, one after the other, before an answer"))
    }

    /// Sends the call to the stream that has left the fewest calls unanswered. Of these, to the one with the fewest open
    /// calls.
    fn send(&self, request: &v1::HandleRequest, traceparent: &str) -> Result<StreamCall, CallFailure> {
        let mut streams: Vec<((usize, usize), Arc<AttachedStream>)> = {
            let streams = self.streams.lock();
            streams.iter().map(|stream| (stream.load(), stream.clone())).collect()
        };
        if streams.is_empty() {
            return Err(self.not_attached());
        }
        streams.sort_by_key(|(load, _)| *load);
        let limit = self.limit.load(Ordering::Relaxed);
        let call_id = self.last_call.fetch_add(1, Ordering::Relaxed) + 1;
        for (_, stream) in streams {
            let (answered, answer) = oneshot::channel();
            if let Some(waiting) = stream.waiting.lock().as_mut() {
                waiting.insert(call_id, answered);
            }
            let question = v1::AttachCall {
                call_id,
                request: Some(request.clone()),
                traceparent: traceparent.to_owned(),
            };
            if stream.has_room(limit) && stream.send(Message::Call(question)) {
                return Ok(StreamCall { stream, call_id, answer });
            }
            // The hook system does not read the stream, or the stream has just ended.
            stream.take(call_id);
        }
        Err(CallFailure::answer("the attached hook system does not read its stream"))
    }
}

impl AttachedStream {
    /// Returns the number of calls that have timed out since the last answer, and that of open calls.
    fn load(&self) -> (usize, usize) {
        let open = self.waiting.lock().as_ref().map_or(0, HashMap::len);
        (self.unanswered.load(Ordering::Relaxed), open)
    }

    fn take(&self, call_id: u64) -> Option<oneshot::Sender<v1::HandleResponse>> {
        self.waiting.lock().as_mut()?.remove(&call_id)
    }

    /// Returns false if the hook system has not read as much as `limit` calls and their cancellations.
    fn has_room(&self, limit: usize) -> bool {
        let unread = self.calls.max_capacity() - self.calls.capacity();
        unread < 2 * limit + 1
    }

    /// Returns false if the stream is full or has ended.
    fn send(&self, message: Message) -> bool {
        self.calls.try_send(v1::AttachResponse { message: Some(message) }).is_ok()
    }
}

/// A call in flight.
struct StreamCall {
    stream: Arc<AttachedStream>,
    call_id: u64,
    answer: oneshot::Receiver<v1::HandleResponse>,
}

impl Drop for StreamCall {
    fn drop(&mut self) {
        if self.stream.take(self.call_id).is_some() {
            self.stream.send(Message::Cancelled(v1::AttachCallCancelled { call_id: self.call_id }));
        }
    }
}
