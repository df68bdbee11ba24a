//! A deletion is requested while the pod has a request already.

use podward_core::UnixNanos;
use podward_core::deletion::request::{DeletionKind, DeletionRequest, JointState, postpone, replace};
use podward_core::keys::DELETION_REQUEST;

use super::deletion_requests::{Marked, NOW};

const JOB_CONTROLLER: &str = "system:serviceaccount:kube-system:job-controller";
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

#[test]
fn the_stronger_request_counts() {
    let request = |kind, by_workload| DeletionRequest { by_workload, ..DeletionRequest::new(kind, "x", NOW) };
    use DeletionKind::{Delete, Evict};
    let rows = [
        (request(Evict, false), request(Delete, false), true),
        (request(Delete, false), request(Evict, false), false),
        (request(Delete, false), request(Delete, false), false),
        (request(Delete, true), request(Delete, false), true),
        (request(Delete, true), request(Delete, true), false),
        (request(Delete, true), request(Evict, false), true),
        (request(Delete, true), request(Evict, true), false),
        (request(Evict, false), request(Delete, true), true),
    ];
    for (present, new, changes) in rows {
        assert_eq!(present.joined_by(&new, false).is_some(), changes, "{present:?} joined by {new:?}");
    }
    let evict =
        DeletionRequest { reserved_at: Some(3), cost_before: Some("5".to_owned()), ..request(Evict, false) };
    let joined = evict
        .joined_by(&DeletionRequest { grace_period_seconds: Some(0), ..request(Delete, false) }, false)
        .unwrap();
    assert_eq!(
        (joined.kind, joined.grace_period_seconds, joined.cost_before.as_deref()),
        (Delete, Some(0), Some("5"))
    );
    assert!(replace(&joined).labels.is_empty() && joined.replaced_eviction.is_none());
    // The eviction is not lost when the workload takes it over.
    let postponed = DeletionRequest { not_before: Some(9), ..evict.clone() };
    let joined = postponed.joined_by(&request(Delete, true), false).unwrap();
    assert_eq!((joined.by_workload, joined.cost_before.as_deref()), (true, Some("5")));
    assert_eq!(DeletionRequest::parse(&joined.to_text()), Some(joined.clone()));
    assert_eq!(joined.replaced_eviction.as_deref(), Some(&evict));
    assert_eq!(joined.joined_by(&request(Delete, false), false).unwrap().replaced_eviction, None);
    assert_eq!(joined.joined_by(&request(Evict, false), false), None, "one eviction is enough");
    // The deletion cost before the delete is restored too when the eviction is cancelled.
    let delete = DeletionRequest { cost_before: Some("5".to_owned()), ..request(Delete, true) };
    let joined = delete.joined_by(&request(Evict, false), false).unwrap();
    let kept = DeletionRequest { cost_before: Some("5".to_owned()), ..request(Evict, false) };
    assert_eq!(joined.replaced_eviction.as_deref(), Some(&kept));
    assert_eq!(DeletionRequest { replaced_eviction: None, ..joined }, delete);
}

/// Its other pods would count as missing, and its restarts be lost with the pod.
#[test]
fn a_job_that_ends_still_ends_if_somebody_else_deletes_its_pod_too() {
    use DeletionKind::{Delete, Evict};
    let of = |kind, by: &str| DeletionRequest::new(kind, by, NOW);
    let ending = |request| DeletionRequest { ends_workload: true, joint: Some(JointState::Waits), ..request };
    for controller in [JOB_CONTROLLER, CONTROLLER_MANAGER] {
        let by_job = DeletionRequest { by_workload: true, ..of(Delete, controller) };
        let joined = ending(by_job.clone()).joined_by(&of(Delete, "jane"), true).unwrap();
        assert_eq!(joined, ending(of(Delete, "jane")));
        assert_eq!(joined.joined_by(&by_job, true), None, "it is known already");

        // The other order: the caller finds out whether the Job ends.
        let joined = of(Delete, "jane").joined_by(&by_job, true).unwrap();
        assert_eq!(joined, of(Delete, "jane"), "the workload cannot withdraw it");
        assert_eq!(of(Delete, "jane").joined_by(&of(Evict, controller), true), None);
        assert_eq!(
            of(Delete, "jane").joined_by(&by_job, false),
            None,
            "the pod of a ReplicaSet, for example"
        );
    }
}

/// Nobody moves the pod to PreparingDelete any more when its CloneSet is gone.
#[test]
fn a_delete_by_the_garbage_collector_replaces_that_of_a_user() {
    let of = |kind, by: &str| DeletionRequest { requested_at: 1, ..DeletionRequest::new(kind, by, NOW) };
    use DeletionKind::{Delete, Evict};
    let user =
        DeletionRequest { cost_before: Some("5".to_owned()), not_before: Some(9), ..of(Delete, "jane") };
    for cleaner in [GARBAGE_COLLECTOR, NAMESPACE_CONTROLLER, CONTROLLER_MANAGER] {
        let joined = user.joined_by(&of(Delete, cleaner), false).unwrap();
        assert_eq!(joined, DeletionRequest { cost_before: Some("5".to_owned()), ..of(Delete, cleaner) });
        assert_eq!(joined.joined_by(&of(Delete, "jane"), false), None);
        assert_eq!(joined.joined_by(&of(Delete, GARBAGE_COLLECTOR), false), None);
        assert_eq!(user.joined_by(&of(Evict, cleaner), false), None);
    }
    // A workload may withdraw its request later, so it does not replace another one.
    let scale_in = DeletionRequest { by_workload: true, ..of(Delete, CONTROLLER_MANAGER) };
    assert_eq!(user.joined_by(&scale_in, false), None);
}

/// A newer version has written it, and writes it again after a rollback.
#[test]
fn members_that_are_not_known_stay() {
    let text = |by: &str| {
        format!(
            r#"{{"kind":"Evict","requestedBy":"{by}","requestedAt":1,"byWorkload":false,"later":{{"a":[1.5]}}}}"#
        )
    };
    let request = DeletionRequest::parse(&text("jane")).unwrap();
    assert_eq!(request.to_text(), text("jane"));
    let later = |request: &DeletionRequest| request.unknown.get("later").cloned();
    let by_joe = DeletionRequest::new(DeletionKind::Delete, "joe", NOW);
    assert_eq!(later(&request.joined_by(&by_joe, false).unwrap()), later(&request));

    let by_workload = DeletionRequest { by_workload: true, ..by_joe };
    let joined = request.joined_by(&by_workload, false).unwrap();
    let joined = DeletionRequest::parse(&joined.to_text()).unwrap();
    assert_eq!(joined.replaced_eviction.as_deref(), Some(&request));
    let marked = Marked::recorded(false);
    let postponed = marked.with(|pod| postpone(pod, &request, UnixNanos(99)));
    let postponed = postponed.annotations[DELETION_REQUEST].as_deref().and_then(DeletionRequest::parse);
    assert_eq!(later(&postponed.unwrap()), later(&request));
}
