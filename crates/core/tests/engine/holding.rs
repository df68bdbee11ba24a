//! What is let through at once, and what is held; row by row. And what a caller is told.

use std::time::Duration;

use podward_core::deletion::hold::{
    AllowReason, BUDGET_REFUSAL, DeletionAttempt, HoldFacts, HoldVerdict, NodeState, RecordOutcome, answer,
    hold,
};
use podward_core::deletion::request::{DeletionKind, DeletionRequest, JointState};
use podward_core::keys::{self, Stage};
use podward_core::{NoRules, Pod, UnixNanos, on_update, plan_labels};
use serde_json::{Value, json};

const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

fn pod() -> Value {
    json!({
        "metadata": {"name": "web-0", "namespace": "shop", "labels": {keys::CONTROL_LABEL: "true"}, "annotations": {}},
        "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": keys::SERVICE_READY_GATE}]},
        "status": {"phase": "Running"},
    })
}

fn with(change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = pod();
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn delete() -> DeletionAttempt<'static> {
    DeletionAttempt { kind: DeletionKind::Delete, user: "jane", dry_run: false }
}

fn facts() -> HoldFacts {
    HoldFacts {
        now: NOW,
        node: NodeState::Ready,
        unreachable_limit: Duration::from_secs(60),
        namespace_terminating: false,
    }
}

fn label(pod: &mut Value, key: &str, value: &str) {
    pod["metadata"]["labels"][key] = json!(value);
}

fn gate_off(pod: &mut Value) {
    pod["status"]["conditions"] = json!([{"type": keys::SERVICE_READY_GATE, "status": "False"}]);
}

#[test]
fn what_the_pod_says() {
    type Change = fn(&mut Value);
    let rows: [(&str, Change, Option<AllowReason>); 18] = [
        ("in service", |_| {}, None),
        ("opted out", |pod| label(pod, keys::CONTROL_LABEL, "false"), Some(AllowReason::NotOptedIn)),
        ("no labels", |pod| pod["metadata"]["labels"] = Value::Null, Some(AllowReason::NotOptedIn)),
        (
            "terminating",
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z"),
            Some(AllowReason::Terminating),
        ),
        ("succeeded", |pod| pod["status"]["phase"] = json!("Succeeded"), Some(AllowReason::Finished)),
        ("failed", |pod| pod["status"]["phase"] = json!("Failed"), Some(AllowReason::Finished)),
        ("pending on a node", |pod| pod["status"]["phase"] = json!("Pending"), None),
        ("without a node", |pod| pod["spec"]["nodeName"] = Value::Null, Some(AllowReason::NeverScheduled)),
        ("with an empty node", |pod| pod["spec"]["nodeName"] = json!(""), Some(AllowReason::NeverScheduled)),
        (
            "a static pod's image",
            |pod| pod["metadata"]["annotations"][keys::MIRROR_POD] = json!("hash"),
            Some(AllowReason::MirrorPod),
        ),
        ("no gate", |pod| pod["spec"]["readinessGates"] = Value::Null, Some(AllowReason::NoGate)),
        (
            "break-glass",
            |pod| pod["metadata"]["annotations"][keys::BREAK_GLASS] = json!("INC-7"),
            Some(AllowReason::BreakGlass),
        ),
        (
            "break-glass without a word",
            |pod| pod["metadata"]["annotations"][keys::BREAK_GLASS] = json!(" "),
            None,
        ),
        (
            "an operation of somebody else has its permission",
            |pod| {
                label(pod, &Stage::Operating.key("upgrade"), "1");
                label(pod, &Stage::OperationType.key("upgrade"), "update");
                label(pod, &Stage::Operate.key("upgrade"), "1");
            },
            None,
        ),
        (
            "one that ends with the pod's deletion has it",
            |pod| {
                label(pod, &Stage::Operating.key("collaset"), "1");
                label(pod, &Stage::OperationType.key("collaset"), "scale-in");
                label(pod, &Stage::Operate.key("collaset"), "1");
                label(pod, keys::PREPARING_TO_DELETE, "1");
                gate_off(pod);
            },
            Some(AllowReason::Granted),
        ),
        (
            "it has it, and the pod is in service: somebody else wrote it",
            |pod| {
                label(pod, &Stage::Operating.key("collaset"), "1");
                label(pod, &Stage::OperationType.key("collaset"), "scale-in");
                label(pod, &Stage::Operate.key("collaset"), "1");
                label(pod, keys::PREPARING_TO_DELETE, "1");
            },
            None,
        ),
        (
            "it has it, and a consumer uses the pod again",
            |pod| {
                label(pod, &Stage::Operating.key("pod-delete"), "1");
                label(pod, &Stage::OperationType.key("pod-delete"), "delete");
                label(pod, &Stage::Operate.key("pod-delete"), "1");
                gate_off(pod);
                pod["metadata"]["finalizers"] =
                    json!(["prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb"]);
            },
            None,
        ),
        (
            "another has it, ours hasn't",
            |pod| {
                label(pod, &Stage::Operating.key("upgrade"), "1");
                label(pod, &Stage::OperationType.key("upgrade"), "update");
                label(pod, &Stage::Operate.key("upgrade"), "1");
                label(pod, &Stage::Operating.key("pod-delete"), "1");
                label(pod, &Stage::OperationType.key("pod-delete"), "delete");
                label(pod, keys::PREPARING_TO_DELETE, "1");
                gate_off(pod);
            },
            None,
        ),
    ];
    for (what, change, expected) in rows {
        let verdict = hold(&with(change), &delete(), &facts());
        assert_eq!(verdict.reason(), expected, "{what}");
        let evict = DeletionAttempt { kind: DeletionKind::Evict, ..delete() };
        assert_eq!(hold(&with(change), &evict, &facts()).reason(), expected, "{what}, evicted");
    }
}

