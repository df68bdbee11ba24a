//! The gRPC service that answers questions.

mod answer;
mod check;
mod held_call;
mod question;

use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::HookPhase;
use podward_proto::v1::hook_handler_server::HookHandler;
use podward_proto::v1::{HandleRequest, HandleResponse};
use podward_runtime::admin::Readiness;
use podward_runtime::authn::Authenticator;
use podward_runtime::grpc::timeout_of;
use podward_runtime::telemetry::traces::Spans;
use podward_traces::AnswerSpan;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::canary::Canary;
use crate::clock::{after, between};
use crate::drain_tracker::DrainTracker;
use crate::in_flight::{InFlightClient, PORT_LABEL};
use crate::index::{ApiServers, PodEndpoints};
use crate::metrics::TrafficMetrics;
use crate::node_agent::NodeAgents;
use crate::proxy::WATCH_LAG;
use crate::proxy_scraper::ProxyScraper;
use crate::receipt::Receipt;
use crate::shared_index::SharedIndex;
use crate::verdict::{
    self, InFlightCount, NodeProxies, PrepareProgress, TrafficVerdict, WaitTimes, connections_count_from,
};

use held_call::HeldCall;
use question::TrafficQuestion;

/// How long a call is held open until its answer is DONE. It is much less than the timeout of calls (10 s), so that no
/// call times out. It is less than the time after which a pod reports what it waits for (5 s), so that the report has a
/// reason.
const HOLD: Duration = Duration::from_secs(2);
/// The part of a call's timeout that is reserved for the response.
const RESPONSE_RESERVE: Duration = Duration::from_millis(500);
/// The minimum time between two evaluations of a held call. Many changes may arrive together.
const MIN_EVALUATION_INTERVAL: Duration = Duration::from_millis(10);

/// The maximum time between two evaluations of a held call while its answer may change.
const MAX_EVALUATION_INTERVAL: Duration = Duration::from_millis(500);
/// The time of the interval for each node and held call, in microseconds. An evaluation visits each node, so this limits
/// the CPU usage of all held calls together.
const INTERVAL_PER_NODE_AND_CALL: u64 = 1;

/// Returns the minimum time between two evaluations of a held call, when `held` calls are held open and there are
/// `nodes` nodes.
fn evaluation_interval(held: i64, nodes: usize) -> Duration {
    let visits =
        u64::try_from(held).unwrap_or_default().saturating_mul(u64::try_from(nodes).unwrap_or(u64::MAX));
    let interval = Duration::from_micros(visits.saturating_mul(INTERVAL_PER_NODE_AND_CALL));
    interval.clamp(MIN_EVALUATION_INTERVAL, MAX_EVALUATION_INTERVAL)
}

/// Answers the questions of the lifecycle-controller.
pub(crate) struct TrafficHandler {
    pub(crate) shared: Arc<SharedIndex>,
    pub(crate) scraper: Option<Arc<ProxyScraper>>,
    pub(crate) canary: Option<Arc<Canary>>,
    pub(crate) in_flight_client: InFlightClient,
    pub(crate) node_agents: Option<Arc<NodeAgents>>,
    pub(crate) drain_tracker: DrainTracker,
    pub(crate) wait_times: WaitTimes,
    pub(crate) authenticator: Arc<Authenticator>,
    /// The only user that may call.
    pub(crate) allowed_user: String,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Arc<TrafficMetrics>,
    pub(crate) spans: Spans,
    pub(crate) stop: CancellationToken,
}

#[tonic::async_trait]
impl HookHandler for TrafficHandler {
    async fn handle(&self, request: Request<HandleRequest>) -> Result<Response<HandleResponse>, Status> {
        let caller = self.authenticator.authenticate(&request).await?;
        if caller.user != self.allowed_user {
            return Err(Status::permission_denied(format!(
                "{} may not call this service, only {} (--controller-user)",
                caller.user, self.allowed_user
            )));
        }
        let missing = self.readiness.missing();
        if !missing.is_empty() {
            return Err(Status::unavailable(format!(
                "the first lists are not complete yet: {}; try again",
                missing.join(", ")
            )));
        }
        let timeout = timeout_of(&request.metadata().clone().into_headers())?;
        let hold = timeout.map_or(HOLD, |timeout| HOLD.min(timeout.saturating_sub(RESPONSE_RESERVE)));
        let span = self.span(&request);
        let question = TrafficQuestion::try_from(request.into_inner())?;
        let verdict = self.answer(&question, hold).await;
        let response = answer::response(&question, verdict, self.shared.clock.now(), &self.metrics);
        if let Some(span) = span {
            span.end(&self.spans, &response, self.shared.clock.now());
        }
        Ok(Response::new(response))
    }
}

impl TrafficHandler {
    /// Starts the span of an answer. Returns `None` if traces are not exported or the caller sends no trace context.
    fn span(&self, request: &Request<HandleRequest>) -> Option<AnswerSpan> {
        let traceparent = request.metadata().get("traceparent").filter(|_| self.spans.are_wanted())?;
        let rpc = ("podward.v1.HookHandler", "Handle");
        AnswerSpan::start(traceparent.to_str().ok()?, rpc, request.get_ref(), self.shared.clock.now())
    }

