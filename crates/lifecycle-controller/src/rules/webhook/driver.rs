//! Makes the calls of one rule. A webhook that is slow or dead delays nobody but itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use podward_api::pod_transition_rule::{FailurePolicy, Parameter, TransitionRuleWebhook};
use podward_core::UnixNanos;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::alarm::Alarm;
use super::answer::{Failure, PollAnswer, PostAnswer};
use super::asking::Subject;
use super::client::{CALL, Endpoint};
use super::machine::{Call, Machine, Next};
use super::metrics::Outcome;
use super::request::{Resource, WebhookRequest, trace_id};
use super::room::Room;
use super::{Consulted, Ears, Pods, RuleId, now, settings};

/// Pods that are read at the same time.
const READS: usize = 16;
/// The longest that is slept at a stretch: the clock may be set meanwhile.
const NAP: Duration = Duration::from_secs(60);

/// What the driver of one rule needs.
pub(super) struct Driver {
    id: RuleId,
    state: Mutex<State>,
    bell: Notify,
    pods: Arc<dyn Pods>,
    ears: Ears,
    room: Arc<Room>,
    stop: CancellationToken,
}

struct State {
    machine: Machine,
    target: Option<Arc<Target>>,
    alarm: Alarm,
}

/// What is asked where, as the rule says.
struct Target {
    webhook: TransitionRuleWebhook,
    stage: Option<String>,
    post: Result<Endpoint, Failure>,
    poll: Option<Result<Endpoint, Failure>>,
}

impl Target {
    fn new(webhook: &TransitionRuleWebhook, stage: Option<&str>) -> Self {
        let client = &webhook.client_config;
        let poll = client.poll.as_ref();
        Self {
            webhook: webhook.clone(),
            stage: stage.map(str::to_owned),
            post: Endpoint::new(&client.url, &client.ca_bundle, CALL),
            poll: poll.map(|poll| Endpoint::new(&poll.url, &poll.ca_bundle, CALL)),
        }
    }

    fn is_of(&self, webhook: &TransitionRuleWebhook, stage: Option<&str>) -> bool {
        self.webhook == *webhook && self.stage.as_deref() == stage
    }
}

enum Ended {
    Post { number: u64, trace: String, answer: Result<PostAnswer, Failure> },
    Poll { number: u64, answer: Result<PollAnswer, Failure> },
}

impl Ended {
    fn failure(&self) -> Option<&Failure> {
        match self {
            Ended::Post { answer, .. } => answer.as_ref().err(),
            Ended::Poll { answer, .. } => answer.as_ref().err(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Ended::Post { answer, .. } => answer.as_ref().map_or_else(Failure::outcome, PostAnswer::outcome),
            Ended::Poll { answer, .. } => answer.as_ref().map_or_else(Failure::outcome, PollAnswer::outcome),
        }
    }
}

impl Driver {
    pub(super) fn new(
        id: RuleId,
        machine: Machine,
        pods: Arc<dyn Pods>,
        ears: Ears,
        room: Arc<Room>,
        stop: CancellationToken,
    ) -> Self {
        let state = Mutex::new(State { machine, target: None, alarm: Alarm::default() });
        Self { id, state, bell: Notify::new(), pods, ears, room, stop }
    }

    /// Takes what the rule and its pods are now, and says what is known of them.
    pub(super) fn consult(
        &self,
        webhook: &TransitionRuleWebhook,
        stage: Option<&str>,
        subjects: &[Subject],
        now: UnixNanos,
    ) -> Consulted {
        let mut state = self.state.lock();
        let State { machine, target, .. } = &mut *state;
        if !target.as_ref().is_some_and(|target| target.is_of(webhook, stage)) {
            *target = Some(Arc::new(Target::new(webhook, stage)));
        }
        machine.configure(settings(webhook), now);
        machine.ask(subjects.to_vec(), now);
        let verdicts = machine.verdicts(subjects);
        Consulted { verdicts, status: machine.status(now) }
    }

    /// Something may be to be done.
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// The rule is gone.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Makes calls until the rule is gone; then those that are under way are cancelled.
    pub(super) async fn run(self: Arc<Self>) {
        let mut running: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
        loop {
            let mut wake_at = None;
            if let Some((next, target)) = self.next() {
                if next.is_news {
                    (self.ears.woken)(&self.id);
                }
                running.extend(next.calls.into_iter().map(|call| self.call(call, target.clone()).boxed()));
                wake_at = next.wake_at;
            }
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(ended) = running.next(), if !running.is_empty() => self.ended(ended),
                () = self.bell.notified() => {}
                () = sleep_until(wake_at) => {}
            }
        }
        // Nobody else counts calls of this rule.
        self.ears.metrics.forget(&self.id);
    }

    /// Nothing, until the rule has been consulted.
    fn next(&self) -> Option<(Next, Arc<Target>)> {
        let mut state = self.state.lock();
        let target = state.target.clone()?;
        Some((state.machine.next(now()), target))
    }

