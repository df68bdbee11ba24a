//! The vocabulary of the wire: label, annotation, finalizer and condition names of PodOpsLifecycle, and the few of Podward's
//! own. This is the only place that spells them.

use std::fmt;

/// A pod takes part exactly when this label is `"true"`; any other value means that it doesn't.
pub const CONTROL_LABEL: &str = "kusionstack.io/control";
/// The value of [`CONTROL_LABEL`] that opts a pod in.
pub const CONTROL_VALUE: &str = "true";
/// The readiness gate, and the pod condition behind it, through which a pod is taken out of service.
pub const SERVICE_READY_GATE: &str = "pod.kusionstack.io/service-ready";
/// The message of the [`SERVICE_READY_GATE`] condition, as the reference implementation writes it.
pub const SERVICE_READY_MESSAGE: &str = "updated by PodOpsLifecycle";
/// The pod condition that says in words what a pod waits for.
pub const LIFECYCLE_CONDITION: &str = "podward.io/lifecycle";
/// Any finalizer with this prefix says that a consumer holds the pod. The test is on the prefix alone, without a slash.
pub const PROT_FINALIZER_PREFIX: &str = "prot.podopslifecycle.kusionstack.io";
/// Annotation: the finalizers that must be back before a pod is available, as JSON.
pub const AVAILABLE_CONDITIONS: &str = "pod.kusionstack.io/available-conditions";
/// Label: the pod is in service; the value is the time in nanoseconds since the Unix epoch.
pub const SERVICE_AVAILABLE: &str = "podopslifecycle.kusionstack.io/service-available";
/// Label: while it is there and no operation is going on, the pod is not put into service.
pub const STAY_OFFLINE: &str = "podopslifecycle.kusionstack.io/stay-offline";
/// Label that workload controllers put on a new pod; goes when the pod is available.
pub const CREATING: &str = "podopslifecycle.kusionstack.io/creating";
/// Label that workload controllers put on a rebuilt pod; goes when the pod is available.
pub const COMPLETING: &str = "podopslifecycle.kusionstack.io/completing";
/// A namespace with this label set to [`INJECT_VALUE`] opts every pod in that is created in it.
pub const INJECT_LABEL: &str = "podward.io/inject";
/// The value of [`INJECT_LABEL`] that turns it on.
pub const INJECT_VALUE: &str = "enabled";

/// Label: the pod is to be deleted when everybody has let go of it, whatever its workload. Value: nanoseconds.
pub const TO_DELETE: &str = "collaset.kusionstack.io/to-delete";
/// Label: the operation that goes on ends with the pod's deletion. Value: nanoseconds.
pub const PREPARING_TO_DELETE: &str = "podopslifecycle.kusionstack.io/preparing-to-delete";
/// Annotation: when a deletion was last asked for. Value: nanoseconds.
pub const DELETE_TIMESTAMP: &str = "gracedelete.kusionstack.io/delete-timestamp";
/// Annotation: the wish to delete the pod, as JSON; see [`crate::wish`].
pub const DELETION_WISH: &str = "podward.io/deletion-wish";
/// Annotation: lets the pod be deleted at once. Value: why.
pub const BREAK_GLASS: &str = "podward.io/break-glass";
/// Annotation: what stood behind the answers of the consumers that have let go of the pod, as JSON; see [`crate::hooks`].
pub const EVIDENCE: &str = "podward.io/evidence";
/// Annotation: which hooks were asked what, and since when, where nothing else on the pod tells; see [`crate::consumers`].
pub const ASKED: &str = "podward.io/asked";
/// Annotation: who has refused the results of operations that have [`Stage::Rollback`], why and since when, as JSON; see
/// [`crate::refusals`].
pub const REFUSED: &str = "podward.io/result-refused";
/// Annotation of a PodTransitionRule: `Rollback` where operators are told that one of its rules has refused a result, `Hold` (the
/// same as none) where the result is only kept waiting.
pub const POST_CHECK_REJECTION: &str = "podward.io/post-check-rejection";
/// Annotation by which an application says that its pod must not be interrupted before this time (RFC 3339); see [`crate::busy`].
pub const BUSY_UNTIL: &str = "podward.io/busy-until";
/// Annotation: why, for people.
pub const BUSY_REASON: &str = "podward.io/busy-reason";
/// Annotation: what [`POD_DELETION_COST`] was before the pod was busy, as JSON; see [`crate::busy::keep_cost`].
pub const IDLE_DELETION_COST: &str = "podward.io/idle-deletion-cost";
/// Annotation: rules that the pod passes without being asked, as JSON `{"skipRules":["name"]}`; see [`crate::rules`].
pub const SKIP_RULES: &str = "podtransitionrule.kusionstack.io/skip-rule-conditions";
/// Annotation, before the name of a PodTransitionRule: what its rules say to the pod, as JSON.
pub const RULE_DETAIL_PREFIX: &str = "detail.podtransitionrule.kusionstack.io/";
/// The id of the operation that ends with the pod's deletion.
pub const DELETE_OPERATION: &str = "pod-delete";
/// The type of that operation.
pub const DELETE_TYPE: &str = "delete";
/// Annotation of ReplicaSet's: pods with a lower cost are deleted first.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation that the kubelet puts on the API's image of a static pod: the pod itself can't be deleted over the API.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