#[test]
fn a_granted_deletion_request_allows_the_delete() {
    let granted = with(|pod| {
        label(pod, &Stage::Operating.key("pod-delete"), "1");
        label(pod, &Stage::OperationType.key("pod-delete"), "delete");
        label(pod, &Stage::Operate.key("pod-delete"), "1");
        gate_off(pod);
    });
    assert_eq!(hold(&granted, &delete(), &facts()).reason(), Some(AllowReason::Granted));
    // The operator is gone: the permission is being withdrawn.
    let finished = with(|pod| {
        label(pod, &Stage::Operate.key("pod-delete"), "1");
        gate_off(pod);
    });
    assert_eq!(hold(&finished, &delete(), &facts()), HoldVerdict::Hold);
}

fn apply(pod: &mut Value, change: impl FnOnce(&mut Value)) {
    let read = |pod: &Value| serde_json::from_value::<Pod>(pod.clone()).unwrap();
    let old = read(pod);
    change(pod);
    let patch = on_update(Some(&old), &read(pod), NOW);
    json_patch::patch(pod, &patch).unwrap();
}

/// A scale-in announces that it ends with the deletion of the pod. It ends without, and an update begins.
#[test]
fn the_permission_of_an_operation_does_not_allow_the_delete_that_an_earlier_one_announced() {
    let begin = |pod: &mut Value, id: &str, operation_type: &str| {
        label(pod, &Stage::Operating.key(id), "1");
        label(pod, &Stage::OperationType.key(id), operation_type);
    };
    let granted = |pod: &mut Value, id: &str, operation_type: &str| {
        begin(pod, id, operation_type);
        label(pod, &Stage::PreChecked.key(id), "1");
        label(pod, &Stage::Operate.key(id), "1");
        label(pod, &keys::permission_key(operation_type), "1");
        gate_off(pod);
    };
    let verdict =
        |pod: &Value| hold(&serde_json::from_value(pod.clone()).unwrap(), &delete(), &facts()).reason();
    type Change = fn(&mut Value);
    let ends: [(&str, Change); 3] = [
        ("undone", |pod| label(pod, &Stage::UndoOperationType.key("set"), "scale-in")),
        ("given up", |pod| {
            pod["metadata"]["labels"] = json!({keys::CONTROL_LABEL: "true", keys::PREPARING_TO_DELETE: "1"})
        }),
        ("accepted", |pod| {
            pod["metadata"]["labels"].as_object_mut().unwrap().remove(&Stage::Operating.key("set"));
            label(pod, &Stage::PostChecked.key("set"), "1");
        }),
    ];
    for (what, end) in ends {
        let mut stored = pod();
        granted(&mut stored, "set", "scale-in");
        label(&mut stored, keys::PREPARING_TO_DELETE, "1");
        assert_eq!(verdict(&stored), Some(AllowReason::Granted), "{what}");
        apply(&mut stored, end);
        assert!(stored["metadata"]["labels"].get(Stage::Operating.key("set")).is_none(), "{what}");
        granted(&mut stored, "upgrade", "update");
        assert_eq!(verdict(&stored), None, "{what}: {stored}");
    }

    // Without the webhook, the controller does it.
    let mut stored = pod();
    granted(&mut stored, "set", "scale-in");
    label(&mut stored, keys::PREPARING_TO_DELETE, "1");
    label(&mut stored, &Stage::UndoOperationType.key("set"), "scale-in");
    let read: Pod = serde_json::from_value(stored.clone()).unwrap();
    let planned = plan_labels(&read.view(), &NoRules, NOW);
    assert!(planned.remove.contains(keys::PREPARING_TO_DELETE), "{planned:?}");
}

