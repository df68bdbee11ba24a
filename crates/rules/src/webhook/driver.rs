//! Makes the calls of one rule. A slow or dead webhook delays only its own rule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use podward_api::pod_transition_rule::{
    Parameter, TransitionRuleWebhook, WebhookFailurePolicy, WebhookStatus,
};
use podward_core::UnixNanos;
use podward_kube_util::now;
use podward_runtime::address_policy::GuardedDialer;
use podward_runtime::retry;
use podward_traces::RuleWebhookCall;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::call_slots::CallSlots;
use super::failure_throttle::FailureThrottle;
use super::machine::{
    NextCalls, RETRY, WaitingPod, WebhookCall, WebhookMachine, WebhookSettings, WebhookVerdict,
};
use super::observers::{PodReads, WebhookObservers};
use super::outcome::RuleWebhookOutcome;
use super::rule_id::WebhookRuleId;
use super::target::WebhookTarget;
use super::wire::{
    AddedPod, MAX_REQUEST, PollAnswer, PostAnswer, RequestBody, WebhookFailure, resource_json, trace_id,
};

/// Pods that are read at the same time for one call. A pod can have more than a megabyte.
const MAX_CONCURRENT_READS: usize = 8;
/// The longest sleep. After it the time is read again, because the clock may have been set.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The driver of one rule.
pub(super) struct WebhookDriver {
    id: WebhookRuleId,
    state: Mutex<DriverState>,
    changed: Notify,
    pods: Arc<PodReads>,
    observers: WebhookObservers,
    dialer: GuardedDialer,
    slots: CallSlots,
    stop: CancellationToken,
}

struct DriverState {
    machine: WebhookMachine,
    /// `None` until the rule is consulted.
    target: Option<Arc<WebhookTarget>>,
    failures: FailureThrottle,
}

/// The names of pods that were not sent. With a text if they fit into no request.
type UnsentPods = BTreeMap<String, Option<String>>;

/// A call that has ended.
enum CompletedCall {
    Post { number: u64, trace: String, unsent: UnsentPods, answer: Result<PostAnswer, WebhookFailure> },
    Poll { number: u64, answer: Result<PollAnswer, WebhookFailure> },
}

impl CompletedCall {
    fn failure(&self) -> Option<&WebhookFailure> {
        match self {
            CompletedCall::Post { answer, .. } => answer.as_ref().err(),
            CompletedCall::Poll { answer, .. } => answer.as_ref().err(),
        }
    }

    fn outcome(&self) -> RuleWebhookOutcome {
        match self {
            CompletedCall::Post { answer, .. } => {
                answer.as_ref().map_or_else(WebhookFailure::outcome, PostAnswer::outcome)
            }
            CompletedCall::Poll { answer, .. } => {
                answer.as_ref().map_or_else(WebhookFailure::outcome, PollAnswer::outcome)
            }
        }
    }
}

impl WebhookDriver {
    pub(super) fn new(
        id: WebhookRuleId,
        machine: WebhookMachine,
        pods: Arc<PodReads>,
        observers: WebhookObservers,
        dialer: GuardedDialer,
        slots: CallSlots,
        stop: CancellationToken,
    ) -> Self {
        let state = Mutex::new(DriverState { machine, target: None, failures: FailureThrottle::default() });
        Self { id, state, changed: Notify::new(), pods, observers, dialer, slots, stop }
    }

    /// Sets the rule and the pods that wait for it. Returns the verdicts on the pods, and the status to store.
    pub(super) fn consult(
        &self,
        webhook: &TransitionRuleWebhook,
        stage: Option<&str>,
        pods: &[WaitingPod],
        now: UnixNanos,
    ) -> (Vec<WebhookVerdict>, WebhookStatus) {
        let mut state = self.state.lock();
        let DriverState { machine, target, .. } = &mut *state;
        if !target.as_ref().is_some_and(|target| target.is_of(webhook, stage)) {
            *target = Some(Arc::new(WebhookTarget::new(webhook, stage, &self.dialer)));
            machine.retry_too_large();
        }
        machine.configure(WebhookSettings::of(webhook), now);
        machine.set_waiting(pods.to_vec(), now);
        (machine.verdicts(pods), machine.status(now))
    }