const DOMAIN: &str = ".podopslifecycle.kusionstack.io";
const PERMISSION: &str = "operation-permission.podopslifecycle.kusionstack.io";
/// KusionStack's protocol has no such label, so it isn't in its domain.
const ROLLBACK: &str = "rollback.podward.io";

/// One kind of per-operation label: `<prefix>/<id>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The operator has begun. Value: nanoseconds.
    Operating,
    /// What kind of operation it is. Value: the type.
    OperationType,
    /// The operator cancels. Value: the type.
    UndoOperationType,
    /// Podward is asked whether the operation may start. Value: nanoseconds.
    PreCheck,
    /// It may. Value: nanoseconds.
    PreChecked,
    /// The pod is being taken out of service. Value: nanoseconds.
    Preparing,
    /// The permission: the operator may change the pod. Value: nanoseconds.
    Operate,
    /// The operator has finished, and so have all others. Value: nanoseconds.
    Operated,
    /// What kind of operation it was. Value: the type.
    DoneOperationType,
    /// Podward is asked whether the result is good. Value: nanoseconds.
    PostCheck,
    /// It is. Value: nanoseconds.
    PostChecked,
    /// The pod is being put back into service. Value: nanoseconds.
    Completing,
    /// The result is refused, and the operator is to begin anew or to cancel; see [`crate::refusals`]. Podward's own. Value:
    /// nanoseconds.
    Rollback,
}

impl Stage {
    /// All stages.
    pub const ALL: [Stage; 13] = [
        Stage::Operating,
        Stage::OperationType,
        Stage::UndoOperationType,
        Stage::PreCheck,
        Stage::PreChecked,
        Stage::Preparing,
        Stage::Operate,
        Stage::Operated,
        Stage::DoneOperationType,
        Stage::PostCheck,
        Stage::PostChecked,
        Stage::Completing,
        Stage::Rollback,
    ];

    /// The stages that only Podward writes.
    pub const OURS: [Stage; 10] = [
        Stage::PreCheck,
        Stage::PreChecked,
        Stage::Preparing,
        Stage::Operate,
        Stage::Operated,
        Stage::DoneOperationType,
        Stage::PostCheck,
        Stage::PostChecked,
        Stage::Completing,
        Stage::Rollback,
    ];

