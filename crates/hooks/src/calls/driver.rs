//! One task per hook makes its calls, so that a slow or dead hook does not delay other hooks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use podward_core::hooks::HookPhase;
use podward_proto::v1;
use tokio::sync::Notify;

use crate::calls::attachment::AttachedStreams;
use crate::calls::endpoint::EndpointClient;
use crate::metrics::{CANCELLED, FAILED, HookMetrics, UNREACHABLE};
use crate::questions::failure::{CallFailure, CallFailureKind};
use crate::questions::queue::QuestionId;
use crate::questions::reply::HookReply;
use crate::questions::table::{HookCall, NextStep, QuestionTable};
use crate::registration::registered::RegisteredHook;
use podward_traces::{CallSpan, OperationTraces};

/// The transport to a hook.
#[derive(Debug)]
pub(crate) enum HookTransport {
    Endpoint(Box<EndpointClient>),
    Attached(Arc<AttachedStreams>),
}

impl HookTransport {
    /// Finds out whether the hook can be connected to.
    async fn probe(&self) -> Result<(), CallFailure> {
        match self {
            HookTransport::Endpoint(client) => client.probe().await,
            HookTransport::Attached(streams) => streams.probe(),
        }
    }

    /// Finds out whether a hook that was unreachable has recovered.
    async fn has_recovered(&self) -> Result<(), CallFailure> {
        match self {
            HookTransport::Endpoint(client) => client.has_recovered().await,
            HookTransport::Attached(streams) => streams.probe(),
        }
    }

    async fn handle(
        &self,
        request: v1::HandleRequest,
        traceparent: Option<String>,
        timeout: Duration,
    ) -> Result<HookReply, CallFailure> {
        let response = match self {
            HookTransport::Endpoint(client) => client.handle(request, traceparent).await?,
            HookTransport::Attached(streams) => {
                streams.handle(request, traceparent.unwrap_or_default(), timeout).await?
            }
        };
        HookReply::read(response)
    }
}

/// Makes the calls of one hook.
#[derive(Debug)]
pub(crate) struct HookDriver {
    pub(crate) registered: Arc<RegisteredHook>,
    pub(crate) line: HookTransport,
    pub(crate) wakeup: Arc<Notify>,
    pub(crate) table: Arc<Mutex<QuestionTable>>,
    pub(crate) metrics: HookMetrics,
    pub(crate) traces: OperationTraces,
}

enum FinishedTask {
    Call {
        id: QuestionId,
        attempt: u32,
        phase: HookPhase,
        result: Option<Result<HookReply, CallFailure>>,
        took: Duration,
        span: Option<Box<CallSpan>>,
    },
    Probe(Result<(), CallFailure>),
}

impl HookDriver {
    /// Calls the hook for as long as it is polled; dropping it ends all calls. The first thing is to find out whether
    /// the hook can be reached, so that this is reported before a pod depends on it.
    pub(crate) async fn run(self) {
        let name = self.registered.hook.name.as_str();
        let mut running: FuturesUnordered<BoxFuture<'_, FinishedTask>> = FuturesUnordered::new();
        self.table.lock().began(name);
        running.push(async { FinishedTask::Probe(self.line.probe().await) }.boxed());
        loop {
            let next = self.table.lock().next(name, Instant::now());
            let until = match next {
                NextStep::Call(call) => {
                    running.push(self.call(*call).boxed());
                    continue;
                }
                NextStep::Probe => {
                    let probe = async { FinishedTask::Probe(self.line.has_recovered().await) };
                    running.push(probe.boxed());
                    continue;
                }
                NextStep::Wait(until) => until,
            };
            tokio::select! {
                Some(ended) = running.next(), if !running.is_empty() => self.ended(ended),
                () = self.wakeup.notified() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    async fn call(&self, call: HookCall) -> FinishedTask {
        let HookCall { id, attempt, phase, request, cancelled } = call;
        let began = Instant::now();
        let span = self.traces.hook_call(&request);
        let traceparent = span.as_ref().map(|span| span.traceparent());
        let answer = self.line.handle(request, traceparent, self.registered.call_timeout);
        let result = cancelled.run_until_cancelled(answer).await;
        FinishedTask::Call { id, attempt, phase, result, took: began.elapsed(), span }
    }

    fn ended(&self, ended: FinishedTask) {
        let name = self.registered.hook.name.as_str();
        match ended {
            FinishedTask::Probe(result) => {
                if let Err(failure) = &result {
                    tracing::debug!(hook = name, error = failure.text, "hook not reached");
                }
                self.table.lock().probed(name, result, Instant::now());
            }
            FinishedTask::Call { id, attempt, phase, result, took, span } => {
                let outcome = match &result {
                    None => CANCELLED,
                    Some(Ok(reply)) => reply.as_str(),
                    Some(Err(failure)) => {
                        tracing::debug!(hook = name, error = failure.text, "call of a hook");
                        if failure.kind == CallFailureKind::Question { FAILED } else { UNREACHABLE }
                    }
                };
                self.metrics.called(name, phase, outcome);
                if let Some(span) = span {
                    let (evidence, error) = match &result {
                        Some(Ok(HookReply::Done(evidence))) => (Some(evidence.level.as_str()), None),
                        Some(Err(failure)) => (None, Some(failure.text.clone())),
                        _ => (None, None),
                    };
                    span.end(outcome, evidence, error);
                }
                self.table.lock().ended(name, (id, attempt), result, took, Instant::now());
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
