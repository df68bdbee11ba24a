//! The decision whether a delete or an eviction of a pod is allowed, or held until all consumers have released the pod.

mod answer;
mod clone_set;
mod eviction_target;

use std::time::Duration;

use crate::model::deletion_request::{DeletionKind, JointState};
use crate::model::keys::{DELETE_OPERATION, PREPARING_TO_DELETE, SERVICE_READY_GATE, Stage};
use crate::model::operations::Operations;
use crate::model::pod::Pod;
use crate::model::time::UnixNanos;
use crate::protocol::gate::may_operate;

pub use answer::{BUDGET_REFUSAL, RecordOutcome, answer};
pub use clone_set::is_left_to_clone_set;
use clone_set::waits_for_clone_set;
pub use eviction_target::{EvictionCaller, EvictionTarget, HeldEvictions, REPEATED_WITHIN, eviction_target};

/// A delete or an eviction at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionAttempt<'a> {
    /// Delete or evict.
    pub kind: DeletionKind,
    /// The name of the requesting user.
    pub user: &'a str,
    /// True for a dry run.
    pub dry_run: bool,
}

/// The state of the node of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// The state is unknown: it was not read, or could not be read. The pod is then held.
    #[default]
    Unknown,
    /// The node exists, and its condition `Ready` is `True`.
    Ready,
    /// The condition `Ready` of the node is not `True` since this time (`lastTransitionTime`).
    NotReadySince(UnixNanos),
    /// The node does not exist.
    Gone,
}

impl NodeState {
    /// Returns the time until the node counts as lost if its state does not change, or zero if it is lost. `None` when
    /// no problem is known. A node is lost when it does not exist, or has not been Ready for longer than `limit`.
    #[must_use]
    pub fn lost_in(self, limit: Duration, now: UnixNanos) -> Option<Duration> {
        match self {
            NodeState::Unknown | NodeState::Ready => None,
            // Strictly longer than the limit.
            NodeState::NotReadySince(since) => {
                Some((limit + Duration::from_nanos(1)).saturating_sub(now.since(since)))
            }
            NodeState::Gone => Some(Duration::ZERO),
        }
    }
}

/// The facts of a decision besides the pod.
#[derive(Clone, Copy, Debug)]
pub struct HoldFacts {
    /// The present time.
    pub now: UnixNanos,
    /// The node of the pod. It only matters for pods that would be held, so read it when a first decision without it is
    /// [`HoldVerdict::Hold`].
    pub node: NodeState,
    /// The time for which a node may be not Ready before its pods are deleted without waiting.
    pub unreachable_limit: Duration,
    /// True if the namespace of the pod is being deleted.
    pub namespace_terminating: bool,
}

/// The reason for which a delete or an eviction is allowed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AllowReason {
    /// The pod has not opted in, and does not wait for the hook `preDelete` of a CloneSet.
    NotOptedIn,
    /// The pod is already being deleted. The request is the final delete of the kubelet, or shortens the grace period.
    Terminating,
    /// The pod has finished.
    Finished,
    /// A mirror pod of a static pod: deleting it does not stop the containers.
    MirrorPod,
    /// The pod was never scheduled, so nothing of it runs.
    NeverScheduled,
    /// The request is a dry run.
    DryRun,
    /// The pod is out of service, and an operation that ends with its deletion has its permission.
    Granted,
    /// The pod has no readiness gate, so it cannot be taken out of service.
    NoGate,
    /// The break-glass annotation is set.
    BreakGlass,
    /// The namespace of the pod is being deleted.
    NamespaceTerminating,
    /// The node of the pod does not exist.
    NodeGone,
    /// The node of the pod has not been Ready for too long.
    NodeUnreachable,
}

