//! Updates of opted-in pods.

use super::*;

#[test]
fn an_opted_in_pod_is_updated_with_an_operation() {
    let set = set(1);
    let begin = |operation| SetPod { operation, ..old("a") };
    let step = only(plan(&set, &[begin(Operation::None)]));
    assert_eq!((step.state, step.operation), (Some(State::PreparingUpdate), Some(OperationStep::Begin)));
    let waits = |operation| in_state(State::PreparingUpdate, begin(operation));
    assert_eq!(plan(&set, &[waits(Operation::Begun)]), Plan::default());
    assert!(only(plan(&set, &[waits(Operation::Granted)])).update);
    let reverted = SetPod { revision: PodRevision::Update, ..waits(Operation::Granted) };
    let step = only(plan(&set, &[reverted]));
    assert_eq!((step.state, step.operation), (Some(State::Normal), Some(OperationStep::Cancel)));
    let done = SetPod {
        operation: Operation::Granted,
        update_ready: Some(false),
        ..in_state(State::Updating, pod("a"))
    };
    let step = only(plan(&set, &[done]));
    assert_eq!((step.state, step.operation), (Some(State::Updated), Some(OperationStep::Finish)));
    let finished = in_state(State::Updated, SetPod { operation: Operation::Finished, ..pod("a") });
    assert_eq!(plan(&set, std::slice::from_ref(&finished)), Plan::default(), "it is not in service yet");
    let ended = SetPod { operation: Operation::None, ..finished };
    assert_eq!(only(plan(&set, &[ended])).state, Some(State::Normal));
}

#[test]
fn an_operation_that_is_not_completed_begins_again() {
    // The last release does not get Ready, so Podward cannot complete the operation.
    let bad = SetPod { operation: Operation::Finished, ready: false, ..old("a") };
    for state in [State::Updated, State::PreparingUpdate] {
        let step = only(plan(&set(1), &[in_state(state, bad.clone())]));
        assert_eq!((step.operation, step.update), (Some(OperationStep::Begin), false), "{state}");
    }
    let unconfirmed = without("unready-blocker-inplace", in_state(State::Updated, bad.clone()));
    let step = only(plan(&with_hooks(1), &[unconfirmed]));
    assert_eq!((step.operation, step.rearm), (Some(OperationStep::Begin), Some(Rearm::Begin)));
    let kept = SetSpec { partition: Amount::Count(1), ..set(1) };
    assert_eq!(plan(&kept, &[in_state(State::Updated, bad)]), Plan::default(), "it is not updated");
}

/// An opted-in pod of which some containers were replaced, with this operation.
fn updating(operation: Operation, progress: UpdateProgress) -> SetPod {
    let pod = SetPod { operation, progress, update_ready: Some(false), ready: false, ..pod("a") };
    in_state(State::Updating, pod)
}

/// Consumers may use the pod again.
#[test]
fn no_container_is_replaced_after_the_operation_was_cancelled() {
    let next = |operation| updating(operation, UpdateProgress::NextBatch);
    let newer = |operation| SetPod { revision: PodRevision::Other { in_place: true }, ..next(operation) };
    let begins = PodStep { operation: Some(OperationStep::Begin), ..PodStep::of(0) };
    for operation in [Operation::None, Operation::Finished] {
        assert_eq!(only(plan(&set(1), &[next(operation)])), begins);
        assert_eq!(only(plan(&set(1), &[newer(operation)])), begins);
    }
    assert_eq!(plan(&set(1), &[next(Operation::Begun)]), Plan::default());
    assert_eq!(plan(&set(1), &[newer(Operation::Begun)]), Plan::default());
    for operation in [Operation::NotNeeded, Operation::Granted] {
        let (next, newer) = (plan(&set(1), &[next(operation)]), plan(&set(1), &[newer(operation)]));
        assert_eq!(only(next), PodStep { next_batch: true, ..PodStep::of(0) });
        assert_eq!(only(newer), PodStep { update: true, ..PodStep::of(0) });
    }
}

/// The template was reverted.
#[test]
fn an_operation_that_was_begun_again_is_cancelled_if_nothing_more_is_replaced() {
    let step = only(plan(&set(1), &[updating(Operation::Begun, UpdateProgress::Done)]));
    assert_eq!((step.state, step.operation), (Some(State::Updated), Some(OperationStep::Cancel)));
}
