//! Whether a delete or an eviction of a pod is let through, or held until everybody has let go of it.

mod answer;

use std::time::Duration;

use crate::keys::{DELETE_OPERATION, PREPARING_TO_DELETE, SERVICE_READY_GATE, Stage};
use crate::operations::Operations;
use crate::pod::Pod;
use crate::time::UnixNanos;
use crate::wish::DeletionKind;

pub use answer::{BUDGET_REFUSAL, Outcome, answer};

/// A delete or an eviction that somebody asks the API server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionRequest<'a> {
    /// Which of the two.
    pub kind: DeletionKind,
    /// User name of who asks.
    pub user: &'a str,
    /// Whether nothing is to come of it.
    pub dry_run: bool,
}

/// What is known of a pod's node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Node {
    /// Nothing: nobody looked, or nobody could tell. The pod is then held.
    #[default]
    Unknown,
    /// It is there, and its condition `Ready` is `True`.
    Ready,
    /// It is there, and its condition `Ready` is something else since this time (`lastTransitionTime`).
    NotReadySince(UnixNanos),
    /// The API server has no such node.
    Gone,
}

impl Node {
    /// In how long it is lost, if it stays as it is: zero if it is. `None` if nothing is known to be wrong with it. A node is lost when
    /// it is gone, or has not been Ready for longer than `limit`.
    #[must_use]
    pub fn lost_in(self, limit: Duration, now: UnixNanos) -> Option<Duration> {
        match self {
            Node::Unknown | Node::Ready => None,
            // Longer than the limit, if only by a moment.
            Node::NotReadySince(since) => {
                Some((limit + Duration::from_nanos(1)).saturating_sub(now.since(since)))
            }
            Node::Gone => Some(Duration::ZERO),
        }
    }
}

/// What a verdict rests on besides the pod.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The present time.
    pub now: UnixNanos,
    /// The pod's node. It decides only over pods that would be held otherwise, so look it up when a first verdict without it is
    /// [`Verdict::Hold`].
    pub node: Node,
    /// For how long a node must not have been Ready until its pods are given up.
    pub unreachable_limit: Duration,
    /// Whether the pod's namespace is being deleted.
    pub namespace_terminating: bool,
}

/// Why a delete or an eviction is let through at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The pod has not opted in.
    NotOptedIn,
    /// The pod is being deleted already: this is the kubelet's last word, or a shorter grace period.
    Terminating,
    /// The pod has run to its end.
    Finished,
    /// The kubelet runs the pod from a file; deleting its image in the API stops nothing.
    MirrorPod,
    /// The pod was never bound to a node, so nothing of it runs.
    NeverScheduled,
    /// Nothing comes of the request.
    DryRun,
    /// Everybody has let go of the pod, and an operation that ends with its deletion has its permission.
    Granted,
    /// The pod has no readiness gate, so nothing can take it out of service.
    NoGate,
    /// Somebody wrote why this pod may be deleted although it is held.
    BreakGlass,
    /// The pod's namespace is being deleted.
    NamespaceTerminating,
    /// The pod's node doesn't exist any more.
    NodeGone,
    /// The pod's node has not been Ready for too long.
    NodeUnreachable,
}

impl Reason {
    /// The value of a metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::NotOptedIn => "not_opted_in",
            Reason::Terminating => "terminating",
            Reason::Finished => "finished",
            Reason::MirrorPod => "mirror_pod",
            Reason::NeverScheduled => "never_scheduled",
            Reason::DryRun => "dry_run",
            Reason::Granted => "granted",
            Reason::NoGate => "no_gate",
            Reason::BreakGlass => "break_glass",
            Reason::NamespaceTerminating => "namespace_terminating",
            Reason::NodeGone => "node_gone",
            Reason::NodeUnreachable => "node_unreachable",
        }
    }

    /// Whether traffic may be lost by it, so that the caller is to be warned and an event is to say it.
    #[must_use]
    pub const fn is_on_record(self) -> bool {
        matches!(self, Reason::NoGate | Reason::BreakGlass)
    }
}

/// What becomes of a delete or an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is let through.
    Allow {
        /// Why.
        reason: Reason,
        /// The same in words: for the log, and, where [`Reason::is_on_record`], for the caller's warning and an event.
        words: String,
    },
    /// It is held: the wish is to be recorded, and the caller is told so ([`answer`]).
    Hold,
}

impl Verdict {
    /// Why it is let through, if it is.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Verdict::Allow { reason, .. } => Some(*reason),
            Verdict::Hold => None,
        }
    }
}