#[test]
fn the_announcement_of_a_delete_stays_with_its_operation() {
    let left = |change: &dyn Fn(&mut Value), end: &dyn Fn(&mut Value)| {
        let mut stored = pod();
        label(&mut stored, &Stage::Operating.key("set"), "1");
        label(&mut stored, &Stage::OperationType.key("set"), "scale-in");
        label(&mut stored, keys::PREPARING_TO_DELETE, "1");
        change(&mut stored);
        apply(&mut stored, end);
        stored["metadata"]["labels"].get(keys::PREPARING_TO_DELETE).cloned()
    };
    let undo = |pod: &mut Value| label(pod, &Stage::UndoOperationType.key("set"), "scale-in");
    assert_eq!(left(&|_| {}, &undo), None);
    assert_eq!(left(&|_| {}, &|_| {}), Some(json!("1")), "nothing ends");
    let requested = |pod: &mut Value| label(pod, keys::TO_DELETE, "1");
    assert_eq!(left(&requested, &undo), Some(json!("1")), "the request is not withdrawn");
    let other = |pod: &mut Value| label(pod, &Stage::Operating.key("other"), "1");
    assert_eq!(left(&other, &undo), Some(json!("1")), "it may belong to the other one");
    let renewed = |pod: &mut Value| {
        undo(pod);
        label(pod, keys::PREPARING_TO_DELETE, "2");
    };
    assert_eq!(left(&|_| {}, &renewed), Some(json!("2")), "it is for the next one");
}

/// The Job controller must delete all pods of such a Job at once.
#[test]
fn a_pod_that_is_deleted_together_with_others_is_held_until_all_may_go() {
    let granted = |joint| {
        with(|pod| {
            label(pod, &Stage::Operating.key("pod-delete"), "1");
            label(pod, &Stage::OperationType.key("pod-delete"), "delete");
            label(pod, &Stage::Operate.key("pod-delete"), "1");
            gate_off(pod);
            let job = DeletionRequest::new(DeletionKind::Delete, "job-controller", NOW);
            let request = DeletionRequest { joint: Some(joint), ..job };
            pod["metadata"]["annotations"] = json!({keys::DELETION_REQUEST: request.to_text()});
        })
    };
    assert_eq!(hold(&granted(JointState::Waits), &delete(), &facts()), HoldVerdict::Hold);
    // It was stored on this pod, and maybe not yet on the others.
    let soon = granted(JointState::MayGoSince(NOW.0 + 1));
    assert_eq!(hold(&soon, &delete(), &facts()), HoldVerdict::Hold);
    let may_go = hold(&granted(JointState::MayGoSince(NOW.0)), &delete(), &facts());
    assert_eq!(may_go.reason(), Some(AllowReason::Granted));
}

#[test]
fn what_is_known_besides() {
    let since = |seconds: i64| NodeState::NotReadySince(UnixNanos(NOW.0 - seconds * 1_000_000_000));
    let rows = [
        (HoldFacts { node: NodeState::Unknown, ..facts() }, None),
        (HoldFacts { node: NodeState::Gone, ..facts() }, Some(AllowReason::NodeGone)),
        (HoldFacts { node: since(60), ..facts() }, None),
        (HoldFacts { node: since(61), ..facts() }, Some(AllowReason::NodeUnreachable)),
        (HoldFacts { node: since(-10), ..facts() }, None),
        (HoldFacts { namespace_terminating: true, ..facts() }, Some(AllowReason::NamespaceTerminating)),
    ];
    for (facts, expected) in rows {
        assert_eq!(hold(&with(|_| {}), &delete(), &facts).reason(), expected, "{facts:?}");
    }
    let dry = DeletionAttempt { dry_run: true, ..delete() };
    assert_eq!(hold(&with(|_| {}), &dry, &facts()).reason(), Some(AllowReason::DryRun));
}

