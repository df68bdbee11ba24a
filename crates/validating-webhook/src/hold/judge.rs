//! The decision about a delete or an eviction, and its side effects.

mod evictions;

use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use kube::Client;
use parking_lot::Mutex;
use podward_core::Pod;
use podward_core::deletion::hold::{
    AllowReason, HeldEvictions, HoldFacts, HoldVerdict, RecordOutcome, answer, hold, is_left_to_clone_set,
};
use podward_core::deletion::request::DeletionRequest;
use podward_core::keys::BREAK_GLASS;
use podward_kube_util::now;
use podward_runtime::WebhookSetup;
use podward_runtime::admission::{AdmissionDecision, AdmissionResponse};
use tonic::Code;

use super::cluster_state::{ClusterState, NodeAndNamespace};
use super::delete_waiter::{DeleteWaiter, WaitEnd};
use super::incoming_deletion::IncomingDeletion;
use super::metrics::{HoldMetrics, HoldResult};
use super::repeat_limit::RepeatLimit;
use super::request_recorder::{RecordingResult, RequestRecorder, record};
use crate::pod_access::PodAccess;
use crate::pod_events::{EventPod, PodEvents};

/// This controller deletes the contents of a namespace only when the namespace is being deleted.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// How deletes and evictions are held.
#[derive(Clone, Copy, Debug)]
pub struct HoldOptions {
    /// For how long a node must not be Ready until its pods are no longer held.
    pub unreachable_limit: Duration,
    /// How long the answer to a delete waits until the pod is drained.
    pub wait: Duration,
}

/// Decides about deletes and evictions.
pub(super) struct DeletionJudge {
    options: HoldOptions,
    cluster: ClusterState,
    recorder: Box<dyn RequestRecorder>,
    events: PodEvents,
    access: PodAccess,
    metrics: HoldMetrics,
    waiter: DeleteWaiter,
    repeats: RepeatLimit,
    /// Best effort: another replica of this webhook does not know them. An API server sends its reviews over one
    /// connection, so that callers who repeat a request reach the same replica. The lifecycle-controller does not see
    /// repeated requests.
    held_evictions: Mutex<HeldEvictions>,
}

impl fmt::Debug for DeletionJudge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, cluster, .. } = self;
        f.debug_struct("DeletionJudge")
            .field("options", options)
            .field("cluster", cluster)
            .finish_non_exhaustive()
    }
}

impl DeletionJudge {
    /// Starts the watches and registers the metrics.
    pub(super) fn new(
        options: HoldOptions,
        client: Client,
        recorder: Box<dyn RequestRecorder>,
        setup: &mut WebhookSetup,
    ) -> Self {
        let metrics = HoldMetrics::default();
        metrics.register(&mut setup.registry);
        Self {
            options,
            events: PodEvents::new(client.clone(), &mut setup.registry),
            access: PodAccess::new(client.clone()),
            cluster: ClusterState::follow(client, setup),
            recorder,
            metrics,
            waiter: DeleteWaiter::new(options.wait, setup.stop.clone()),
            repeats: RepeatLimit::new(setup.stop.clone()),
            held_evictions: Mutex::default(),
        }
    }

    /// Returns the sender of events.
    pub(super) fn events(&self) -> &PodEvents {
        &self.events
    }

    /// Returns what asks about the rights of users.
    pub(super) fn access(&self) -> &PodAccess {
        &self.access
    }

