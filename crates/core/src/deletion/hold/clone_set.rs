//! Pods of CloneSets that have not opted in: others delete them through their set, so that its hook `preDelete` runs.

use crate::cloneset::{DeleteHold, keys};
use crate::model::pod::Pod;

/// Returns true if the pod has not opted in, and its CloneSet has to delete it: it has the label
/// [`SPECIFIED_DELETE`](keys::SPECIFIED_DELETE).
#[must_use]
pub fn is_left_to_clone_set(pod: &Pod) -> bool {
    let view = pod.view();
    !view.is_controlled() && view.labels.contains_key(keys::SPECIFIED_DELETE)
}

/// Returns why the deletion that `requester` requests waits for the hook of the CloneSet that controls the pod, for people.
/// `None` if it does not wait for one.
pub(super) fn waits_for_clone_set(pod: &Pod, requester: &str) -> Option<String> {
    let (owner, view) = (pod.controller()?, pod.view());
    let hold = DeleteHold::on(pod.metadata.annotations.delete_hold.as_deref()?, &owner.kind, &owner.name)?;
    hold.waits(view.labels, view.finalizers, requester)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::{AllowReason, DeletionAttempt, HoldFacts, NodeState, RecordOutcome, answer, hold};
    use super::*;
    use crate::model::deletion_request::{DeletionKind, DeletionRequest};
    use crate::model::time::UnixNanos;

    const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

    fn pod(labels: Value, owner: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web-x", "namespace": "shop", "labels": labels,
                "annotations": {keys::DELETE_HOLD: r#"{"set": "web", "labels": {"in-use": "true"}}"#},
                "ownerReferences": [
                    {"apiVersion": "apps.kruise.io/v1alpha1", "kind": owner, "name": "web", "uid": "1", "controller": true},
                ],
            },
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        }))
        .unwrap()
    }

    fn reason(pod: &Pod, user: &str, node: NodeState) -> Option<AllowReason> {
        let facts = HoldFacts {
            now: NOW,
            node,
            unreachable_limit: Duration::from_secs(60),
            namespace_terminating: false,
        };
        hold(pod, &DeletionAttempt { kind: DeletionKind::Delete, user, dry_run: false }, &facts).reason()
    }

    #[test]
    fn a_pod_that_its_hook_has_not_released_is_held() {
        let in_use = pod(json!({"in-use": "true"}), "CloneSet");
        assert_eq!(reason(&in_use, "jane", NodeState::Ready), None);
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        assert_eq!(reason(&in_use, collector, NodeState::Ready), Some(AllowReason::NotOptedIn));
        assert_eq!(reason(&in_use, "jane", NodeState::Gone), Some(AllowReason::NodeGone));
        let released = pod(json!({"in-use": "no"}), "CloneSet");
        assert_eq!(reason(&released, "jane", NodeState::Ready), Some(AllowReason::NotOptedIn));
        // A later version has added a member.
        let mut of_later = pod(json!({"in-use": "true"}), "CloneSet");
        let text = r#"{"set": "web", "labels": {"in-use": "true"}, "since": 1}"#;
        of_later.metadata.annotations.delete_hold = Some(text.to_owned());
        assert_eq!(reason(&of_later, "jane", NodeState::Ready), None);
        // Nobody would move it to PreparingDelete.
        let orphan = pod(json!({"in-use": "true"}), "ReplicaSet");
        assert_eq!(reason(&orphan, "jane", NodeState::Ready), Some(AllowReason::NotOptedIn));
        // Labels of operations grant nothing without Podward.
        let granted = json!({"in-use": "true", "podopslifecycle.kusionstack.io/preparing-to-delete": "1",
            "operate.podopslifecycle.kusionstack.io/a": "1", "operating.podopslifecycle.kusionstack.io/a": "1"});
        assert_eq!(reason(&pod(granted, "CloneSet"), "jane", NodeState::Ready), None);
    }

    #[test]
    fn the_answer_names_the_hook_and_how_to_cancel() {
        let in_use = pod(json!({"in-use": "true", keys::SPECIFIED_DELETE: "true"}), "CloneSet");
        assert!(is_left_to_clone_set(&in_use));
        let request = DeletionRequest::new(DeletionKind::Evict, "jane", NOW);
        assert_eq!(
            answer(&in_use, DeletionKind::Evict, RecordOutcome::Recorded(&request)),
            "Eviction triggered evacuation; pod shop/web-x is deleted by CloneSet web, and not before this: the hook \
             preDelete of CloneSet web has to release the pod: its operator removes the label in-use=true; to cancel: \
             kubectl label pod web-x -n shop apps.kruise.io/specified-delete-"
        );
    }
}