    fn ended(&self, ended: Ended) {
        let failure = ended.failure().map(|failure| (failure.text().to_owned(), failure.is_webhooks()));
        self.ears.metrics.called(&self.id, ended.outcome());
        let alarm = {
            let mut state = self.state.lock();
            match ended {
                Ended::Post { number, trace, answer } => {
                    state.machine.posted(number, &trace, answer, now(), fastrand::f64());
                }
                Ended::Poll { number, answer } => state.machine.polled(number, answer, now()),
            }
            let is_theirs = failure.as_ref().is_some_and(|(_, is_webhooks)| *is_webhooks);
            let policy = state.target.as_ref().map(|target| target.webhook.failure_policy);
            policy.filter(|_| is_theirs && state.alarm.rings(now()))
        };
        if let Some((why, _)) = failure {
            let RuleId { namespace, object, rule, .. } = &self.id;
            tracing::info!(namespace, object, rule, error = why, "a rule's webhook failed");
            if let Some(policy) = alarm {
                (self.ears.failing)(&self.id, &why, policy == FailurePolicy::Ignore);
            }
        }
        (self.ears.woken)(&self.id);
    }

    async fn call(&self, call: Call, target: Arc<Target>) -> Ended {
        match call {
            Call::Post { number, pods } => {
                let trace = trace_id();
                let answer = self.post(&target, &trace, &pods).await;
                Ended::Post { number, trace, answer }
            }
            Call::Poll { number, task } => Ended::Poll { number, answer: self.poll(&target, &task).await },
        }
    }

    async fn post(&self, target: &Target, trace: &str, pods: &[Subject]) -> Result<PostAnswer, Failure> {
        let endpoint = target.post.as_ref().map_err(Clone::clone)?;
        let resources = self.resources(&target.webhook.parameters, pods).await?;
        let request = WebhookRequest {
            trace_id: trace,
            rule_name: &self.id.rule,
            stage: target.stage.as_deref(),
            resources,
        };
        let body = serde_json::to_vec(&request)
            .map_err(|error| Failure::Ours(format!("could not write the request: {error}")))?;
        let _place = self.room.take(endpoint.url()).await;
        let span = self.ears.traces.webhook_call(&self.id, endpoint.url().host(), pods);
        let began = Instant::now();
        let traceparent = span.as_ref().map(|span| span.traceparent());
        let body = self.timed(began, endpoint.post(body, traceparent).await);
        let answer = body
            .and_then(|body| PostAnswer::read(&body)?.for_rule(target.webhook.client_config.poll.is_some()));
        if let Some(span) = span {
            let outcome = answer.as_ref().map_or_else(Failure::outcome, PostAnswer::outcome);
            span.end(outcome.as_str(), None, answer.as_ref().err().map(|failure| failure.text().to_owned()));
        }
        answer
    }

    /// Takes down how long a call took that was answered.
    fn timed<T>(&self, began: Instant, answer: Result<T, Failure>) -> Result<T, Failure> {
        if answer.is_ok() {
            self.ears.metrics.took(&self.id, began.elapsed());
        }
        answer
    }

    async fn poll(&self, target: &Target, task: &str) -> Result<PollAnswer, Failure> {
        let (Some(endpoint), Some(poll)) = (&target.poll, &target.webhook.client_config.poll) else {
            return Err(Failure::Webhook("the rule has no clientConfig.poll".to_owned()));
        };
        let endpoint = endpoint.as_ref().map_err(Clone::clone)?;
        let _place = self.room.take(endpoint.url()).await;
        let began = Instant::now();
        PollAnswer::read(&self.timed(began, endpoint.poll(&poll.raw_query_key, task).await)?)
    }

    /// The pods with their parameters.
    async fn resources<'a>(
        &'a self,
        parameters: &'a [Parameter],
        pods: &'a [Subject],
    ) -> Result<Vec<Resource<'a>>, Failure> {
        let reads: Vec<_> = pods.iter().map(|subject| self.resource(parameters, subject).boxed()).collect();
        stream::iter(reads).buffered(READS).try_collect().await
    }

    /// One that is gone has parameters without values: it will not be asked for again.
    async fn resource<'a>(
        &self,
        parameters: &'a [Parameter],
        subject: &'a Subject,
    ) -> Result<Resource<'a>, Failure> {
        let (namespace, name) = (&self.id.namespace, &subject.pod);
        let pod =
            match parameters.iter().any(Parameter::reads_pod) {
                false => None,
                true => self.pods.json(namespace, name, &subject.uid).await.map_err(|error| {
                    Failure::Ours(format!("could not read pod {namespace}/{name}: {error}"))
                })?,
            };
        let pod = pod.unwrap_or_default();
        let values: BTreeMap<&str, String> =
            parameters.iter().map(|parameter| (parameter.key.as_str(), parameter.evaluate(&pod))).collect();
        Ok(Resource::pod(name, values))
    }
}

async fn sleep_until(at: Option<UnixNanos>) {
    let Some(at) = at else { return std::future::pending().await };
    tokio::time::sleep(at.since(now()).min(NAP)).await;
}
