//! The names of labels, annotations, finalizers and conditions. No other file spells them.

use std::fmt;

/// The label that opts a pod in when its value is `"true"`. Any other value means that the pod has not opted in.
pub const CONTROL_LABEL: &str = "kusionstack.io/control";
/// The value of [`CONTROL_LABEL`] that opts a pod in.
pub const CONTROL_VALUE: &str = "true";
/// The readiness gate that takes a pod out of service, and the pod condition behind it.
pub const SERVICE_READY_GATE: &str = "pod.kusionstack.io/service-ready";
/// The message of the [`SERVICE_READY_GATE`] condition, as the reference implementation writes it.
pub const SERVICE_READY_MESSAGE: &str = "updated by PodOpsLifecycle";
/// The pod condition that explains what a pod waits for.
pub const LIFECYCLE_CONDITION: &str = "podward.io/lifecycle";
/// The prefix of the finalizers of consumers. The prefix is compared without a slash.
pub const PROT_FINALIZER_PREFIX: &str = "prot.podopslifecycle.kusionstack.io";
/// Annotation: the finalizers that must be present before a pod is available, as JSON.
pub const AVAILABLE_CONDITIONS: &str = "pod.kusionstack.io/available-conditions";
/// Label: the pod is in service. Value: time in nanoseconds since the Unix epoch.
pub const SERVICE_AVAILABLE: &str = "podopslifecycle.kusionstack.io/service-available";
/// Label: once the pod is out of service, it is not put back while the label is present.
pub const STAY_OFFLINE: &str = "podopslifecycle.kusionstack.io/stay-offline";
/// Label that workload controllers put on a new pod. Podward removes it when the pod is available.
pub const CREATING: &str = "podopslifecycle.kusionstack.io/creating";
/// Label that workload controllers put on a rebuilt pod. Podward removes it when the pod is available.
pub const COMPLETING: &str = "podopslifecycle.kusionstack.io/completing";
/// Label of a namespace: with the value [`INJECT_VALUE`], every pod that is created in the namespace opts in. With the
/// value [`INJECT_NONE`], no pod should, and evictions in the namespace are not sent to Podward.
pub const INJECT_LABEL: &str = "podward.io/inject";
/// The value of [`INJECT_LABEL`] that opts pods in.
pub const INJECT_VALUE: &str = "enabled";
/// The value of [`INJECT_LABEL`] of a namespace without opted-in pods.
pub const INJECT_NONE: &str = "disabled";

/// Label: requests the deletion of the pod, whatever its workload is. Value: nanoseconds.
pub const TO_DELETE: &str = "collaset.kusionstack.io/to-delete";
/// Annotation: the user who set [`TO_DELETE`], as JSON; see [`crate::deletion::LabelAuthor`].
pub const TO_DELETE_BY: &str = "podward.io/to-delete-by";
/// Label: the active operation ends with the deletion of the pod. Value: nanoseconds.
pub const PREPARING_TO_DELETE: &str = "podopslifecycle.kusionstack.io/preparing-to-delete";
/// Annotation: the time of the last deletion request. Value: nanoseconds.
pub const DELETE_TIMESTAMP: &str = "gracedelete.kusionstack.io/delete-timestamp";
/// Annotation: the request to delete the pod, as JSON; see [`crate::deletion::request`].
pub const DELETION_REQUEST: &str = "podward.io/deletion-request";
/// Annotation: allows the deletion of the pod at once. Value: the reason.
pub const BREAK_GLASS: &str = "podward.io/break-glass";
/// Annotation: the evidence of the consumers that have released the pod, as JSON; see [`crate::hooks`].
pub const EVIDENCE: &str = "podward.io/evidence";
/// Annotation: the latest operations on the pod, as JSON; see [`crate::history`].
pub const HISTORY: &str = "podward.io/history";
/// Annotation: the requests to hooks and the times at which they began, where nothing else on the pod records them; see
/// [`crate::hooks`].
pub const HOOK_REQUESTS: &str = "podward.io/hook-requests";
/// Annotation: the checks that refused results of operations with [`Stage::Rollback`], with reasons and times, as JSON;
/// see [`crate::refusals`].
pub const RESULT_REFUSED: &str = "podward.io/result-refused";
/// Annotation of a PodTransitionRule. `Rollback`: the operator is told that a rule refused the result. `Hold` or no
/// annotation: the result only waits.
pub const POST_CHECK_REJECTION: &str = "podward.io/post-check-rejection";
/// Annotation: the application must not be interrupted before this time (RFC 3339); see [`crate::busy`].
pub const BUSY_UNTIL: &str = "podward.io/busy-until";
/// Annotation: the reason why the pod is busy, for people.
pub const BUSY_REASON: &str = "podward.io/busy-reason";
/// Annotation: the time at which each operation stops waiting for the busy pod, by operation id, as JSON; see
/// [`crate::busy::BusyLimits`]. The lifecycle-controller writes it with the condition.
pub const BUSY_LIMITS: &str = "podward.io/busy-limits";
/// Annotation: the value of [`POD_DELETION_COST`] before the pod was busy, as JSON; see [`crate::busy::keep_cost`].
pub const IDLE_DELETION_COST: &str = "podward.io/idle-deletion-cost";
/// Annotation: the rules that are not checked for the pod, as JSON `{"skipRules":["name"]}`; see [`crate::rules`].
pub const SKIP_RULES: &str = "podtransitionrule.kusionstack.io/skip-rule-conditions";
/// Prefix of an annotation, followed by the name of a PodTransitionRule: the result of its rules for the pod, as JSON.
pub const RULE_DETAIL_PREFIX: &str = "detail.podtransitionrule.kusionstack.io/";
/// The finalizer that KusionStack's kuperator puts on PodTransitionRules. Podward removes it from those that are being
/// deleted.
pub const RULE_PROTECTION: &str = "finalizer.operating.kusionstack.io/protected";
/// The id of the operation that ends with the deletion of the pod.
pub const DELETE_OPERATION: &str = "pod-delete";
/// The type of the operation [`DELETE_OPERATION`].
pub const DELETE_TYPE: &str = "delete";
/// Annotation that ReplicaSets read: they delete pods with a lower cost first.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation that the kubelet sets on the mirror pod of a static pod. Deleting a mirror pod does not stop its
/// containers.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