/// Judges `request` to delete or evict `pod`, as it is stored.
///
/// A grace period of zero is no reason to let a delete through: it takes the traffic's target away all the same.
///
/// ```
/// use std::time::Duration;
/// use podward_core::hold::{DeletionRequest, Facts, Node, Reason, Verdict, hold};
/// use podward_core::wish::DeletionKind;
/// use podward_core::{Pod, UnixNanos};
/// use serde_json::json;
///
/// let mut pod = json!({
///     "metadata": {"name": "web-0", "namespace": "shop", "labels": {"kusionstack.io/control": "true"}},
///     "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "pod.kusionstack.io/service-ready"}]},
///     "status": {"phase": "Running"},
/// });
/// let request = DeletionRequest { kind: DeletionKind::Delete, user: "jane", dry_run: false };
/// let facts = Facts {
///     now: UnixNanos(1_700_000_000_000_000_000),
///     node: Node::Ready,
///     unreachable_limit: Duration::from_secs(60),
///     namespace_terminating: false,
/// };
/// let read = |pod: &serde_json::Value| serde_json::from_value::<Pod>(pod.clone()).unwrap();
/// assert_eq!(hold(&read(&pod), &request, &facts), Verdict::Hold);
///
/// pod["metadata"]["annotations"] = json!({"podward.io/break-glass": "INC-7: disk is full"});
/// let verdict = hold(&read(&pod), &request, &facts);
/// assert_eq!(verdict.reason(), Some(Reason::BreakGlass));
/// ```
#[must_use]
pub fn hold(pod: &Pod, request: &DeletionRequest<'_>, facts: &Facts) -> Verdict {
    let Some(reason) = reason_to_allow(pod, request, facts) else {
        return Verdict::Hold;
    };
    Verdict::Allow { reason, words: words(reason, pod, request, facts) }
}

/// Those that need nothing but the pod come first; those that somebody has to answer for come after those that are harmless.
fn reason_to_allow(pod: &Pod, request: &DeletionRequest<'_>, facts: &Facts) -> Option<Reason> {
    let view = pod.view();
    Some(match () {
        () if !view.is_controlled() => Reason::NotOptedIn,
        () if view.terminating => Reason::Terminating,
        () if pod.is_terminal() => Reason::Finished,
        () if pod.metadata.annotations.is_mirror => Reason::MirrorPod,
        () if pod.node_name().is_none() => Reason::NeverScheduled,
        () if request.dry_run => Reason::DryRun,
        () if is_granted(&Operations::parse(view.labels), view.labels.contains_key(PREPARING_TO_DELETE)) => {
            Reason::Granted
        }
        () if facts.namespace_terminating => Reason::NamespaceTerminating,
        () if facts.node == Node::Gone => Reason::NodeGone,
        () if facts.node.lost_in(facts.unreachable_limit, facts.now).is_some_and(|left| left.is_zero()) => {
            Reason::NodeUnreachable
        }
        () if !pod.has_gate() => Reason::NoGate,
        () if break_glass(pod).is_some() => Reason::BreakGlass,
        () => return None,
    })
}

/// Whether an operation that ends with the pod's deletion has its permission: ours, or, where ours hasn't begun, that of a workload
/// controller which says so by a label (scale-in, update by recreation).
fn is_granted(operations: &Operations<'_>, prepares_to_delete: bool) -> bool {
    match operations.get(DELETE_OPERATION).filter(|operation| operation.is_live()) {
        Some(ours) => ours.has(Stage::Operate) && ours.has(Stage::Operating),
        None => {
            let granted = |stage| operations.iter().any(|(_, operation)| operation.has(stage));
            prepares_to_delete && granted(Stage::Operate)
        }
    }
}

fn unreachable_for(facts: &Facts) -> Option<Duration> {
    match facts.node {
        Node::NotReadySince(since) => Some(facts.now.since(since)),
        _ => None,
    }
}

fn break_glass(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.break_glass.as_deref().map(str::trim).filter(|why| !why.is_empty())
}

fn words(reason: Reason, pod: &Pod, request: &DeletionRequest<'_>, facts: &Facts) -> String {
    let node = pod.node_name().unwrap_or_default();
    match reason {
        Reason::NotOptedIn => "the pod has not opted in".to_owned(),
        Reason::Terminating => "the pod is being deleted already".to_owned(),
        Reason::Finished => "the pod has run to its end".to_owned(),
        Reason::MirrorPod => "the kubelet runs the pod from a file".to_owned(),
        Reason::NeverScheduled => "the pod was never bound to a node".to_owned(),
        Reason::DryRun => "it is a dry run".to_owned(),
        Reason::Granted => "everybody has let go of the pod".to_owned(),
        Reason::NoGate => format!(
            "{} of pod {}/{} by {} was not held: the pod has no readiness gate {SERVICE_READY_GATE} (it was created before \
             Podward was there), so nothing can take it out of service first; pods created from now on have it",
            request.kind.noun(),
            pod.metadata.namespace,
            pod.metadata.name,
            request.user,
        ),
        Reason::BreakGlass => format!(
            "{} of pod {}/{} by {} was not held, by the annotation {}: {}",
            request.kind.noun(),
            pod.metadata.namespace,
            pod.metadata.name,
            request.user,
            crate::keys::BREAK_GLASS,
            break_glass(pod).unwrap_or_default(),
        ),
        Reason::NamespaceTerminating => {
            format!("namespace {} is being deleted", pod.metadata.namespace)
        }
        Reason::NodeGone => format!("node {node} doesn't exist any more"),
        Reason::NodeUnreachable => format!(
            "node {node} has not been Ready for {} s",
            unreachable_for(facts).unwrap_or_default().as_secs()
        ),
    }
}
