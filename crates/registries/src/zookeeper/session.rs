//! One connection to a server of ZooKeeper, with a session of its own.
//!
//! Requests are sent as they come, and the server answers them in their order. The session owns no ephemeral nodes, so
//! nothing depends on it: it ends when it is not used for a while, and a new one follows when it is needed.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::limits::SMALL;

use super::frames::{Frame, Frames};
use super::packets::{self, EVENT, PING, Reply, Request};

/// In bytes: the longest packet that is not the answer to a call that wants a longer one.
pub(super) const MAX_SMALL: usize = SMALL + (1 << 10);
/// The session timeout that is asked for. The server may set another one.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// A session without calls ends after this time, unless it watches.
pub(super) const IDLE: Duration = Duration::from_secs(60);
/// The number of calls that wait to be sent.
const QUEUE: usize = 64;

/// A connection, encrypted or not.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The request was not sent.
    NotSent(String),
    /// The request was sent, and its answer is lost.
    Lost(String),
}

/// The answer to a call: 0 or an error, and the body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: i32,
    pub(super) body: Vec<u8>,
    /// True if the body was too long and is left out.
    pub(super) is_cut: bool,
}

struct Call {
    request: Request,
    /// In bytes: the longest packet with the answer.
    max: usize,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// A call without an answer.
#[derive(Debug)]
struct Sent {
    number: i32,
    max: usize,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// A session. It ends when its last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Session {
    calls: mpsc::Sender<Call>,
    /// The number of events so far.
    events: watch::Receiver<u64>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.request.fmt(f)
    }
}

impl Session {
    /// Asks for a session on a new connection, which ends when it is not used for `idle`. With a user it gives the credentials.
    ///
    /// # Errors
    /// Fails with a reason if the server does not answer as expected. `Err` in the result is the error of the server about the
    /// credentials.
    pub(super) async fn open(
        transport: Box<dyn Transport>,
        credentials: Option<Vec<u8>>,
        idle: Duration,
    ) -> io::Result<Result<Self, i32>> {
        let (reader, mut writer) = tokio::io::split(transport);
        let mut frames = Frames::new(reader);
        let asked = i32::try_from(TIMEOUT.as_millis()).unwrap_or(i32::MAX);
        writer.write_all(&packets::connect(asked)).await?;
        writer.flush().await?;
        let connected = packets::connected(&frames.next(MAX_SMALL).await?.bytes).map_err(io::Error::other)?;
        let timeout = u64::try_from(connected.timeout).unwrap_or_default();
        if timeout == 0 {
            return Err(io::Error::other("the server gave no session"));
        }
        if let Some(credentials) = credentials {
            writer.write_all(&credentials).await?;
            writer.flush().await?;
            let frame = frames.next(MAX_SMALL).await?;
            let reply = packets::reply(&frame.bytes).map_err(io::Error::other)?;
            if reply.code != 0 {
                return Ok(Err(reply.code));
            }
        }
        let (calls, queue) = mpsc::channel(QUEUE);
        let (count, events) = watch::channel(0);
        let connection = Connection {
            frames,
            writer,
            // A server may set a longer one, and then be silent.
            timeout: Duration::from_millis(timeout).min(TIMEOUT),
            idle,
            sent: VecDeque::new(),
            number: 0,
            count,
            is_watching: false,
        };
        tokio::spawn(connection.run(queue));
        Ok(Ok(Self { calls, events }))
    }

    /// Returns true if the session has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.calls.is_closed()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.calls.same_channel(&other.calls)
    }

    /// Returns the number of events so far, which can be waited on. It closes with the session.
    pub(super) fn events(&self) -> watch::Receiver<u64> {
        self.events.clone()
    }

    /// Sends a request and waits for the answer.
    ///
    /// Of a packet of more than `max` bytes the answer is cut.
    pub(super) async fn call(&self, request: Request, max: usize) -> Result<Answer, Failure> {
        let (answer, answered) = oneshot::channel();
        let ended = || "the session has ended".to_owned();
        self.calls.send(Call { request, max, answer }).await.map_err(|_| Failure::NotSent(ended()))?;
        answered.await.unwrap_or_else(|_| Err(Failure::Lost(ended())))
    }
}