    /// Returns the answer. Waits up to `hold` until the answer is `Done`.
    async fn answer(&self, question: &TrafficQuestion, hold: Duration) -> TrafficVerdict {
        let start = self.shared.clock.now();
        let end = after(start, hold);
        let mut changes = self.shared.subscribe();
        let mut count = match &self.node_agents {
            _ if question.pod.labels.contains_key(PORT_LABEL) => InFlightCount::Unknown,
            Some(_) => InFlightCount::ConnectionsUnknown,
            None => InFlightCount::NotReported,
        };
        let held = HeldCall::new(&self.metrics);
        self.record_question(question, start);
        loop {
            changes.borrow_and_update();
            let now = self.shared.clock.now();
            let (verdict, progress) = self.evaluate(question, &count, now);
            let TrafficVerdict::Pending { until, .. } = &verdict else {
                self.record_done(question, &progress, now);
                return verdict;
            };
            if held.is_none() || now >= end || self.stop.is_cancelled() {
                return verdict;
            }
            if let (true, Some(since), Some(agents)) =
                (count.is_of_agent(), progress.propagated_since, &self.node_agents)
            {
                let begin = connections_count_from(since).max(now);
                let read = async {
                    tokio::time::sleep(between(now, begin)).await;
                    agents.read(&question.pod, self.wait_times.quiet, between(begin, end)).await
                };
                // Without the connections the answer may become DONE at a certain time.
                let wake = until.map_or(Duration::MAX, |until| between(now, until));
                tokio::select! {
                    read = read => count = read,
                    () = tokio::time::sleep(wake) => {}
                    () = self.stop.cancelled() => {}
                }
                continue;
            }
            let reads_count = count.is_of_pod() && progress.propagated_since.is_some();
            let pause = if reads_count { Some(after(now, WATCH_LAG)) } else { *until };
            let wake = pause.map_or(end, |pause| pause.min(end));
            let interval =
                evaluation_interval(self.metrics.held.get(), self.shared.index.lock().node_count());
            tokio::select! {
                () = tokio::time::sleep(between(now, wake).max(MIN_EVALUATION_INTERVAL)) => {}
                _ = changes.changed() => tokio::time::sleep(interval).await,
                () = self.stop.cancelled() => {}
            }
            if reads_count {
                count = self.in_flight_client.read(&question.pod, self.shared.clock).await;
            }
        }
    }

    fn record_question(&self, question: &TrafficQuestion, now: UnixNanos) {
        match question.phase {
            HookPhase::Prepare => self.drain_tracker.mark_checked(&question.pod.uid, now),
            HookPhase::Complete => self.drain_tracker.mark_added(&question.pod.uid),
            _ => {}
        }
    }

    /// Computes the answer from the current state.
    fn evaluate(
        &self,
        question: &TrafficQuestion,
        count: &InFlightCount,
        now: UnixNanos,
    ) -> (TrafficVerdict, PrepareProgress) {
        let endpoints = || self.shared.index.lock().pod_endpoints(&question.pod);
        let wait_times = &self.wait_times;
        let verdict = match question.phase {
            HookPhase::Prepare => {
                let endpoints = endpoints();
                let nodes = self.node_proxies(&endpoints);
                return self.drain_tracker.with_progress(&question.id, now, |progress| {
                    let verdict = verdict::prepare(&endpoints, &nodes, count, progress, wait_times, now);
                    (verdict, *progress)
                });
            }
            HookPhase::Complete => {
                let endpoints = endpoints();
                verdict::complete(&endpoints, &self.node_proxies(&endpoints), wait_times, now)
            }
            HookPhase::Release => verdict::release(&endpoints(), question.opted_out),
            // POST_CHECK is refused before.
            HookPhase::PreCheck | HookPhase::PostCheck => {
                check::check(&self.shared.index.lock(), &self.drain_tracker, question, wait_times, now)
            }
        };
        (verdict, PrepareProgress::default())
    }

    fn node_proxies(&self, endpoints: &PodEndpoints) -> NodeProxies {
        self.scraper.as_ref().map_or(NodeProxies::NotConfigured, |scraper| {
            let servers = self.shared.index.lock().api_servers(self.shared.clock.now());
            let last = endpoints.changed.iter().flatten().map(|change| change.seen).max();
            if let (Some(canary), Some(last)) =
                (self.canary.as_ref().filter(|_| servers != ApiServers::One), last)
            {
                canary.need(last);
            }
            let received = |node: &str| match &self.canary {
                Some(canary) => canary.received_at(node, last.unwrap_or_default()),
                None => Err("there is no canary (--canary-service)".to_owned()),
            };
            NodeProxies::Read(scraper.proxies(&endpoints.changed, |node| {
                Receipt::new(servers, endpoints.service_changed, || received(node))
            }))
        })
    }

    fn record_done(&self, question: &TrafficQuestion, progress: &PrepareProgress, now: UnixNanos) {
        match question.phase {
            HookPhase::PreCheck => self.drain_tracker.remove_question(&question.id),
            HookPhase::Prepare => {
                self.drain_tracker.mark_drained(&question.pod.uid, now);
                self.drain_tracker.remove_question(&question.id);
                let Some(not_ready) = progress.not_ready_since else { return };
                if let Some(asked_at) = question.asked_at {
                    self.metrics.prepare_took("slices", between(asked_at, not_ready));
                }
                let propagated = progress.propagated_since.unwrap_or(not_ready);
                self.metrics.prepare_took("proxies", between(not_ready, propagated));
                self.metrics.prepare_took("in-flight", between(propagated, now));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_evaluated_less_often_in_large_clusters() {
        let milliseconds = |held, nodes| evaluation_interval(held, nodes).as_millis();
        assert_eq!(milliseconds(200, 3), 10);
        assert_eq!(milliseconds(192, 1000), 192);
        assert_eq!(milliseconds(192, 100_000), 500);
        assert_eq!(milliseconds(-1, usize::MAX), 10);
    }
}
