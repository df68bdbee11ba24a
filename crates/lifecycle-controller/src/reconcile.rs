//! One look at one pod: what the engine says is written, merged into one write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::runtime::controller::Action;
use podward_core::busy::{BusyChecks, Overrun};
use podward_core::keys::{AVAILABLE_CONDITIONS, SERVICE_AVAILABLE};
use podward_core::{
    Consumers, Explanation, LabelChanges, NoRules, Plan, PodView, UnixNanos, plan, without_employers,
};
use tokio::sync::Semaphore;

use crate::busy;
use crate::cached_pod::{CachedPod, PodKey, unix_nanos};
use crate::callbacks::Callbacks;
use crate::deletion::{Deletions, Outcome, Step, is_due};
use crate::error::Error;
use crate::events::Events;
use crate::latest::Latest;
use crate::metrics::Metrics;
use crate::notes;
use crate::rules::{PodRules, Rules};
use crate::services::{dead_services, missing_services};
use crate::story::Told;
use crate::traces::Traces;
use crate::tracker::Tracker;
use crate::waits;
use crate::write::{PodWrite, Writer};

/// Pods that are written at once. Each takes a connection to the API server; more would only queue there.
const AT_ONCE: usize = 32;

/// How long a pod waits at most for hooks to be known before it is looked at again.
const HOOKS_UNKNOWN: Duration = Duration::from_secs(5);

/// Who has a say in what becomes of a pod.
pub(crate) struct Voices {
    pub(crate) hooks: Callbacks,
    pub(crate) deletions: Deletions,
    pub(crate) rules: Rules,
    /// How long operations wait for busy pods.
    pub(crate) max_busy: Duration,
}

/// What every reconciliation shares.
pub(crate) struct Context {
    client: Client,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) latest: Latest,
    pub(crate) tracker: Tracker,
    pub(crate) voices: Voices,
    traces: Traces,
    writer: Writer,
    pub(crate) events: Events,
    slots: Semaphore,
}

impl Context {
    pub(crate) fn new(
        client: Client,
        metrics: Arc<Metrics>,
        events: Events,
        voices: Voices,
        traces: Traces,
    ) -> Self {
        Context {
            writer: Writer::new(client.clone(), metrics.clone()),
            client,
            metrics,
            latest: Latest::default(),
            tracker: Tracker::new(traces.clone()),
            voices,
            traces,
            events,
            slots: Semaphore::new(AT_ONCE),
        }
    }

    /// Nothing is to be done for `pod` any more: it is gone.
    fn forget(&self, pod: &CachedPod) {
        self.voices.hooks.forget(pod.uid());
        self.voices.rules.forget(pod.uid());
        self.voices.deletions.forget(&pod.key());
    }

    fn saw(&self, pod: Arc<CachedPod>) -> Arc<CachedPod> {
        self.latest.wrote(pod.clone());
        self.voices.rules.wrote(&pod);
        self.tracker.observe(&pod, &self.metrics);
        pod
    }
}

/// Brings `watched` as far as it may go.
pub(crate) async fn reconcile(watched: Arc<CachedPod>, context: Arc<Context>) -> Result<Action, Error> {
    let pod = context.latest.newest(watched);
    match bring(pod.clone(), &context).await {
        Err(conflict @ Error::Conflict { .. }) => match overtaken_by(&pod, &context).await? {
            Some(newer) => bring(newer, &context).await,
            None => Err(conflict),
        },
        outcome => outcome,
    }
}

/// The version of `pod` with which somebody was faster than our write, if we go on looking after it.
///
/// Read, as the watch may be seconds behind while much happens: every try until then would be refused.
async fn overtaken_by(pod: &CachedPod, context: &Context) -> Result<Option<Arc<CachedPod>>, Error> {
    let newer = context.writer.get(&pod.key()).await?;
    let is_ours = |newer: &CachedPod| newer.uid() == pod.uid() && newer.view().is_controlled();
    Ok(newer.filter(is_ours).map(|newer| context.saw(Arc::new(newer))))
}

