//! One look at one pod: what the engine says is written, merged into one write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use kube::runtime::controller::Action;
use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::{Explanation, NoRules, Plan, PodView, UnixNanos, explain, plan};
use tokio::sync::Semaphore;

use crate::cached_pod::CachedPod;
use crate::error::Error;
use crate::events::Events;
use crate::latest::Latest;
use crate::metrics::Metrics;
use crate::services::{missing_services, without_dead_services};
use crate::story::Told;
use crate::tracker::Tracker;
use crate::write::{PodWrite, Writer};

/// Pods that are written at once. Each takes a connection to the API server; more would only queue there.
const AT_ONCE: usize = 32;

/// What every reconciliation shares.
pub(crate) struct Context {
    client: Client,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) latest: Latest,
    pub(crate) tracker: Tracker,
    writer: Writer,
    events: Events,
    slots: Semaphore,
}

impl Context {
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>, events: Events) -> Self {
        Context {
            writer: Writer::new(client.clone(), metrics.clone()),
            client,
            metrics,
            latest: Latest::default(),
            tracker: Tracker::default(),
            events,
            slots: Semaphore::new(AT_ONCE),
        }
    }

    fn saw(&self, pod: Arc<CachedPod>) -> Arc<CachedPod> {
        self.latest.wrote(pod.clone());
        self.tracker.observe(&pod, &self.metrics);
        pod
    }
}

/// Brings `watched` as far as it may go.
pub(crate) async fn reconcile(watched: Arc<CachedPod>, context: Arc<Context>) -> Result<Action, Error> {
    let mut pod = context.latest.newest(watched);
    context.tracker.observe(&pod, &context.metrics);
    if pod.view().terminating {
        return Ok(Action::await_change());
    }
    let doubt = pod.ready_is_in_doubt_for(Timestamp::now());
    let view = believed(&pod, doubt.is_some());
    let plan = plan(&view, &NoRules, now());
    let explanation = explain_after(&view, &plan);
    let (annotation, mut again) = repaired_annotation(&pod, &context).await?;
    if let Some(left) = doubt {
        again = sooner(again, left.unsigned_abs());
    }
    let told = context.tracker.time_to_tell(&pod, &explanation);
    let has_to_write = !plan.is_empty() || annotation.is_some();
    let has_waited = told.is_some_and(|wait| wait.is_zero()) && context.is_calm();
    if has_to_write || has_waited {
        let explanation = told.map(|_| &explanation);
        let write = PodWrite { labels: plan.labels, annotation, gate: plan.gate, explanation };
        pod = in_turn(&context, context.writer.write(&pod, write)).await?;
    } else if let Some(wait) = told {
        again = sooner(again, wait.max(Duration::from_millis(500)));
    }
    match context.tracker.due_event(&pod) {
        Told::Now(draft) => context.events.normal(&pod, draft),
        Told::Later(wait) => again = sooner(again, wait),
        Told::Nothing => {}
    }
    context.tracker.succeeded(&pod.key());
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// After a failure: a conflict or a pod that is gone brings an event of its own, everything else is tried again, ever later,
/// and not by all pods at the same moment.
pub(crate) fn on_error(watched: Arc<CachedPod>, error: &Error, context: Arc<Context>) -> Action {
    context.metrics.failed(error.category());
    let failures = context.tracker.failed(&watched.key());
    let base = match error {
        Error::Gone { .. } => return Action::await_change(),
        // The watch brings the other's write; this is for the case that it doesn't.
        Error::Conflict { .. } => Duration::from_millis(250),
        Error::Refused { .. } => {
            context.events.warning(&watched, "WriteRefused", error.to_string());
            Duration::from_secs(30)
        }
        Error::Api { .. } | Error::TimedOut { .. } => {
            Duration::from_millis(250).saturating_mul(1 << failures.min(7)).min(Duration::from_secs(30))
        }
    };
    Action::requeue(base.mul_f64(0.5 + fastrand::f64()))
}

impl Context {
    /// Whether there is room for writes that only inform.
    fn is_calm(&self) -> bool {
        self.slots.available_permits() > AT_ONCE / 2
    }
}

/// The pod as it is acted on: with its `Ready` in doubt it doesn't become available, but doesn't cease to be either.
fn believed(pod: &CachedPod, ready_is_in_doubt: bool) -> PodView<'_> {
    let view = pod.view();
    let is_available = view.labels.contains_key(SERVICE_AVAILABLE);
    PodView { ready: view.ready && (is_available || !ready_is_in_doubt), ..view }
}

/// What the pod will wait for once `plan` is carried out.
fn explain_after(pod: &PodView<'_>, plan: &Plan) -> Explanation {
    let labels = plan.labels_after(pod);
    explain(&PodView { labels: &labels, gate: plan.gate.or(pod.gate), ..*pod }, &NoRules)
}

async fn in_turn(
    context: &Context,
    write: impl Future<Output = Result<Arc<CachedPod>, Error>>,
) -> Result<Arc<CachedPod>, Error> {
    context.metrics.queue_depth.inc();
    let slot = context.slots.acquire().await;
    context.metrics.queue_depth.dec();
    let written = write.await;
    drop(slot);
    written.map(|pod| context.saw(pod))
}

/// The annotation without Services that will never hold the pod, or the time until somebody should look for them.
async fn repaired_annotation(
    pod: &CachedPod,
    context: &Context,
) -> Result<(Option<(&'static str, String)>, Option<Duration>), Error> {
    let waits = pod.view().ready && !missing_services(pod).is_empty();
    let Some(due) = context.tracker.service_check_due(pod, waits) else { return Ok((None, None)) };
    let wait = due.saturating_duration_since(Instant::now());
    if !wait.is_zero() {
        return Ok((None, Some(wait)));
    }
    let annotation = without_dead_services(&context.client, pod).await?;
    // What is found dead is written next. That may be refused, so it counts as done only when there is nothing left to find.
    if annotation.is_none() {
        context.tracker.checked_services(&pod.key(), due);
    }
    Ok((annotation, None))
}

fn sooner(one: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(one.map_or(other, |one| one.min(other)))
}

/// The wall clock, as labels have it.
pub(crate) fn now() -> UnixNanos {
    UnixNanos(i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX))
}
