//! A replica that takes a binding over, and does not know yet which pods are in service; and what must not keep it busy.

use super::*;
use crate::model::Demand;

fn unready(number: u8) -> BoundPod {
    BoundPod { demand: Demand::NotReady, ..pod(number) }
}

#[tokio::test]
async fn the_removal_limit_holds_before_the_first_comparison() {
    // One whose services cannot be listed for a while, and one that cannot be read.
    for registry in
        [Memory { lists: true, ..Memory::default() }, Memory { reads: false, ..Memory::default() }]
    {
        let mut fixture = Fixture::new(registry, json!({}));
        (1..=4).for_each(|number| fixture.put(pod(number)));
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web").len(), 4);
        fixture.registry.unlist(true);
        let index = Arc::clone(&fixture.task.shared.index);
        (1..=4).for_each(|number| fixture.put(unready(number)));
        fixture.replace_task(Shared { index, ..shared() });
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web").len(), 4);
        assert!(fixture.task.held.is_some());
        fixture.registry.unlist(false);
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web").len(), 4);
    }
}

#[tokio::test]
async fn an_instance_that_cannot_be_read_keeps_no_other_pod_from_being_added() {
    // Read one by one, and in a list.
    for count in [3, 12] {
        let mut fixture = Fixture::new(Memory::default(), json!({}));
        fixture.registry.spoil("10.0.0.1");
        (1..=count).for_each(|number| fixture.put(pod(number)));
        fixture.rounds().await;
        let shown = fixture.registry.shown("web");
        assert_eq!(shown.len(), usize::from(count) - 1, "{shown:?}");
        let problems: Vec<&str> = fixture.task.tracked.values().filter_map(TrackedPod::problem).collect();
        assert_eq!(problems, ["read at http://a: a value is no instance"]);
    }
}

/// The removal limit does not hold what is removed already.
#[tokio::test]
async fn pods_that_are_known_to_be_out_of_service_do_not_count_before_the_first_comparison() {
    let registry = Memory { lists: true, ..Memory::default() };
    registry.unlist(true);
    let mut fixture = Fixture::new(registry, json!({}));
    (1..=4).for_each(|number| fixture.put(pod(number)));
    fixture.put(unready(1));
    fixture.rounds().await;
    let count = |fixture: &Fixture| {
        let tracked = fixture.task.tracked.values();
        tracked.filter(|tracked| fixture.task.may_be_in_service(tracked)).count()
    };
    assert_eq!((fixture.task.is_seen, count(&fixture)), (false, 3));
}

/// Heartbeats and questions wait meanwhile.
#[tokio::test]
async fn an_address_that_does_not_answer_is_not_waited_for_again_and_again() {
    let addresses = ["http://a", "http://b"].map(str::to_owned).into();
    // Lists are not used, so each pod is read for itself.
    let list_lag = Duration::from_millis(1);
    let mut fixture =
        Fixture::new(Memory { addresses, silent: Some(1), list_lag, ..Memory::default() }, json!({}));
    (1..=60).for_each(|number| fixture.put(pod(number)));
    fixture.round().await;
    assert_eq!(fixture.registry.shown("web").len(), 60);
    let reads = fixture.registry.silent_reads();
    assert!(reads <= 20, "{reads} reads");
}

#[tokio::test]
async fn removals_that_are_held_do_not_keep_the_task_busy() {
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    (1..=4).for_each(|number| fixture.put(pod(number)));
    fixture.rounds().await;
    (1..=4).for_each(|number| fixture.put(unready(number)));
    fixture.round().await;
    assert!(fixture.task.held.is_some());
    let pause = fixture.task.pause(&fixture.binding, &fixture.access);
    assert!(pause >= Duration::from_secs(1), "{pause:?}");
}