impl AllowReason {
    /// Returns the value of the metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            AllowReason::NotOptedIn => "not_opted_in",
            AllowReason::Terminating => "terminating",
            AllowReason::Finished => "finished",
            AllowReason::MirrorPod => "mirror_pod",
            AllowReason::NeverScheduled => "never_scheduled",
            AllowReason::DryRun => "dry_run",
            AllowReason::Granted => "granted",
            AllowReason::NoGate => "no_gate",
            AllowReason::BreakGlass => "break_glass",
            AllowReason::NamespaceTerminating => "namespace_terminating",
            AllowReason::NodeGone => "node_gone",
            AllowReason::NodeUnreachable => "node_unreachable",
        }
    }

    /// Returns whether requests may be lost, so that the caller is warned and an event records it.
    #[must_use]
    pub const fn is_on_record(self) -> bool {
        matches!(self, AllowReason::NoGate | AllowReason::BreakGlass)
    }
}

/// The decision about a delete or an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldVerdict {
    /// The request is allowed.
    Allow {
        /// The reason.
        reason: AllowReason,
        /// The reason as text: for the log, and with [`AllowReason::is_on_record`] also for the warning and an event.
        words: String,
    },
    /// The request is held: the deletion request is recorded, and the caller is told so ([`answer`]).
    Hold,
}

impl HoldVerdict {
    /// Returns the reason for which the request is allowed, or `None` when it is held.
    #[must_use]
    pub fn reason(&self) -> Option<AllowReason> {
        match self {
            HoldVerdict::Allow { reason, .. } => Some(*reason),
            HoldVerdict::Hold => None,
        }
    }
}

/// Decides about `request` to delete or evict the stored `pod`: one that has opted in, or one of a CloneSet whose hook
/// `preDelete` has not released it.
///
/// A grace period of zero does not allow a delete: the pod would stop while it gets traffic.
///
/// ```
/// use std::time::Duration;
/// use podward_core::deletion::hold::{DeletionAttempt, HoldFacts, NodeState, AllowReason, HoldVerdict, hold};
/// use podward_core::deletion::request::DeletionKind;
/// use podward_core::{Pod, UnixNanos};
/// use serde_json::json;
///
/// let mut pod = json!({
///     "metadata": {"name": "web-0", "namespace": "shop", "labels": {"kusionstack.io/control": "true"}},
///     "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "pod.kusionstack.io/service-ready"}]},
///     "status": {"phase": "Running"},
/// });
/// let request = DeletionAttempt { kind: DeletionKind::Delete, user: "jane", dry_run: false };
/// let facts = HoldFacts {
///     now: UnixNanos(1_700_000_000_000_000_000),
///     node: NodeState::Ready,
///     unreachable_limit: Duration::from_secs(60),
///     namespace_terminating: false,
/// };
/// let read = |pod: &serde_json::Value| serde_json::from_value::<Pod>(pod.clone()).unwrap();
/// assert_eq!(hold(&read(&pod), &request, &facts), HoldVerdict::Hold);
///
/// pod["metadata"]["annotations"] = json!({"podward.io/break-glass": "INC-7: disk is full"});
/// let verdict = hold(&read(&pod), &request, &facts);
/// assert_eq!(verdict.reason(), Some(AllowReason::BreakGlass));
/// ```
#[must_use]
pub fn hold(pod: &Pod, request: &DeletionAttempt<'_>, facts: &HoldFacts) -> HoldVerdict {
    let Some(reason) = reason_to_allow(pod, request, facts) else {
        return HoldVerdict::Hold;
    };
    HoldVerdict::Allow { reason, words: words(reason, pod, request, facts) }
}