const DOMAIN: &str = ".podopslifecycle.kusionstack.io";
const PERMISSION: &str = "operation-permission.podopslifecycle.kusionstack.io";
/// The label is not part of KusionStack's protocol, so it has Podward's domain.
const ROLLBACK: &str = "rollback.podward.io";

/// The kind of a label `<prefix>/<id>` of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The operator has begun the operation. Value: nanoseconds.
    Operating,
    /// The type of the operation. Value: the type.
    OperationType,
    /// The operator cancels the operation. Value: the type.
    UndoOperationType,
    /// Podward checks whether the operation may start. Value: nanoseconds.
    PreCheck,
    /// The operation may start. Value: nanoseconds.
    PreChecked,
    /// The pod is being taken out of service. Value: nanoseconds.
    Preparing,
    /// The permission: the operator may change the pod. Value: nanoseconds.
    Operate,
    /// All operators have finished. Value: nanoseconds.
    Operated,
    /// The type of the finished operation. Value: the type.
    DoneOperationType,
    /// Podward checks the result. Value: nanoseconds.
    PostCheck,
    /// The result is accepted. Value: nanoseconds.
    PostChecked,
    /// The pod is being put back into service. Value: nanoseconds.
    Completing,
    /// The result is refused: the operator is to begin the operation again or to cancel it; see [`crate::refusals`].
    /// Value: nanoseconds.
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

    /// Returns the first word of the label prefix, for example `pre-check`.
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

    /// Returns the label key of this stage for the operation `id`.
    #[must_use]
    pub fn key(self, id: &str) -> String {
        match self {
            Stage::Rollback => format!("{ROLLBACK}/{id}"),
            _ => format!("{}{DOMAIN}/{id}", self.word()),
        }
    }

    /// Returns the stage whose labels begin with `prefix`.
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

/// Returns the key of the permission label for operations of `operation_type`. It ends with the type, not with an id.
#[must_use]
pub fn permission_key(operation_type: &str) -> String {
    format!("{PERMISSION}/{operation_type}")
}

/// The meaning of a label key in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// `<stage>/<id>`.
    Stage(Stage, &'a str),
    /// `operation-permission/<type>`.
    Permission(&'a str),
    /// [`SERVICE_AVAILABLE`].
    ServiceAvailable,
    /// A key with a prefix of the protocol but without an id or type after one slash.
    Malformed,
    /// A key that does not belong to the protocol.
    Other,
}

impl<'a> Key<'a> {
    /// Reads a label key. Every string has a meaning.
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

    /// Returns whether only Podward may write a label with this key.
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
