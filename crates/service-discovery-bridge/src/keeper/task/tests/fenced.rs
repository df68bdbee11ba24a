//! A task that is stopped, or whose replica loses its Lease, while a change is made.

use podward_proto::v1::Phase;

use super::*;
use crate::model::Demand;

#[tokio::test]
async fn a_task_that_is_stopped_during_a_change_makes_no_other() {
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    // More than one batch.
    (1..=25).for_each(|number| fixture.put(pod(number)));
    fixture.registry.end_in_change(fixture.task.stop.clone());
    fixture.rounds().await;
    assert_eq!(fixture.registry.written().len(), 10);
    let refused = fixture.task.tracked.values().filter_map(TrackedPod::problem);
    // What was written is not read back any more.
    assert_eq!(refused.filter(|problem| problem.contains("it was not tried")).count(), 25);
}

#[tokio::test]
async fn changes_that_are_calls_of_their_own_are_not_made_after_the_task_was_stopped() {
    let mut fixture = Fixture::new(Memory { one_by_one: true, ..Memory::default() }, json!({}));
    (1..=5).for_each(|number| fixture.put(pod(number)));
    fixture.registry.end_in_change(fixture.task.stop.clone());
    fixture.rounds().await;
    assert_eq!(fixture.registry.written().len(), 1);
}

#[tokio::test]
async fn a_slow_registry_does_not_delay_the_end_of_a_task() {
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.registry.hang();
    let stop = fixture.task.stop.clone();
    let soon = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        stop.cancel();
    };
    let ends = tokio::time::timeout(Duration::from_secs(10), fixture.round());
    let (ended, ()) = tokio::join!(ends, soon);
    assert!(ended.is_ok(), "the read continues");
}

#[tokio::test]
async fn a_task_that_is_stopped_during_a_change_answers_nothing() {
    let drained = |number| BoundPod { demand: Demand::OutForUpdate, ..pod(number) };
    for lists in [true, false] {
        let mut fixture = Fixture::new(Memory { lists, ..Memory::default() }, json!({}));
        (1..=2).for_each(|number| fixture.put(pod(number)));
        fixture.rounds().await;
        fixture.put(drained(1));
        fixture.registry.end_in_change(fixture.task.stop.clone());
        fixture.open(Phase::Prepare, &drained(1));
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web"), ["10.0.0.2:8080"], "the change itself was made");
        fixture.task.calls.iter_mut().for_each(|call| call.until = Duration::ZERO);
        fixture.rounds().await;
        assert!(fixture.answers.try_recv().is_err());
    }
}

#[tokio::test]
async fn an_orphan_stays_after_the_task_was_stopped() {
    let mut fixture = Fixture::new(Memory { lists: true, ..Memory::default() }, json!({}));
    (1..=2).for_each(|number| fixture.put(pod(number)));
    fixture.rounds().await;
    fixture.put(BoundPod { labels: Default::default(), ..pod(1) });
    fixture.task.stop.cancel();
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web").len(), 2);
}

#[tokio::test]
async fn a_replica_that_could_not_renew_its_lease_changes_nothing() {
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    fixture.put(pod(1));
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    fixture.task.shared.tenure.confirm(long_ago);
    fixture.rounds().await;
    assert!(fixture.registry.written().is_empty());
    fixture.task.shared.tenure.confirm(Instant::now());
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
}
