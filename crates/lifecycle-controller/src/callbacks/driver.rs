//! One task for each hook makes its calls. A hook that is slow or dead delays nobody but itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use podward_core::hooks::Phase;
use podward_proto::v1;
use tokio::sync::Notify;

use super::attach::Hub;
use super::board::{Board, Call, Next};
use super::endpoint::EndpointClient;
use super::metrics::{CANCELLED, FAILED, HookMetrics, UNREACHABLE};
use super::queue::QuestionId;
use super::registered::Registered;
use super::response::{Failure, FailureKind, Reply};
use crate::traces::{CallSpan, Traces};

/// How a hook is reached.
#[derive(Debug)]
pub(super) enum Line {
    Endpoint(EndpointClient),
    Attached(Arc<Hub>),
}

impl Line {
    async fn probe(&self) -> Result<(), Failure> {
        match self {
            Line::Endpoint(client) => client.probe().await,
            Line::Attached(hub) => hub.probe(),
        }
    }

    async fn handle(
        &self,
        request: v1::HandleRequest,
        traceparent: Option<String>,
        timeout: Duration,
    ) -> Result<Reply, Failure> {
        let response = match self {
            Line::Endpoint(client) => client.handle(request, traceparent).await?,
            // A stream has its metadata once and for all. Hook systems can tell the trace from pod and operation.
            Line::Attached(hub) => hub.handle(request, timeout).await?,
        };
        Reply::read(response)
    }
}

/// What the driver of one hook needs.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) registered: Arc<Registered>,
    pub(super) line: Line,
    pub(super) bell: Arc<Notify>,
    pub(super) board: Arc<Mutex<Board>>,
    pub(super) metrics: HookMetrics,
    pub(super) traces: Traces,
}

enum Ended {
    Call {
        id: QuestionId,
        attempt: u32,
        phase: Phase,
        result: Option<Result<Reply, Failure>>,
        took: Duration,
        span: Option<Box<CallSpan>>,
    },
    Probe(Result<(), Failure>),
}

impl Driver {
    /// Calls the hook for as long as it is polled; dropping it ends all calls. The first thing is to find out whether the hook can be
    /// reached, so that this is told before a pod depends on it.
    pub(super) async fn run(self) {
        let name = self.registered.hook.name.as_str();
        let mut running: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
        self.board.lock().began(name);
        running.push(self.probe().boxed());
        loop {
            let next = self.board.lock().next(name, Instant::now());
            let until = match next {
                Next::Call(call) => {
                    running.push(self.call(*call).boxed());
                    continue;
                }
                Next::Probe => {
                    running.push(self.probe().boxed());
                    continue;
                }
                Next::Wait(until) => until,
            };
            tokio::select! {
                Some(ended) = running.next(), if !running.is_empty() => self.ended(ended),
                () = self.bell.notified() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    async fn probe(&self) -> Ended {
        Ended::Probe(self.line.probe().await)
    }

    async fn call(&self, call: Call) -> Ended {
        let Call { id, attempt, phase, request, cancelled } = call;
        let began = Instant::now();
        let span = self.traces.call(&request);
        let traceparent = span.as_ref().map(|span| span.traceparent());
        let answer = self.line.handle(request, traceparent, self.registered.call_timeout);
        let result = cancelled.run_until_cancelled(answer).await;
        Ended::Call { id, attempt, phase, result, took: began.elapsed(), span }
    }

    fn ended(&self, ended: Ended) {
        let name = self.registered.hook.name.as_str();
        match ended {
            Ended::Probe(result) => {
                if let Err(failure) = &result {
                    tracing::debug!(hook = name, error = failure.text, "hook not reached");
                }
                self.board.lock().probed(name, result, Instant::now());
            }
            Ended::Call { id, attempt, phase, result, took, span } => {
                let outcome = match &result {
                    None => CANCELLED,
                    Some(Ok(reply)) => reply.as_str(),
                    Some(Err(failure)) => {
                        tracing::debug!(hook = name, error = failure.text, "call of a hook");
                        if failure.kind == FailureKind::Question { FAILED } else { UNREACHABLE }
                    }
                };
                self.metrics.called(name, phase, outcome);
                if let Some(span) = span {
                    let (evidence, error) = match &result {
                        Some(Ok(Reply::Done(evidence))) => (Some(evidence.level.as_str()), None),
                        Some(Err(failure)) => (None, Some(failure.text.clone())),
                        _ => (None, None),
                    };
                    span.end(outcome, evidence, error);
                }
                self.board.lock().ended(name, (id, attempt), result, took, Instant::now());
            }
        }
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}