    /// Makes the driver look for calls to make.
    pub(super) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Ends the driver, because the rule is gone.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Makes calls until the rule is gone; then cancels those in flight.
    pub(super) async fn run(self: Arc<Self>) {
        let mut running: FuturesUnordered<BoxFuture<'_, CompletedCall>> = FuturesUnordered::new();
        loop {
            let mut wake_at = None;
            if let Some((next, target)) = self.next_calls() {
                if next.is_news {
                    (self.observers.changed)(&self.id);
                }
                running.extend(next.calls.into_iter().map(|call| self.call(call, target.clone()).boxed()));
                wake_at = next.wake_at;
            }
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(completed) = running.next(), if !running.is_empty() => self.completed(completed),
                () = self.changed.notified() => {}
                () = sleep_until(wake_at) => {}
            }
        }
        // No other driver counts calls of this rule.
        self.observers.metrics.forget(&self.id);
    }

    /// Returns the calls to make; `None` until the rule has been consulted.
    fn next_calls(&self) -> Option<(NextCalls, Arc<WebhookTarget>)> {
        let mut state = self.state.lock();
        let target = state.target.clone()?;
        Some((state.machine.next_calls(now()), target))
    }

    fn completed(&self, call: CompletedCall) {
        let failure = call.failure().cloned();
        self.observers.metrics.called(&self.id, call.outcome());
        let is_too_large = failure == Some(WebhookFailure::TooLarge);
        let (is_news, policy_to_report) = {
            let mut state = self.state.lock();
            let is_news = match call {
                CompletedCall::Post { number, trace, unsent, answer } => {
                    let delay_after = |failures| retry::delay_after(RETRY, failures);
                    let is_news = state.machine.leave_out(number, &unsent, now());
                    state.machine.post_answered(number, &trace, answer, now(), delay_after);
                    is_news || !is_too_large
                }
                CompletedCall::Poll { number, answer } => {
                    state.machine.poll_answered(number, answer, now());
                    true
                }
            };
            let has_webhook_failed = failure.as_ref().is_some_and(WebhookFailure::is_of_webhook);
            let policy = state.target.as_ref().map(|target| target.webhook.failure_policy);
            (is_news, policy.filter(|_| has_webhook_failed && state.failures.is_due(now())))
        };
        if !is_news {
            return;
        }
        let WebhookRuleId { namespace, object, rule, .. } = &self.id;
        if is_too_large {
            tracing::info!(
                namespace,
                object,
                rule,
                "the pods that wait for the webhook of a rule are too large for a request"
            );
        } else if let Some(failure) = failure {
            let (error, reason) = (failure.text(), failure.reason_to_log());
            tracing::info!(namespace, object, rule, error, reason, "the webhook of a rule failed");
            if let Some(policy) = policy_to_report {
                (self.observers.failing)(&self.id, error, policy == WebhookFailurePolicy::Ignore);
            }
        }
        (self.observers.changed)(&self.id);
    }

    async fn call(&self, call: WebhookCall, target: Arc<WebhookTarget>) -> CompletedCall {
        match call {
            WebhookCall::Post { number, pods } => {
                let (trace, mut unsent) = (trace_id(), UnsentPods::new());
                let answer = self.post(&target, &trace, &pods, &mut unsent).await;
                CompletedCall::Post { number, trace, unsent, answer }
            }
            WebhookCall::Poll { number, task } => {
                CompletedCall::Poll { number, answer: self.poll(&target, &task).await }
            }
        }
    }

    /// Sends the first of `pods` that fit into a request. Adds the others to `unsent`.
    async fn post(
        &self,
        target: &WebhookTarget,
        trace: &str,
        pods: &[WaitingPod],
        unsent: &mut UnsentPods,
    ) -> Result<PostAnswer, WebhookFailure> {
        let endpoint = target.post.as_ref().map_err(Clone::clone)?;
        // Before the request is put together: the requests of calls that wait would need much memory.
        let _slot = self.slots.take(&self.id.namespace, endpoint.url()).await;
        let body = self.request(target, trace, pods, unsent).await?;
        let sent = pods.iter().filter(|pod| !unsent.contains_key(&pod.name));
        let operations: Vec<_> = sent.map(|pod| (pod.uid.as_str(), pod.operation.as_str())).collect();
        let span = self.observers.traces.webhook_call(&RuleWebhookCall {
            rule: format!("{}/{}", self.id.object, self.id.rule),
            host: endpoint.url().host(),
            operations: &operations,
        });
        let began = Instant::now();
        let traceparent = span.as_ref().map(|span| span.traceparent());
        let response = self.timed(began, endpoint.post(body, traceparent).await);
        let polls = target.webhook.client_config.poll.is_some();
        let answer =
            response.and_then(|response| response.read(|body| PostAnswer::read(body)?.for_rule(polls)));
        if let Some(span) = span {
            let outcome = answer.as_ref().map_or_else(WebhookFailure::outcome, PostAnswer::outcome);
            span.end(outcome.as_str(), None, answer.as_ref().err().map(|failure| failure.text().to_owned()));
        }
        answer
    }

    /// Adds the duration of an answered call to the metrics.
    fn timed<T>(&self, began: Instant, answer: Result<T, WebhookFailure>) -> Result<T, WebhookFailure> {
        if answer.is_ok() {
            self.observers.metrics.took(&self.id, began.elapsed());
        }
        answer
    }

    async fn poll(&self, target: &WebhookTarget, task: &str) -> Result<PollAnswer, WebhookFailure> {
        let (Some(endpoint), Some(poll)) = (&target.poll, &target.webhook.client_config.poll) else {
            return Err(WebhookFailure::Webhook("the rule has no clientConfig.poll".to_owned()));
        };
        let endpoint = endpoint.as_ref().map_err(Clone::clone)?;
        let _slot = self.slots.take(&self.id.namespace, endpoint.url()).await;
        let began = Instant::now();
        self.timed(began, endpoint.poll(&poll.raw_query_key, task).await)?.read(PollAnswer::read)
    }

    /// Returns a request with the first of `pods` that fit, and adds the others to `unsent`.
    async fn request(
        &self,
        target: &WebhookTarget,
        trace: &str,
        pods: &[WaitingPod],
        unsent: &mut UnsentPods,
    ) -> Result<Vec<u8>, WebhookFailure> {
        let mut body = RequestBody::new(trace, &self.id.rule, target.stage.as_deref()).map_err(unwritten)?;
        let parameters = &target.webhook.parameters;
        let resources: Vec<_> = pods.iter().map(|pod| self.resource(parameters, pod).boxed()).collect();
        let mut resources = stream::iter(resources).buffered(MAX_CONCURRENT_READS);
        for (place, pod) in pods.iter().enumerate() {
            let Some(resource) = resources.try_next().await? else { break };
            match resource.map_or(AddedPod::TooLarge, |resource| body.add(&resource)) {
                AddedPod::Added => {}
                AddedPod::TooLarge => {
                    let text = format!(
                        "the parameters of pod {} have more than {MAX_REQUEST} bytes, the limit of a request; let the \
                         rule's parameters name smaller fields, such as one annotation",
                        pod.name
                    );
                    unsent.insert(pod.name.clone(), Some(text));
                }
                AddedPod::NoRoom => {
                    unsent.extend(pods[place..].iter().map(|pod| (pod.name.clone(), None)));
                    break;
                }
            }
        }
        match body.is_empty() {
            true => Err(WebhookFailure::TooLarge),
            false => Ok(body.finish()),
        }
    }

    /// Returns the JSON of a pod with its parameters; `None` if it is too large. The parameters of a pod that is gone
    /// have no values; it is not sent again.
    async fn resource(
        &self,
        parameters: &[Parameter],
        waiting: &WaitingPod,
    ) -> Result<Option<Vec<u8>>, WebhookFailure> {
        let (namespace, name) = (&self.id.namespace, &waiting.name);
        if !parameters.iter().any(Parameter::reads_pod) {
            return resource_json(name, parameters, &Value::Null).map_err(unwritten);
        }
        let _permit = self.pods.permits.acquire().await;
        let pod = self.pods.reader.json(namespace, name, &waiting.uid).await.map_err(|error| {
            WebhookFailure::Local(format!("could not read pod {namespace}/{name}: {error}"))
        })?;
        resource_json(name, parameters, &pod.unwrap_or_default()).map_err(unwritten)
    }
}

fn unwritten(error: serde_json::Error) -> WebhookFailure {
    WebhookFailure::Local(format!("could not write the request: {error}"))
}

/// Sleeps until `at`, or forever.
async fn sleep_until(at: Option<UnixNanos>) {
    let Some(at) = at else { return std::future::pending().await };
    tokio::time::sleep(at.since(now()).min(LONGEST_SLEEP)).await;
}