/// What the task of a session owns.
struct Connection {
    frames: Frames<ReadHalf<Box<dyn Transport>>>,
    writer: WriteHalf<Box<dyn Transport>>,
    timeout: Duration,
    idle: Duration,
    /// The calls without an answer, in the order in which they were sent.
    sent: VecDeque<Sent>,
    number: i32,
    count: watch::Sender<u64>,
    is_watching: bool,
}

impl Connection {
    async fn run(mut self, mut queue: mpsc::Receiver<Call>) {
        let reason = match self.serve(&mut queue).await {
            Ok(()) => "the session has ended".to_owned(),
            Err(error) => format!("the connection is lost: {error}"),
        };
        queue.close();
        for Sent { answer, .. } in self.sent.drain(..) {
            // Whoever does not wait any more needs no answer.
            answer.send(Err(Failure::Lost(reason.clone()))).ok();
        }
        while let Some(call) = queue.recv().await {
            call.answer.send(Err(Failure::NotSent(reason.clone()))).ok();
        }
    }

    /// Serves calls until the session is not needed any more.
    async fn serve(&mut self, queue: &mut mpsc::Receiver<Call>) -> io::Result<()> {
        let (mut used, mut heard, mut pinged) = (Instant::now(), Instant::now(), Instant::now());
        loop {
            let max = self.sent.front().map_or(MAX_SMALL, |sent| sent.max);
            let next = (pinged + self.timeout / 3).min(heard + self.timeout * 2 / 3);
            tokio::select! {
                call = queue.recv() => {
                    let Some(call) = call else { return self.end().await };
                    used = Instant::now();
                    self.send(call).await?;
                }
                frame = self.frames.next(max) => {
                    heard = Instant::now();
                    self.receive(frame?)?;
                }
                () = tokio::time::sleep_until(next) => {
                    if heard.elapsed() >= self.timeout * 2 / 3 {
                        return Err(io::Error::other("the server is silent"));
                    }
                    if used.elapsed() >= self.idle && self.sent.is_empty() && !self.is_watching {
                        return self.end().await;
                    }
                    pinged = Instant::now();
                    self.write(&packets::ping()).await?;
                }
            }
        }
    }

    async fn send(&mut self, Call { request, max, answer }: Call) -> io::Result<()> {
        // Nobody waits any more.
        if answer.is_closed() {
            return Ok(());
        }
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.is_watching |= matches!(request, Request::Watch { .. });
        // Before it is written: a part of it may arrive.
        self.sent.push_back(Sent { number: self.number, max, answer });
        self.write(&request.frame(self.number)).await
    }

    async fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let write = async {
            self.writer.write_all(frame).await?;
            self.writer.flush().await
        };
        tokio::time::timeout(self.timeout, write)
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the server does not read")))
    }

    fn receive(&mut self, Frame { mut bytes, is_cut }: Frame) -> io::Result<()> {
        let Reply { number, code, body } = packets::reply(&bytes).map_err(io::Error::other)?;
        let start = bytes.len() - body.len();
        match number {
            PING => return Ok(()),
            EVENT => {
                self.count.send_modify(|count| *count += 1);
                return Ok(());
            }
            _ => {}
        }
        match self.sent.pop_front() {
            Some(Sent { number: expected, answer, .. }) if expected == number => {
                bytes.drain(..start);
                answer.send(Ok(Answer { code, body: bytes, is_cut })).ok();
                Ok(())
            }
            other => {
                self.sent.extend(other);
                Err(io::Error::other("the server answered a request that was not sent"))
            }
        }
    }

    /// Ends the session at the server, too.
    async fn end(&mut self) -> io::Result<()> {
        self.write(&packets::close(self.number.checked_add(1).unwrap_or(1))).await?;
        self.writer.shutdown().await
    }
}

#[cfg(test)]
mod tests;