/// Reasons that only need the pod come first. Reasons that may lose requests come last.
fn reason_to_allow(pod: &Pod, request: &DeletionAttempt<'_>, facts: &HoldFacts) -> Option<AllowReason> {
    let view = pod.view();
    let opted_in = view.is_controlled();
    Some(match () {
        () if !opted_in && waits_for_clone_set(pod, request.user).is_none() => AllowReason::NotOptedIn,
        () if view.terminating => AllowReason::Terminating,
        () if pod.is_terminal() => AllowReason::Finished,
        () if pod.metadata.annotations.is_mirror => AllowReason::MirrorPod,
        () if pod.node_name().is_none() => AllowReason::NeverScheduled,
        () if request.dry_run => AllowReason::DryRun,
        // A consumer may have begun to use the pod again after the permission was given, and whoever may update pods can
        // write the labels of a permission.
        () if opted_in
            && !waits_for_others(pod, facts.now)
            && may_operate(&view)
            && is_granted(&Operations::parse(view.labels), view.labels.contains_key(PREPARING_TO_DELETE)) =>
        {
            AllowReason::Granted
        }
        () if facts.namespace_terminating => AllowReason::NamespaceTerminating,
        () if facts.node == NodeState::Gone => AllowReason::NodeGone,
        () if facts.node.lost_in(facts.unreachable_limit, facts.now).is_some_and(|left| left.is_zero()) => {
            AllowReason::NodeUnreachable
        }
        () if opted_in && !pod.has_gate() => AllowReason::NoGate,
        () if break_glass(pod).is_some() => AllowReason::BreakGlass,
        () => return None,
    })
}

/// Returns whether the pod is deleted together with other pods, and they may not be deleted yet.
fn waits_for_others(pod: &Pod, now: UnixNanos) -> bool {
    match pod.deletion_request().and_then(|request| request.joint) {
        Some(JointState::Waits) => true,
        Some(JointState::MayGoSince(since)) => UnixNanos(since) > now,
        None => false,
    }
}

/// Returns whether an operation that ends with the deletion has its permission: that of Podward, or, when it has not
/// begun, one of a workload controller with the label for it (scale-in, update by recreation).
fn is_granted(operations: &Operations<'_>, prepares_to_delete: bool) -> bool {
    match operations.get(DELETE_OPERATION).filter(|operation| operation.is_live()) {
        Some(ours) => ours.has(Stage::Operate) && ours.has(Stage::Operating),
        None => {
            let granted = |stage| operations.iter().any(|(_, operation)| operation.has(stage));
            prepares_to_delete && granted(Stage::Operate)
        }
    }
}

fn unreachable_for(facts: &HoldFacts) -> Option<Duration> {
    match facts.node {
        NodeState::NotReadySince(since) => Some(facts.now.since(since)),
        _ => None,
    }
}

fn break_glass(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.break_glass.as_deref().map(str::trim).filter(|why| !why.is_empty())
}

fn words(reason: AllowReason, pod: &Pod, request: &DeletionAttempt<'_>, facts: &HoldFacts) -> String {
    let node = pod.node_name().unwrap_or_default();
    match reason {
        AllowReason::NotOptedIn => "the pod has not opted in, and no hook of a CloneSet holds it".to_owned(),
        AllowReason::Terminating => "the pod is being deleted already".to_owned(),
        AllowReason::Finished => "the pod has finished".to_owned(),
        AllowReason::MirrorPod => "the kubelet runs the pod from a file".to_owned(),
        AllowReason::NeverScheduled => "the pod was never bound to a node".to_owned(),
        AllowReason::DryRun => "it is a dry run".to_owned(),
        AllowReason::Granted => "all consumers have released the pod".to_owned(),
        AllowReason::NoGate => format!(
            "{} of pod {}/{} by {} was not held: the pod has no readiness gate {SERVICE_READY_GATE} (it was created before \
             Podward was installed), so it cannot be taken out of service first; new pods have the gate",
            request.kind.noun(),
            pod.metadata.namespace,
            pod.metadata.name,
            request.user,
        ),
        AllowReason::BreakGlass => format!(
            "{} of pod {}/{} by {} was not held, by the annotation {}: {}",
            request.kind.noun(),
            pod.metadata.namespace,
            pod.metadata.name,
            request.user,
            crate::keys::BREAK_GLASS,
            break_glass(pod).unwrap_or_default(),
        ),
        AllowReason::NamespaceTerminating => {
            format!("namespace {} is being deleted", pod.metadata.namespace)
        }
        AllowReason::NodeGone => format!("node {node} doesn't exist any more"),
        AllowReason::NodeUnreachable => format!(
            "node {node} has not been Ready for {} s",
            unreachable_for(facts).unwrap_or_default().as_secs()
        ),
    }
}