    /// Decides about the deletion of `pod`.
    pub(super) fn judge<'a>(&'a self, pod: &'a Pod, deletion: IncomingDeletion<'a>) -> AdmissionDecision<'a> {
        let mut known = self.cluster.cached(pod, deletion.namespace);
        if deletion.user == NAMESPACE_CONTROLLER && known.namespace_terminating == Some(false) {
            // The cache may be out of date, so the namespace must be read.
            known.namespace_terminating = None;
        }
        match self.verdict(pod, deletion, known) {
            HoldVerdict::Allow { reason: AllowReason::BreakGlass, words } => {
                return AdmissionDecision::defer(move |deadline| {
                    self.break_glass(pod, deletion, known, words, deadline)
                });
            }
            HoldVerdict::Allow { reason, words } => return self.allowed(pod, deletion, reason, words).into(),
            HoldVerdict::Hold => {}
        }
        if let NodeAndNamespace { node: Some(_), namespace_terminating: Some(_) } = known
            && !self.waiter.applies_to(deletion)
            && let Some(recorded) = deletion.recorded_on(pod)
        {
            return self.hold_again(pod, deletion, &recorded);
        }
        AdmissionDecision::defer(move |deadline| self.look_up_and_hold(pod, deletion, known, deadline))
    }

    /// Holds a deletion that repeats `recorded`. The answer to a controller that repeats many may be delayed.
    fn hold_again<'a>(
        &'a self,
        pod: &'a Pod,
        deletion: IncomingDeletion<'a>,
        recorded: &DeletionRequest,
    ) -> AdmissionDecision<'a> {
        let response = self.held(pod, deletion, HoldResult::Known, RecordOutcome::Recorded(recorded));
        let workload = pod.controller().filter(|_| recorded.by_workload);
        match workload.and_then(|owner| self.repeats.count(&owner.uid, Instant::now())) {
            Some(delay) => {
                self.metrics.count_delayed();
                AdmissionDecision::defer(async move |deadline| {
                    delay.pass(deadline).await;
                    response
                })
            }
            None => response.into(),
        }
    }

    /// Reads what is missing in `known`. Then allows the deletion, or records it and holds it.
    async fn look_up_and_hold(
        &self,
        pod: &Pod,
        deletion: IncomingDeletion<'_>,
        known: NodeAndNamespace,
        deadline: Instant,
    ) -> AdmissionResponse {
        let known = self.cluster.look_up_missing(known, pod, deletion.namespace, deadline).await;
        if let Some(response) = self.allow(pod, deletion, known) {
            return response;
        }
        let (result, outcome) = match deletion.recorded_on(pod) {
            Some(request) => {
                (HoldResult::Known, RecordingResult::Recorded { request: Box::new(request), operation: None })
            }
            None => {
                let start = Instant::now();
                let request = deletion.deletion_request();
                let outcome =
                    record(self.recorder.as_ref(), pod, deletion.requester, request, deadline).await;
                let (result, failure) = match &outcome {
                    RecordingResult::Recorded { .. } => (HoldResult::Recorded, None),
                    RecordingResult::Refused(_) => (HoldResult::Refused, None),
                    RecordingResult::Forbidden(_) => (HoldResult::Forbidden, None),
                    RecordingResult::Failed { code, .. } => (HoldResult::Unrecorded, Some(*code)),
                };
                self.metrics.observe_call(start.elapsed(), failure);
                match outcome {
                    // The label on the pod is the request. The call only renews its room in the disruption budget.
                    RecordingResult::Recorded { .. } | RecordingResult::Failed { .. }
                        if is_left_to_clone_set(pod) =>
                    {
                        let request = Box::new(deletion.deletion_request());
                        (HoldResult::Known, RecordingResult::Recorded { request, operation: None })
                    }
                    outcome => (result, outcome),
                }
            }
        };
        match outcome {
            RecordingResult::Recorded { request, operation } => {
                let waited = match self.waiter.applies_to(deletion) {
                    true => self.wait(pod, deletion, known, deadline).await,
                    false => None,
                };
                let held = || self.held(pod, deletion, result, RecordOutcome::Recorded(&request));
                AdmissionResponse { changed_operation: operation, ..waited.unwrap_or_else(held) }
            }
            RecordingResult::Refused(why) => self.held(pod, deletion, result, RecordOutcome::Refused(&why)),
            RecordingResult::Forbidden(why) => {
                self.metrics.count_held(deletion.kind, result);
                AdmissionResponse::forbid(format!(
                    "the {} of pod {}/{} was not recorded: {why}",
                    deletion.kind.noun(),
                    deletion.namespace,
                    pod.metadata.name
                ))
            }
            RecordingResult::Failed { why, .. } => {
                self.held(pod, deletion, result, RecordOutcome::Failed(&why))
            }
        }
    }

    /// Waits until the deletion is allowed. Returns `None` if the time is not sufficient.
    async fn wait(
        &self,
        pod: &Pod,
        deletion: IncomingDeletion<'_>,
        known: NodeAndNamespace,
        deadline: Instant,
    ) -> Option<AdmissionResponse> {
        let permit = self.waiter.permit()?;
        let start = Instant::now();
        let check = |pod: &Pod| self.allow(pod, deletion, known);
        let end = self.waiter.wait(permit, &self.cluster, pod, deletion.namespace, deadline, check).await;
        self.metrics.observe_wait(start.elapsed());
        match end? {
            WaitEnd::Checked(response) => Some(response),
            WaitEnd::Gone => Some(self.gone(deletion)),
        }
    }

    /// Allows a deletion because of the annotation for break-glass, if the user has the right to use it. It is checked
    /// here too, because the annotation may have been written while this webhook was down, or in the status of the pod.
    /// For other users, the annotation does not count.
    async fn break_glass(
        &self,
        pod: &Pod,
        deletion: IncomingDeletion<'_>,
        known: NodeAndNamespace,
        words: String,
        deadline: Instant,
    ) -> AdmissionResponse {
        let (user, name) = (deletion.requester.identity(), &pod.metadata.name);
        match self.access.may_break_glass(&user, deletion.namespace, name, deadline).await {
            Ok(()) => self.allowed(pod, deletion, AllowReason::BreakGlass, words),
            Err(status) if status.code() == Code::PermissionDenied => {
                let mut pod = pod.clone();
                pod.metadata.annotations.break_glass = None;
                let mut response = self.look_up_and_hold(&pod, deletion, known, deadline).await;
                if !response.allowed {
                    let _ = write!(response.message, "; {BREAK_GLASS} does not count: {}", status.message());
                }
                response
            }
            Err(status) => {
                self.metrics.count_held(deletion.kind, HoldResult::Unseen);
                AdmissionResponse::try_again(format!(
                    "Podward could not check whether the {} of pod {}/{name} may use the annotation {BREAK_GLASS}: {}; \
                     nothing was changed, try again",
                    deletion.kind.noun(),
                    deletion.namespace,
                    status.message()
                ))
            }
        }
    }

    fn verdict(&self, pod: &Pod, deletion: IncomingDeletion<'_>, known: NodeAndNamespace) -> HoldVerdict {
        let facts = HoldFacts {
            now: now(),
            node: known.node.unwrap_or_default(),
            unreachable_limit: self.options.unreachable_limit,
            namespace_terminating: known.namespace_terminating.unwrap_or_default(),
        };
        hold(pod, &deletion.attempt(), &facts)
    }

    /// Returns the response to a deletion that is allowed without break-glass, and reports it. Returns `None` if the
    /// deletion is held.
    fn allow(
        &self,
        pod: &Pod,
        deletion: IncomingDeletion<'_>,
        known: NodeAndNamespace,
    ) -> Option<AdmissionResponse> {
        match self.verdict(pod, deletion, known) {
            // The next attempt of the caller is checked for the right to it.
            HoldVerdict::Allow { reason: AllowReason::BreakGlass, .. } | HoldVerdict::Hold => None,
            HoldVerdict::Allow { reason, words } => Some(self.allowed(pod, deletion, reason, words)),
        }
    }

    /// Returns the response to a deletion that is allowed for `reason`, and reports it.
    fn allowed(
        &self,
        pod: &Pod,
        deletion: IncomingDeletion<'_>,
        reason: AllowReason,
        words: String,
    ) -> AdmissionResponse {
        self.metrics.count_allowed(deletion.kind, reason);
        if !reason.is_on_record() {
            return AdmissionResponse::allow();
        }
        let metadata = &pod.metadata;
        let subject = EventPod { namespace: deletion.namespace, name: &metadata.name, uid: &metadata.uid };
        let event = if reason == AllowReason::BreakGlass { "BreakGlass" } else { "NotHeld" };
        self.events.warn(subject, event, ("Delete", deletion.user), &words);
        let mut response = AdmissionResponse::allow();
        response.audit_annotations.insert("not-held", words.clone());
        response.warn([words])
    }

    /// Returns the response to a deletion that is held.
    fn held(
        &self,
        pod: &Pod,
        deletion: IncomingDeletion<'_>,
        result: HoldResult,
        outcome: RecordOutcome<'_>,
    ) -> AdmissionResponse {
        self.metrics.count_held(deletion.kind, result);
        if let RecordOutcome::Recorded(_) = outcome
            && let Some(caller) = deletion.caller_by_name(&pod.metadata.name)
        {
            self.held_evictions.lock().remember(caller, &pod.metadata.uid, now());
        }
        // Callers retry every few seconds. The log already contains the first attempt.
        let is_repeated = result == HoldResult::Known;
        AdmissionResponse { is_repeated, ..AdmissionResponse::try_again(answer(pod, deletion.kind, outcome)) }
    }

    /// Returns the response for a pod that does not exist any more: the API server reports that itself.
    fn gone(&self, deletion: IncomingDeletion<'_>) -> AdmissionResponse {
        self.metrics.count_gone(deletion.kind);
        AdmissionResponse::allow()
    }
}
