//! The leader's decisions about deletions: the functions of the core in the order in which the crate `deletion` calls
//! them, without owners and without a check of the requester's rights.

use std::time::Duration;

use podward_core::deletion::RENEW_AFTER;
use podward_core::deletion::request::{
    DeletionIntent, DeletionKind, DeletionRequest, DeletionRequestChanges, begin, cancel, intent, postpone,
    record, replace,
};
use podward_core::keys::{DELETE_OPERATION, Stage, TO_DELETE};
use podward_core::{Operations, UnixNanos, may_operate};

use super::fault::Fault;
use super::object::Object;
use super::server::{NODE_LIMIT, Server};

/// The time for which a pod stays out of service while the API server refuses its eviction.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(30);
const POSTPONEMENT: i64 = 40_000_000_000;

/// What to do about the deletion of a pod.
#[derive(Debug)]
pub(crate) enum DeletionTurn {
    /// Delete or evict it.
    Execute(DeletionKind),
    /// Merge this into the write.
    Step(DeletionStep),
}

#[derive(Debug, Default)]
pub(crate) struct DeletionStep {
    pub(crate) changes: DeletionRequestChanges,
    /// Why the operation stays in its pre-check.
    pub(crate) wait: Option<String>,
    pub(crate) wake: Option<UnixNanos>,
}

impl DeletionStep {
    fn change(changes: DeletionRequestChanges) -> Self {
        DeletionStep { changes, ..DeletionStep::default() }
    }

    fn wake_after(server: &Server, time: Duration) -> Option<UnixNanos> {
        Some(UnixNanos(server.clock + i64::try_from(time.as_nanos()).unwrap()))
    }
}

/// Decides about the deletion of `pod`. Of `server`, the node, the budget and the time are read.
pub(crate) fn decide(pod: &Object, server: &Server) -> DeletionTurn {
    match execute(pod, server) {
        Some(turn) => turn,
        None => DeletionTurn::Step(step(pod, server)),
    }
}

fn execute(pod: &Object, server: &Server) -> Option<DeletionTurn> {
    let request = underway_request(pod)?;
    let now = server.now();
    let operations = Operations::parse(&pod.pod.labels);
    let operation = operations.get(DELETE_OPERATION)?;
    let is_due = operation.has(Stage::Operate) && operation.has(Stage::Operating) && may_operate(&pod.view());
    let is_lost = server.node.lost_in(NODE_LIMIT, now).is_some_and(|left| left.is_zero());
    if !is_due && !is_lost {
        return None;
    }
    if request.kind == DeletionKind::Delete || server.has_room {
        return Some(DeletionTurn::Execute(request.kind));
    }
    let granted = pod.pod.labels.get(&Stage::Operate.key(DELETE_OPERATION));
    let since = granted.and_then(|value| value.parse().ok()).unwrap_or(request.requested_at);
    let waited = now.since(UnixNanos(since));
    Some(DeletionTurn::Step(if waited < EVICTION_TIMEOUT {
        DeletionStep {
            wake: DeletionStep::wake_after(server, EVICTION_TIMEOUT - waited),
            ..DeletionStep::default()
        }
    } else {
        postponed(pod, &request, now)
    }))
}

fn step(pod: &Object, server: &Server) -> DeletionStep {
    let view = pod.view();
    if !view.is_controlled() || view.terminating {
        return DeletionStep::default();
    }
    let request = pod.request();
    let marks = pod.marks(request.as_ref());
    match (intent(&marks), &request) {
        (DeletionIntent::Begin, _) => {
            DeletionStep::change(record(&pod.marks(None), request_by_label(pod), false))
        }
        (DeletionIntent::Cancelled(_), _) => DeletionStep::change(cancel(&marks)),
        (DeletionIntent::Postponed(until), Some(request)) => resume(pod, request, until, server),
        (DeletionIntent::Underway, Some(request)) => {
            let mut step = underway(pod, request, server);
            let lost = server.node.lost_in(NODE_LIMIT, server.now());
            let lost = lost.and_then(|left| DeletionStep::wake_after(server, left));
            step.wake = step.wake.into_iter().chain(lost).min();
            step
        }
        _ => DeletionStep::default(),
    }
}

/// Only an eviction needs room, and only while the pod is in service.
fn underway(pod: &Object, request: &DeletionRequest, server: &Server) -> DeletionStep {
    let operations = Operations::parse(&pod.pod.labels);
    let has = |stage| operations.get(DELETE_OPERATION).is_some_and(|operation| operation.has(stage));
    let passed = has(Stage::PreChecked);
    if has(Stage::Operate) || request.kind != DeletionKind::Evict || (passed && !pod.pod.ready) {
        return DeletionStep::default();
    }
    let now = server.now();
    let left = request.reserved_at.and_then(|at| RENEW_AFTER.checked_sub(now.since(UnixNanos(at))));
    if let Some(left) = left.filter(|left| !left.is_zero()) {
        let wake = DeletionStep::wake_after(server, left);
        return DeletionStep { wake, ..DeletionStep::default() };
    }
    match server.reserve(pod) {
        Ok(None) => return DeletionStep::default(),
        Ok(Some(since)) => {
            let request = DeletionRequest { reserved_at: Some(since.0), ..request.clone() };
            return DeletionStep::change(replace(&request));
        }
        Err(_) if passed => return postponed(pod, request, now),
        Err(_) => {}
    }
    let wait = Some("there is no room in the budget".to_owned());
    DeletionStep {
        wait,
        wake: DeletionStep::wake_after(server, Duration::from_secs(30)),
        ..DeletionStep::default()
    }
}

fn resume(pod: &Object, request: &DeletionRequest, until: UnixNanos, server: &Server) -> DeletionStep {
    let now = server.now();
    let left = until.since(now);
    if server.fault == Some(Fault::ForgetsPostponed) {
        return DeletionStep::default();
    }
    if !left.is_zero() {
        return DeletionStep { wake: DeletionStep::wake_after(server, left), ..DeletionStep::default() };
    }
    let mut request = DeletionRequest { not_before: None, ..request.clone() };
    if request.kind == DeletionKind::Evict {
        let Ok(since) = server.reserve(pod) else {
            let wake = DeletionStep::wake_after(server, Duration::from_secs(30));
            return DeletionStep { wake, ..DeletionStep::default() };
        };
        request.reserved_at = since.map(|since| since.0);
    }
    let mut changes = begin(&pod.marks(Some(&request)), now);
    changes.annotations.extend(replace(&request).annotations);
    DeletionStep::change(changes)
}

fn postponed(pod: &Object, request: &DeletionRequest, now: UnixNanos) -> DeletionStep {
    let until = UnixNanos(now.0 + POSTPONEMENT);
    let changes = postpone(&pod.marks(Some(request)), request, until);
    DeletionStep { changes, wait: None, wake: Some(until) }
}

fn request_by_label(pod: &Object) -> DeletionRequest {
    let at = pod.pod.labels.get(TO_DELETE).and_then(|value| value.parse().ok()).unwrap_or_default();
    DeletionRequest::new(DeletionKind::Delete, &label_requester(&pod.uid), UnixNanos(at))
}

/// The name under which a request by label is recorded here.
pub(crate) fn label_requester(uid: &str) -> String {
    format!("label of {uid}")
}

/// Returns the deletion request if its operation has begun and the pod is not terminating.
fn underway_request(pod: &Object) -> Option<DeletionRequest> {
    let request = pod.request().filter(|_| pod.view().is_controlled() && !pod.pod.terminating)?;
    (intent(&pod.marks(Some(&request))) == DeletionIntent::Underway).then_some(request)
}
