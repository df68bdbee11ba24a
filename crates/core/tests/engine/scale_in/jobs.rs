//! Jobs: surplus pods, and the pods of a Job that ends, some of which wait for others.

use podward_core::deletion::JointDeletion::{After, Now};
use podward_core::deletion::{DeletionProgress, Workload, WorkloadPod, WorkloadPodRequest};

use super::{go, member, requested};

/// A Job that ends by a policy says so only after its pods are deleted.
#[test]
fn a_job_without_surplus_pods_ends_by_a_delete_of_its_controller() {
    use DeletionProgress::{Passed, Requested};
    let ends = |at| requested(at, true, Requested).map(|of| WorkloadPodRequest { ends_workload: true, ..of });
    let job = Workload::Job { wanted: 2, reported: 2, restart_limit: None };
    let active = [member("a", None), member("b", None)];
    assert!(job.ends_by_request(&active) && !Workload::Count { wanted: 2 }.ends_by_request(&active));
    assert_eq!(job.may_go(&active, "a", 1), Ok(()));
    let ending = [member("a", ends(1)), member("b", None)];
    assert_eq!(job.may_go(&ending, "b", 2), Ok(()));
    assert_eq!(go(&job.rule(&[member("a", ends(1)), member("b", ends(2))])), ["a", "b"]);

    // Surplus pods are counted, also when the parallelism rises again.
    let surplus = [member("a", requested(1, true, Passed)), member("b", None), member("c", None)];
    assert!(!job.ends_by_request(&surplus));
    assert!(job.may_go(&surplus, "b", 2).is_err());
    assert_eq!(go(&job.rule(&surplus)), ["a"]);
    assert_eq!(
        go(&Workload::Job { wanted: 3, reported: 3, restart_limit: None }.rule(&surplus)),
        Vec::<String>::new()
    );
}

/// Surplus pods are gone, and the Job's controller, which has not observed it, chooses another one.
#[test]
fn a_job_that_reports_surplus_pods_does_not_end() {
    let job = Workload::Job { wanted: 1, reported: 3, restart_limit: None };
    let left = [member("c", None)];
    assert!(!job.ends_by_request(&left));
    let why = job.may_go(&left, "c", 1).unwrap_err();
    assert!(why.contains("has 1 active pods and wants 1"), "{why}");
}

/// Restarts of a pod that is gone do not count, so that the Job would start again.
#[test]
fn the_pods_of_a_job_that_restarted_too_often_are_deleted_together() {
    use DeletionProgress::{Granted, Passed};
    let job = |restart_limit| Workload::Job { wanted: 2, reported: 2, restart_limit };
    let [draining, drained, both] = [(Granted, Passed), (Granted, Granted), (Passed, Passed)]
        .map(|(a, b)| [restarted("a", 1, a), restarted("b", 1, b), member("c", None)]);
    let (now, after) = (|name: &str| Now(vec![name.to_owned()]), |name: &str| After(vec![name.to_owned()]));
    assert_eq!(job(Some(2)).joint_deletion(&draining, "a"), after("b"));
    assert_eq!(job(Some(2)).joint_deletion(&drained, "a"), now("b"));
    // A pod on a lost node may be deleted although its drain has not ended. It does not wait for itself.
    assert_eq!(job(Some(2)).joint_deletion(&draining, "b"), now("a"));
    // Somebody else has deleted it, too.
    let mut also_by_others = draining.clone();
    also_by_others[1].request.as_mut().unwrap().by_workload = false;
    assert_eq!(job(Some(2)).joint_deletion(&also_by_others, "a"), after("b"));
    assert_eq!(job(Some(2)).joint_deletion(&both, "b"), after("a"));
    assert_eq!(job(Some(9)).joint_deletion(&both, "b"), after("a"), "the list is older than the restarts");

    let other_request = [member("a", requested(1, true, Granted)), restarted("b", 2, Passed)];
    assert_eq!(job(Some(2)).joint_deletion(&other_request, "a"), Now(Vec::new()));
    assert_eq!(job(None).joint_deletion(&draining, "a"), Now(Vec::new()));
}

/// The controller's deletes arrive one by one. If one is refused, the other pod must not have been the one that counts.
#[test]
fn the_pods_with_the_restarts_that_a_job_fails_by_go_last() {
    use DeletionProgress::{Granted, Passed};
    let job = Workload::Job { wanted: 3, reported: 3, restart_limit: Some(6) };
    let pods = [restarted("a", 6, Granted), restarted("b", 0, Granted), restarted("c", 5, Passed)];
    assert_eq!(job.joint_deletion(&pods, "b"), Now(Vec::new()));
    assert_eq!(job.joint_deletion(&pods, "c"), Now(Vec::new()));
    assert_eq!(job.joint_deletion(&pods, "a"), After(vec!["b".to_owned(), "c".to_owned()]));
    assert_eq!(job.joint_deletion(&pods[..1], "a"), Now(Vec::new()));

    let pods = [restarted("a", 4, Granted), restarted("b", 1, Granted), restarted("c", 5, Granted)];
    assert_eq!(job.joint_deletion(&pods, "b"), Now(Vec::new()));
    assert_eq!(job.joint_deletion(&pods, "a"), After(vec!["b".to_owned()]));
    let last = [pods[0].clone(), pods[2].clone()];
    assert_eq!(job.joint_deletion(&last, "a"), Now(vec!["c".to_owned()]));
}

/// Its containers were restarted after its wait had ended. It is deleted soon, and then its restarts do not count.
#[test]
fn a_pod_whose_wait_has_ended_frees_no_other_pod() {
    use DeletionProgress::Granted;
    let job = Workload::Job { wanted: 3, reported: 3, restart_limit: Some(6) };
    let wait_has_ended = |pod: WorkloadPod| {
        let request = pod.request.map(|request| WorkloadPodRequest { wait_has_ended: true, ..request });
        WorkloadPod { request, ..pod }
    };
    let mut pods = ["b", "c", "d", "x", "y"].map(|name| restarted(name, 2, Granted));
    assert_eq!(job.joint_deletion(&pods, "b"), Now(Vec::new()));
    pods[0] = wait_has_ended(restarted("b", 3, Granted));
    assert_eq!(job.joint_deletion(&pods, "d"), After(vec!["b".to_owned(), "c".to_owned()]));
    // It counts if the others are not enough: one of the last pods was written before the leader ended.
    let last = [restarted("a", 4, Granted), wait_has_ended(restarted("c", 2, Granted))];
    assert_eq!(job.joint_deletion(&last, "a"), Now(vec!["c".to_owned()]));
}

/// Returns a pod whose containers were restarted, and which the controller of its Job deletes because the Job ends.
fn restarted(name: &str, restarts: u32, progress: DeletionProgress) -> WorkloadPod {
    let request = requested(1, true, progress);
    let request = request.map(|request| WorkloadPodRequest { ends_workload: true, ..request });
    WorkloadPod { restarts, ..member(name, request) }
}