    /// The first word of the label's prefix, e.g. `pre-check`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Stage::Operating => "operating",
            Stage::OperationType => "operation-type",
            Stage::UndoOperationType => "undo-operation-type",
            Stage::PreCheck => "pre-check",
            Stage::PreChecked => "pre-checked",
            Stage::Preparing => "preparing",
            Stage::Operate => "operate",
            Stage::Operated => "operated",
            Stage::DoneOperationType => "done-operation-type",
            Stage::PostCheck => "post-check",
            Stage::PostChecked => "post-checked",
            Stage::Completing => "completing",
            Stage::Rollback => "rollback",
        }
    }

    /// The label key of this stage for the operation `id`.
    #[must_use]
    pub fn key(self, id: &str) -> String {
        match self {
            Stage::Rollback => format!("{ROLLBACK}/{id}"),
            _ => format!("{}{DOMAIN}/{id}", self.word()),
        }
    }

    /// The stage whose labels begin with `prefix`.
    fn from_prefix(prefix: &str) -> Option<Stage> {
        match prefix.strip_suffix(DOMAIN) {
            Some(word) => {
                Stage::ALL.into_iter().find(|stage| *stage != Stage::Rollback && stage.word() == word)
            }
            None => (prefix == ROLLBACK).then_some(Stage::Rollback),
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The label key of the permission for operations of `operation_type`. Its suffix is the type, not the id.
#[must_use]
pub fn permission_key(operation_type: &str) -> String {
    format!("{PERMISSION}/{operation_type}")
}

/// What a label key means in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// `<stage>/<id>`.
    Stage(Stage, &'a str),
    /// `operation-permission/<type>`.
    Permission(&'a str),
    /// [`SERVICE_AVAILABLE`].
    ServiceAvailable,
    /// It starts like a label of the protocol, but has no id or type after a slash.
    Malformed,
    /// Not a label of the protocol.
    Other,
}

impl<'a> Key<'a> {
    /// Reads a label key. Total: every string has a meaning.
    ///
    /// ```
    /// use podward_core::keys::{Key, Stage};
    ///
    /// assert_eq!(Key::parse("operate.podopslifecycle.kusionstack.io/upgrade"), Key::Stage(Stage::Operate, "upgrade"));
    /// assert_eq!(Key::parse("app.kubernetes.io/name"), Key::Other);
    /// ```
    #[must_use]
    pub fn parse(key: &'a str) -> Key<'a> {
        if key == SERVICE_AVAILABLE {
            return Key::ServiceAvailable;
        }
        let (prefix, name) = match key.split_once('/') {
            Some((prefix, name)) => (prefix, Some(name)),
            None => (key, None),
        };
        let stage = Stage::from_prefix(prefix);
        if stage.is_none() && prefix != PERMISSION {
            return Key::Other;
        }
        match (stage, name) {
            (_, None) => Key::Malformed,
            (_, Some(name)) if name.is_empty() || name.contains('/') => Key::Malformed,
            (Some(stage), Some(name)) => Key::Stage(stage, name),
            (None, Some(name)) => Key::Permission(name),
        }
    }

    /// Whether only Podward may write a label with this key.
    #[must_use]
    pub fn is_protected(self) -> bool {
        match self {
            Key::Stage(stage, _) => Stage::OURS.contains(&stage),
            Key::Permission(_) | Key::ServiceAvailable => true,
            Key::Malformed | Key::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_wire() {
        assert_eq!(Stage::Operating.key("a"), "operating.podopslifecycle.kusionstack.io/a");
        assert_eq!(
            Stage::DoneOperationType.key("x.y"),
            "done-operation-type.podopslifecycle.kusionstack.io/x.y"
        );
        assert_eq!(permission_key("update"), "operation-permission.podopslifecycle.kusionstack.io/update");
        assert_eq!(Stage::Rollback.key("a"), "rollback.podward.io/a");
    }

    #[test]
    fn every_stage_reads_back() {
        for stage in Stage::ALL {
            assert_eq!(Key::parse(&stage.key("my-id")), Key::Stage(stage, "my-id"));
        }
        assert_eq!(Key::parse(&permission_key("update")), Key::Permission("update"));
    }

    #[test]
    fn look_alikes_are_told_apart() {
        assert_eq!(Key::parse("operating.podopslifecycle.kusionstack.io"), Key::Malformed);
        assert_eq!(Key::parse("operating.podopslifecycle.kusionstack.io/"), Key::Malformed);
        assert_eq!(Key::parse("podopslifecycle.kusionstack.io/preparing"), Key::Other);
        assert_eq!(Key::parse("operatingx.podopslifecycle.kusionstack.io/a"), Key::Other);
        assert_eq!(Key::parse("app"), Key::Other);
        assert_eq!(Key::parse("rollback.podopslifecycle.kusionstack.io/a"), Key::Other);
        assert_eq!(Key::parse("operating.podward.io/a"), Key::Other);
        assert_eq!(Key::parse("rollback.podward.io"), Key::Malformed);
        assert_eq!(Key::parse(SERVICE_AVAILABLE), Key::ServiceAvailable);
    }
}
