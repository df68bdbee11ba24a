//! The work for one binding.

mod answers;
mod comparing;
mod ending;
mod events;
mod kruise;
mod pods;
mod removals;
mod report;
mod spans;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use podward_api::discovery_binding::{BindingMode, BindingStatus, HeldRemovals};
use podward_registries::ServiceKey;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::calls::OpenCall;
use super::connection::RegistryConnector;
use super::hook::{self, HookCall, HookState};
use super::kruise_answers::KruiseAnswers;
use super::question_span::QuestionSpan;
use super::registry_watch::RegistryWatch;
use super::renewal;
use super::reported::Reported;
use super::shared::Shared;
use super::tracked::TrackedPod;
use crate::index::{BindingEntry, PodChanges};
use crate::members::Fence;
use crate::model::{Binding, BindingKey, Orphan, RemovalLimit};
use crate::sync::{RegistryAccess, settle};

/// The largest number of pods that are brought into their wanted state in one step, so that questions about other pods do
/// not wait for all of them.
const MAX_STEP: usize = 200;
/// The shortest time between two steps of this size: at most 1,000 changes a second after a loss of the registry's data.
const STEP_INTERVAL: Duration = Duration::from_millis(200);
/// The shortest pause between two passes because pods or bindings have changed, for each pod: a pass looks at all of them.
const PASS_INTERVAL: Duration = Duration::from_micros(2);
const MAX_REST: Duration = Duration::from_millis(50);
/// The longest pause between two passes.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The pause before a registry of which an address did not answer is compared again.
const UNREACHABLE_RETRY: Duration = Duration::from_secs(2);
/// The pause before a replica that could not renew its Lease looks again.
const UNCONFIRMED_RETRY: Duration = Duration::from_millis(500);
/// What questions wait for meanwhile.
const UNCONFIRMED: &str = "the replica of the service-discovery-bridge that is responsible for the binding could not renew its \
     Lease; it waits for the API server, or another replica takes over";
/// The shortest pause between two writes of the status.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// The work for one binding: it answers the questions of its hook, brings the registry into the wanted state, and compares
/// it from time to time. All of it happens one after the other in one task.
pub(crate) struct BindingTask {
    shared: Shared,
    key: BindingKey,
    stop: CancellationToken,
    /// Whether this task may change the registry and answer questions.
    fence: Fence,
    connector: RegistryConnector,
    pod_changes: Arc<PodChanges>,
    tracked: HashMap<String, TrackedPod>,
    /// Pods of `tracked` that do not exist any more, or that the binding does not select any more.
    gone: HashSet<String>,
    calls: Vec<OpenCall>,
    limit: RemovalLimit,
    /// Instances of this binding that no pod should have: those of the last comparison, or, if the registry cannot be read,
    /// those that pods have left.
    orphans: Vec<Orphan>,
    /// When the removal of orphans is tried again.
    removal_due: Duration,
    /// Pods that the hook was asked to remove, and that the binding does not select: since when comparisons find no instance of them.
    released: HashMap<String, Option<Duration>>,
    /// Services that pods of this binding have or had.
    services: HashSet<ServiceKey>,
    kruise: KruiseAnswers,
    /// The numbers of instances in service, as of the last comparison.
    totals: HashMap<ServiceKey, usize>,
    held: Option<HeldRemovals>,
    /// Why orphans could not be removed.
    removal_problem: Option<String>,
    unreachable: Option<String>,
    /// True if an address did not answer in the last comparison.
    was_unreachable: bool,
    rejected: Option<String>,
    /// When the last comparison that read every address began.
    compared: Option<Duration>,
    comparison_due: Duration,
    /// From when a comparison shows whether a binding that is being deleted has instances: lists may be older than a change.
    finish_from: Duration,
    /// The binding that the pods were compared with.
    known: Option<Arc<Binding>>,
    /// True if pods may have changed while the binding could not be used.
    missed_pods: bool,
    renewal_due: Duration,
    status_due: Duration,
    /// The status as it was written last.
    written: Option<BindingStatus>,
    reported: Reported,
    registry_changed: Arc<Notify>,
    registry_watch: Option<RegistryWatch>,
    /// True if the pods may have other services than those that are watched.
    services_due: bool,
}

impl BindingTask {
    /// The task ends when `stop` is cancelled.
    pub(crate) fn new(shared: Shared, key: BindingKey, stop: CancellationToken) -> Self {
        let fence = Fence::new(stop.clone(), Arc::clone(&shared.tenure));
        Self {
            pod_changes: shared.index.subscribe_to_pods(&key.namespace),
            connector: RegistryConnector::new(fence.clone()),
            shared,
            key,
            stop,
            fence,
            tracked: HashMap::new(),
            gone: HashSet::new(),
            calls: Vec::new(),
            limit: RemovalLimit::default(),
            orphans: Vec::new(),
            removal_due: Duration::ZERO,
            released: HashMap::new(),
            services: HashSet::new(),
            kruise: KruiseAnswers::default(),
            totals: HashMap::new(),
            held: None,
            removal_problem: None,
            unreachable: None,
            was_unreachable: false,
            rejected: None,
            compared: None,
            comparison_due: Duration::ZERO,
            finish_from: Duration::ZERO,
            known: None,
            missed_pods: false,
            renewal_due: Duration::ZERO,
            status_due: Duration::ZERO,
            written: None,
            reported: Reported::default(),
            registry_changed: Arc::new(Notify::new()),
            registry_watch: None,
            services_due: false,
        }
    }