#[test]
fn a_possible_loss_of_traffic_is_recorded_with_user_and_reason() {
    let pod = with(|pod| pod["metadata"]["annotations"][keys::BREAK_GLASS] = json!("INC-7: disk is full"));
    let HoldVerdict::Allow { reason, words } = hold(&pod, &delete(), &facts()) else { panic!("held") };
    assert!(reason.is_on_record());
    assert!(
        words.contains("jane") && words.contains("INC-7: disk is full") && words.contains("shop/web-0"),
        "{words}"
    );
    let old = with(|pod| pod["spec"]["readinessGates"] = Value::Null);
    let HoldVerdict::Allow { reason, words } = hold(&old, &delete(), &facts()) else { panic!("held") };
    assert!(reason.is_on_record() && words.contains("no readiness gate"), "{words}");
    assert!(!AllowReason::Terminating.is_on_record());
}

#[test]
fn the_answer_names_the_consumer_and_the_start_of_the_wait() {
    let request = DeletionRequest::new(DeletionKind::Delete, "jane", NOW);
    let held = with(|pod| {
        pod["metadata"]["finalizers"] =
            json!(["prot.podopslifecycle.kusionstack.io/a", "prot.podopslifecycle.kusionstack.io/b", "x"]);
        pod["metadata"]["annotations"][keys::AVAILABLE_CONDITIONS] = json!(
            r#"{"expectedFinalizers":{"LifecycleHook//traffic":"prot.podopslifecycle.kusionstack.io/a"}}"#
        );
        label(pod, &Stage::Operating.key("pod-delete"), "1");
        label(pod, &Stage::PreChecked.key("pod-delete"), "1");
        label(pod, &Stage::Preparing.key("pod-delete"), "1700000060000000000");
        pod["status"]["conditions"] = json!([{"type": keys::SERVICE_READY_GATE, "status": "False"}]);
    });
    let text = answer(&held, DeletionKind::Delete, RecordOutcome::Recorded(&request));
    assert!(
        text.starts_with(
            "pod deletion process is underway and being managed by PodOpsLifecycle with finalizers: \
         [prot.podopslifecycle.kusionstack.io/a prot.podopslifecycle.kusionstack.io/b]"
        ),
        "{text}"
    );
    assert!(text.contains(
        "waits since 2023-11-14T22:14:20Z for hook traffic, the owner of prot.podopslifecycle.kusionstack.io/b;"
    ), "{text}");
    assert!(text.contains("requested by jane at 2023-11-14T22:13:20Z"), "{text}");
    assert!(text.ends_with("kubectl label pod web-0 -n shop collaset.kusionstack.io/to-delete-"), "{text}");
    assert!(!text.contains("Eviction triggered evacuation"), "{text}");

    let evicted = answer(&held, DeletionKind::Evict, RecordOutcome::Recorded(&request));
    assert!(evicted.contains("Eviction triggered evacuation"), "{evicted}");
    assert_eq!(answer(&held, DeletionKind::Evict, RecordOutcome::Refused(BUDGET_REFUSAL)), BUDGET_REFUSAL);
    let failed = answer(&held, DeletionKind::Delete, RecordOutcome::Failed("no answer"));
    assert!(failed.contains("no answer") && failed.contains("try again"), "{failed}");
}

#[test]
fn while_it_is_checked_the_condition_says_what_it_waits_for() {
    let request = DeletionRequest::new(DeletionKind::Evict, "jane", NOW);
    let pod = with(|pod| {
        label(pod, &Stage::Operating.key("pod-delete"), "1");
        label(pod, &Stage::PreCheck.key("pod-delete"), "1");
        pod["status"]["conditions"] = json!([{"type": keys::LIFECYCLE_CONDITION, "status": "False", "message": "waits for the budget"}]);
    });
    assert!(
        answer(&pod, DeletionKind::Evict, RecordOutcome::Recorded(&request))
            .contains(": waits for the budget;")
    );
}
