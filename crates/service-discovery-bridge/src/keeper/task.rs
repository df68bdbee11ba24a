//! The work for one binding.

mod answers;
mod comparing;
mod ending;
mod events;
mod kruise;
mod pods;
mod putting_back;
mod removals;
mod report;
mod spans;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use podward_api::discovery_binding::{BINDING_FINALIZER, BINDING_FINALIZERS, BindingStatus, HeldRemovals};
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
use super::reported::Reported;
use super::shared::Shared;
use super::status;
use super::tracked::TrackedPod;
use crate::index::{BindingEntry, PodChanges};
use crate::members::Fence;
use crate::model::{Binding, BindingKey, Orphan, RemovalLimit, Suspect};
use crate::sync::RegistryAccess;

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
/// The pause before a binding whose finalizers could not be added or removed is looked at again.
const GUARD_RETRY: Duration = Duration::from_secs(1);
/// What questions wait for meanwhile.
const UNGUARDED: &str = "the finalizers of the DiscoveryBinding are being added";
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
    /// Pods that were tracked, and that the binding does not select any more.
    left: HashSet<String>,
    /// Until when registrations of pods that are not tracked any more may still take effect.
    in_doubt_until: Duration,
    /// Pods whose applications register themselves, and that are out of service because of an operation.
    taken_out: HashSet<String>,
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
    /// Entries of the last comparison that cannot be read, and that may be instances of this binding.
    suspects: Vec<Suspect>,
    /// What the last comparison could not read: some of the entries.
    unreadable: BTreeSet<String>,
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
    /// The hook that is registered, and the task that attaches as it.
    hook: Option<(watch::Sender<podward_proto::v1::Hook>, JoinHandle<()>)>,
    /// The UIDs of the pods whose removal the limit holds.
    held_pods: HashSet<String>,
    /// The UID of the deleted binding whose hook and finalizers were removed. Another one may get its name.
    ended: Option<String>,
    /// The UID of the deleted binding whose hook was removed.
    unhooked: Option<String>,
    /// True once a comparison has read an address: before, nothing is known about which pods are in service.
    is_seen: bool,
    /// From when finalizers that could not be added or removed are tried again.
    guard_due: Duration,
    /// Why they could not be added. The binding may work meanwhile.
    guard_problem: Option<String>,
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
            left: HashSet::new(),
            in_doubt_until: Duration::ZERO,
            taken_out: HashSet::new(),
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
            suspects: Vec::new(),
            unreadable: BTreeSet::new(),
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
            hook: None,
            held_pods: HashSet::new(),
            ended: None,
            unhooked: None,
            is_seen: false,
            guard_due: Duration::ZERO,
            guard_problem: None,
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
        let registry_changed = Arc::clone(&self.registry_changed);
        while !stop.is_cancelled() {
            bindings.borrow_and_update();
            let Some(entry) = self.shared.index.binding(&self.key) else { break };
            if let Some(binding) = &entry.valid {
                let wanted = hook::hook_of(binding);
                match &self.hook {
                    Some((sender, _)) => {
                        sender.send_if_modified(|known| {
                            let changed = *known != wanted;
                            *known = wanted;
                            changed
                        });
                    }
                    // A binding without it may vanish, and leave a hook for which pods would wait for ever.
                    None if !binding.deleting && may_attach(&entry) => {
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
                        self.hook = Some((sender, tokio::spawn(attach)));
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
        if let Some((_, task)) = self.hook {
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
        let is_deleted = entry.object.metadata.deletion_timestamp.is_some();
        let taken_out = entry.valid.as_ref().filter(|binding| is_deleted && self.has_taken_out(binding));
        let has_taken_out = taken_out.is_some();
        let has_own = status::has_finalizer(&entry.object, BINDING_FINALIZER);
        if has_taken_out && self.fence.is_open() {
            // Operations on other pods do not wait for the binding.
            self.end(entry, false).await;
        } else if is_deleted && !has_own && self.fence.is_open() {
            // It has no instances of its own, so its registry is not needed.
            self.miss_pods();
            self.end(entry, true).await;
            return if self.is_ended(entry) { MAX_PAUSE } else { GUARD_RETRY };
        }
        let Some(binding) = entry.valid.clone() else {
            self.miss_pods();
            self.report(entry, None, hook).await;
            // Nothing wakes the task when the Lease is renewed.
            return if is_deleted && !self.fence.is_open() { UNCONFIRMED_RETRY } else { MAX_PAUSE };
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
                if !binding.deleting && self.fence.is_open() {
                    self.guard(entry, binding.mode, false).await;
                }
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
        if !binding.deleting && !self.guard(entry, binding.mode, true).await {
            self.answer_pending(UNGUARDED);
            self.report(entry, Some(&binding), hook).await;
            return GUARD_RETRY;
        }
        let step = self.work(&binding, &access).await;
        if !self.fence.is_open() {
            return UNCONFIRMED_RETRY;
        }
        if binding.deleting {
            self.finish(entry, &binding).await;
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
        // A step may take long if an address does not answer.
        self.renew(binding, access).await;
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
}

/// Returns whether the hook of a binding may be registered: each of the finalizers keeps the binding until its hook is removed.
fn may_attach(entry: &BindingEntry) -> bool {
    BINDING_FINALIZERS.iter().any(|name| status::has_finalizer(&entry.object, name))
}