    /// Runs until it is stopped, or until the binding is deleted.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        let pods = Arc::clone(&self.pod_changes);
        let mut bindings = self.shared.index.subscribe_to_bindings();
        let (call_sender, mut calls) = mpsc::channel(1024);
        let (hook_state, mut attached) =
            watch::channel(HookState::Detached("it was not tried yet".to_owned()));
        let mut hook: Option<(watch::Sender<podward_proto::v1::Hook>, JoinHandle<()>)> = None;
        let registry_changed = Arc::clone(&self.registry_changed);
        while !stop.is_cancelled() {
            bindings.borrow_and_update();
            let Some(entry) = self.shared.index.binding(&self.key) else { break };
            if let Some(binding) = &entry.valid {
                let wanted = hook::hook_of(binding);
                match &hook {
                    Some((sender, _)) => {
                        sender.send_if_modified(|known| {
                            let changed = *known != wanted;
                            *known = wanted;
                            changed
                        });
                    }
                    None if !binding.deleting => {
                        let (sender, receiver) = watch::channel(wanted);
                        let attach = hook::attach(
                            self.shared.clone(),
                            receiver,
                            call_sender.clone(),
                            hook_state.clone(),
                        );
                        // Questions go to the next replica at once, even if a change is being made.
                        let stop = stop.clone();
                        let attach = async move { _ = stop.run_until_cancelled(attach).await };
                        hook = Some((sender, tokio::spawn(attach)));
                    }
                    None => {}
                }
            }
            let state = attached.borrow_and_update().clone();
            let pause = self.pass(&entry, &state).await;
            let rest = PASS_INTERVAL.saturating_mul(u32::try_from(self.tracked.len()).unwrap_or(u32::MAX));
            let rest = tokio::time::Instant::now() + rest.min(MAX_REST);
            let changed = async {
                tokio::select! {
                    () = pods.changed() => {}
                    _ = bindings.changed() => {}
                }
                tokio::time::sleep_until(rest).await;
            };
            tokio::select! {
                () = changed => {}
                _ = attached.changed() => {}
                call = calls.recv() => self.take(call),
                () = registry_changed.notified() => self.comparison_due = Duration::ZERO,
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {}
            }
            while let Ok(call) = calls.try_recv() {
                self.take(Some(call));
            }
        }
        if let Some((_, task)) = hook {
            task.abort();
        }
    }

    fn take(&mut self, call: Option<HookCall>) {
        let Some(HookCall { id, request, traceparent, answers }) = call else { return };
        let now = self.shared.index.now();
        let wall = podward_kube_util::now();
        let span = QuestionSpan::start(&self.shared.spans, &traceparent, &request, &self.key, wall);
        if let Some(mut call) = OpenCall::new(id, request, answers, now) {
            call.span = span;
            self.calls.push(call);
        }
    }

    /// Does what is due, and returns the pause until something is due again.
    async fn pass(&mut self, entry: &BindingEntry, hook: &HookState) -> Duration {
        self.rejected.clone_from(&entry.problem);
        let Some(binding) = entry.valid.clone() else {
            self.miss_pods();
            self.report(entry, None, hook).await;
            return MAX_PAUSE;
        };
        let access = self.connector.access(&self.shared, &binding).await;
        if self.fence.is_ended() {
            return Duration::ZERO;
        }
        let access = match access {
            Ok(access) => access,
            Err(problem) => {
                let reason = format!("DiscoveryBinding {} cannot be used: {problem}", self.key);
                self.rejected = Some(problem);
                self.miss_pods();
                self.answer_pending(&reason);
                self.report(entry, Some(&binding), hook).await;
                return Duration::from_secs(1);
            }
        };
        self.observe(&binding, &access);
        if !self.fence.is_open() {
            // Another replica may be responsible by now, and know newer pods. Only heartbeats continue.
            self.answer_pending(UNCONFIRMED);
            self.renew(&binding, &access).await;
            return UNCONFIRMED_RETRY;
        }
        let step = self.work(&binding, &access).await;
        if !self.fence.is_open() {
            return UNCONFIRMED_RETRY;
        }
        if binding.deleting {
            self.finish(entry, &binding).await;
        } else if let Err(error) = self.guard(entry, &binding).await {
            tracing::warn!(binding = %self.key, %error, "could not add the finalizer of the binding; trying again");
        }
        self.report(entry, Some(&binding), hook).await;
        step.unwrap_or_else(|| self.pause(&binding, &access))
    }

    /// Compares the registry, changes it, and answers questions, while this replica is responsible for the binding. Returns a
    /// pause if there is more to do.
    async fn work(&mut self, binding: &Binding, access: &RegistryAccess) -> Option<Duration> {
        if self.shared.index.now() >= self.comparison_due {
            self.compare(binding, access).await;
        }
        self.answer(binding, access);
        let step = self.step(binding, access).await;
        self.remove_orphans(binding, access).await;
        if !self.fence.is_open() {
            return None;
        }
        self.renew(binding, access).await;
        self.answer(binding, access);
        self.answer_kruise(binding, access).await;
        self.forget_the_gone(access);
        self.watch_registry(access);
        step
    }

    /// Brings the pods into their wanted state whose next attempt is due. Returns a pause if there are more.
    async fn step(&mut self, binding: &Binding, access: &RegistryAccess) -> Option<Duration> {
        let now = self.shared.index.now();
        let held = self.hold_removals(binding, now);
        let (due, more) = self.due(&held, now);
        let mut uids = Vec::new();
        let mut tasks = Vec::new();
        for uid in due {
            match self
                .allowed(binding, &uid)
                .map(|()| self.tracked.get(&uid).and_then(|it| it.task(binding, access)))
            {
                Ok(Some(task)) => {
                    uids.push(uid);
                    tasks.push(task);
                }
                Ok(None) => {}
                Err(problem) => {
                    if let Some(tracked) = self.tracked.get_mut(&uid) {
                        tracked.record(crate::sync::Outcome::Waits(problem), now);
                    }
                }
            }
        }
        if tasks.is_empty() {
            return None;
        }
        let outcomes = settle(access, &tasks).await;
        let end = self.shared.index.now();
        let mut first = None;
        for (uid, outcome) in uids.iter().zip(outcomes) {
            let result = match &outcome {
                crate::sync::Outcome::Shown { .. } => Some("shown"),
                crate::sync::Outcome::Written(..) => None,
                crate::sync::Outcome::Waits(_) | crate::sync::Outcome::InStaleList(_) => Some("waits"),
                crate::sync::Outcome::Failed(problem) => {
                    first.get_or_insert_with(|| problem.clone());
                    Some("failed")
                }
            };
            if let Some(result) = result {
                self.shared.metrics.changed(result, 1);
            }
            if let Some(tracked) = self.tracked.get_mut(uid) {
                tracked.record(outcome, end);
            }
        }
        if let Some(problem) = first {
            tracing::warn!(binding = %self.key, problem, "the registry does not show what it should; trying again");
        }
        more.then(|| STEP_INTERVAL.saturating_sub(end.saturating_sub(now)))
    }

    /// Returns the pods that are brought into their wanted state in this step, and whether there are more. Pods that questions
    /// are about come first. The others are sorted by service, because services are read as a whole.
    fn due(&self, held: &HashSet<String>, now: Duration) -> (Vec<String>, bool) {
        let asked: HashSet<&str> = self.calls.iter().map(|call| call.pod.uid.as_str()).collect();
        let is_due = |(uid, tracked): &(&String, &TrackedPod)| tracked.is_due(now) && !held.contains(*uid);
        let mut due: Vec<_> = self
            .tracked
            .iter()
            .filter(is_due)
            .map(|(uid, tracked)| {
                let service = tracked.service.as_ref().ok();
                (!asked.contains(uid.as_str()), service, uid)
            })
            .collect();
        let more = due.len() > MAX_STEP;
        if more {
            due.select_nth_unstable(MAX_STEP);
            due.truncate(MAX_STEP);
        }
        (due.into_iter().map(|(_, _, uid)| uid.clone()).collect(), more)
    }

    async fn renew(&mut self, binding: &Binding, access: &RegistryAccess) {
        let now = self.shared.index.now();
        let Some(interval) = heartbeat_interval(binding, access).filter(|_| now >= self.renewal_due) else {
            return;
        };
        self.renewal_due = now + renewal::TICK;
        let (sent, failed) = renewal::renew(binding, access, interval, &mut self.tracked, now).await;
        let count = |number: usize| u64::try_from(number).unwrap_or_default();
        self.shared.metrics.renewed("sent", count(sent));
        self.shared.metrics.renewed("failed", count(failed));
    }

    /// Returns the time until something is due.
    fn pause(&self, binding: &Binding, access: &RegistryAccess) -> Duration {
        let now = self.shared.index.now();
        let attempts = self.tracked.values().filter_map(|tracked| tracked.next_attempt());
        let calls = self.calls.iter().map(|call| call.until);
        let renewal = heartbeat_interval(binding, access).map(|_| self.renewal_due);
        let due =
            attempts.chain(calls).chain(renewal).chain(self.kruise.due).chain([self.comparison_due]).min();
        due.map_or(MAX_PAUSE, |due| due.saturating_sub(now)).clamp(Duration::from_millis(10), MAX_PAUSE)
    }
}

/// Returns the interval of heartbeats. Where the application registers itself, it sends them.
fn heartbeat_interval(binding: &Binding, access: &RegistryAccess) -> Option<Duration> {
    access.capabilities.renewal.filter(|_| binding.mode == BindingMode::Own)
}