async fn bring(mut pod: Arc<CachedPod>, context: &Context) -> Result<Action, Error> {
    context.tracker.observe(&pod, &context.metrics);
    let now = Timestamp::now();
    let mut again = None;
    let was_due = is_due(&pod);
    let deletion = match context.voices.deletions.carry_out(&pod).await? {
        Outcome::Deleted(event) => {
            context.events.normal(&pod, event);
            return Ok(Action::await_change());
        }
        Outcome::Refused(wait) => {
            again = Some(wait);
            Step::default()
        }
        Outcome::Stays(step) => *step,
        Outcome::NotDue => {
            context
                .voices
                .deletions
                .step(&pod, busy::holds_deletion(&pod, context.voices.max_busy, unix_nanos(now)))
                .await?
        }
    };
    let doubt = pod.ready_is_in_doubt_for(now);
    let rules = context.voices.rules.checks(&pod);
    let decided = decide(&pod, context, &deletion, &rules, doubt.is_some(), unix_nanos(now));
    let Some(Decided { mut plan, explanation, overruns }) = decided else {
        // The pod comes again when hooks are known; this is for the case that it doesn't.
        return Ok(Action::requeue(HOOKS_UNKNOWN));
    };
    context.traces.heard(&pod, &plan.notes, plan.now);
    {
        let work = BusyChecks::new(&pod.view(), context.voices.max_busy, plan.now, &NoRules);
        context.voices.rules.heard(&pod, &rules, &plan, &deletion.checks(&work));
    }
    let waits = [
        repair_expectations(&pod, context, &mut plan).await?,
        doubt.map(SignedDuration::unsigned_abs),
        plan.wake.map(until),
        deletion.wake,
    ];
    again = waits.into_iter().flatten().fold(again, |again, wait| Some(sooner(again, wait)));
    let told = if is_worth_telling(&pod) { context.tracker.time_to_tell(&pod, &explanation) } else { None };
    let has_waited = told.is_some_and(|wait| wait.is_zero()) && context.is_calm();
    if !plan.is_empty() || has_waited {
        if plan.is_empty() {
            context.tracker.told(&pod.key());
        }
        let planned = std::mem::take(&mut plan.annotations).into_iter().map(|(key, text)| (key.into(), text));
        let told_by_rules = rules.details(&pod).into_iter().map(|(key, text)| (key.into(), text));
        let write = PodWrite {
            labels: std::mem::take(&mut plan.labels),
            finalizers: std::mem::take(&mut plan.finalizers),
            annotations: planned.chain(told_by_rules).collect(),
            gate: plan.gate,
            explanation: told.map(|_| &explanation),
            now,
        };
        let was_in_service = is_in_service(&pod);
        pod = in_turn(context, context.writer.write(&pod, write)).await?;
        if is_in_service(&pod) && !was_in_service {
            context.voices.deletions.came_into_service(&pod);
        }
    } else if let Some(wait) = told {
        again = Some(sooner(again, wait.max(Duration::from_millis(500))));
    }
    if is_gone(&pod) {
        context.forget(&pod);
    } else {
        context.voices.hooks.ask(&pod, &plan.questions());
    }
    context.voices.deletions.written(&pod, &deletion).await;
    if let Some(event) = deletion.event {
        context.events.normal(&pod, event);
    }
    let news = context.tracker.news(&pod.key(), &plan.notes);
    notes::tell(&context.events, &context.metrics, &pod, &news, plan.now);
    notes::tell_of_refused(&context.events, &context.metrics, &pod, &plan.refused);
    busy::tell(&context.events, &context.metrics, &context.tracker, &pod, overruns);
    again = waits::tell(context, &pod, &rules).into_iter().chain(again).min();
    if !pod.view().terminating {
        match context.tracker.due_event(&pod) {
            Told::Now(draft) => context.events.normal(&pod, draft),
            Told::Later(wait) => again = Some(sooner(again, wait)),
            Told::Nothing => {}
        }
    }
    // What was due before has been tried just now, and says itself when to try again.
    if !was_due && is_due(&pod) {
        again = Some(Duration::ZERO);
    }
    context.tracker.succeeded(&pod.key());
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// What is made of a pod.
struct Decided {
    /// All changes, those of the deletion too.
    plan: Plan,
    /// What the pod will wait for after that.
    explanation: Explanation,
    /// Operations that go on although the pod is busy.
    overruns: Vec<Overrun>,
}

/// What the core makes of `pod` and of what is to be done about its `deletion`; `None` while hooks aren't known.
fn decide(
    pod: &CachedPod,
    context: &Context,
    deletion: &Step,
    rules: &PodRules,
    ready_is_in_doubt: bool,
    now: UnixNanos,
) -> Option<Decided> {
    let hooks = context.voices.hooks.hooks_for(pod)?;
    let known = context.voices.hooks.known();
    let answers = context.voices.hooks.answers(pod.uid());
    let consumers = Consumers { hooks: &hooks, known: &known, answers: &answers };
    let stored = believed(pod, ready_is_in_doubt);
    let mut labels = stored.labels.clone();
    deletion.changes.labels.apply(&mut labels);
    let view = PodView { labels: &labels, ..stored };
    let work = BusyChecks::new(&view, context.voices.max_busy, now, rules);
    let checks = deletion.checks(&work);
    let mut plan = plan(&view, &consumers, &checks, now);
    let explanation = plan.explain(&view, &checks);
    let overruns = work.record(&view, &mut plan);
    plan.wake = plan.wake.into_iter().chain(work.wake()).min();
    let mut after = labels.clone();
    plan.labels.apply(&mut after);
    plan.labels = LabelChanges::between(stored.labels, &after);
    rules.renew(&mut plan.labels, now);
    let mut annotations: BTreeMap<_, _> = deletion.changes.annotations.clone();
    annotations.extend(plan.annotations);
    plan.annotations = annotations.into_iter().collect();
    if !view.terminating {
        busy::keep_in_step(pod, &mut plan);
    }
    Some(Decided { plan, explanation, overruns })
}

/// Most pods that are deleted are soon gone; what is worth a condition is that somebody holds one.
fn is_worth_telling(pod: &CachedPod) -> bool {
    let view = pod.view();
    !view.terminating || view.protection_finalizers().next().is_some()
}

/// The last finalizer of a terminating pod is gone, and with it the pod, unless its containers still run.
fn is_gone(pod: &CachedPod) -> bool {
    let view = pod.view();
    view.terminating && view.finalizers.is_empty()
}

/// Takes what hooks left on a pod off it that isn't opted in any more, so that nobody looks after it: its finalizers would keep it
/// for ever. A pod that is gone, or is another one by now, is left alone.
pub(crate) async fn let_go_of(key: &PodKey, uid: &str, context: &Context) -> Result<(), Error> {
    let Some(pod) = context.writer.get(key).await? else { return Ok(()) };
    let view = pod.view();
    if pod.uid() != uid || view.is_controlled() {
        return Ok(());
    }
    let now = Timestamp::now();
    let plan = plan(&view, &Consumers::none(), &NoRules, unix_nanos(now));
    if !plan.is_empty() {
        let Plan { labels, finalizers, annotations, gate, .. } = plan;
        let annotations = annotations.into_iter().map(|(key, text)| (key.into(), text)).collect();
        let write = PodWrite { labels, finalizers, annotations, gate, explanation: None, now };
        context.writer.write(&pod, write).await?;
    }
    Ok(())
}

/// After a failure: a conflict or a pod that is gone brings an event of its own, everything else is tried again, ever later,
/// and not by all pods at the same moment.
pub(crate) fn on_error(watched: Arc<CachedPod>, error: &Error, context: Arc<Context>) -> Action {
    context.metrics.failed(error.category());
    let failures = context.tracker.failed(&watched.key());
    let base = match error {
        Error::Gone { .. } => {
            context.forget(&watched);
            return Action::await_change();
        }
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
    PodView { ready: view.ready && (is_in_service(pod) || !ready_is_in_doubt), ..view }
}

fn is_in_service(pod: &CachedPod) -> bool {
    pod.view().labels.contains_key(SERVICE_AVAILABLE)
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

/// Takes Services that will never hold the pod out of what it expects, within the write of `plan`. Gives the time until somebody
/// should look for them.
async fn repair_expectations(
    pod: &CachedPod,
    context: &Context,
    plan: &mut Plan,
) -> Result<Option<Duration>, Error> {
    let view = pod.view();
    let waits = view.ready && !view.terminating && !missing_services(pod).is_empty();
    let Some(due) = context.tracker.service_check_due(pod, waits) else { return Ok(None) };
    let wait = due.saturating_duration_since(Instant::now());
    if !wait.is_zero() {
        return Ok(Some(wait));
    }
    let dead = dead_services(&context.client, pod).await?;
    if dead.is_empty() {
        context.tracker.checked_services(&pod.key(), due);
        return Ok(None);
    }
    // What is found dead is written next. That may be refused, so it counts as done only when there is nothing left to find.
    let dead: Vec<&str> = dead.iter().map(String::as_str).collect();
    let planned = plan.annotations.iter().position(|(key, _)| *key == AVAILABLE_CONDITIONS);
    let text = match planned {
        Some(place) => plan.annotations.swap_remove(place).1,
        None => view.available_conditions.map(ToOwned::to_owned),
    };
    // The text was read to find the Services, so it can't fail here.
    let left = text.as_deref().and_then(|text| without_employers(text, &dead).ok().flatten());
    if planned.is_some() || left.is_some() {
        plan.annotations.push((AVAILABLE_CONDITIONS, left.or(text)));
    }
    Ok(None)
}

fn until(time: UnixNanos) -> Duration {
    let left = time.0.saturating_sub(now().0).max(0);
    // Late rather than early: a look before the deadline would be for nothing.
    Duration::from_nanos(left.unsigned_abs()) + Duration::from_millis(20)
}

fn sooner(one: Option<Duration>, other: Duration) -> Duration {
    one.map_or(other, |one| one.min(other))
}

/// The wall clock, as labels have it.
pub(crate) fn now() -> UnixNanos {
    unix_nanos(Timestamp::now())
}
