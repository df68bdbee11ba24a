//! A replica that takes a binding over, and does not know yet which pods are in service; and what must not keep it busy.

use podward_proto::v1::{EvidenceLevel, Phase};

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

/// As Kubernetes names them, so that the id of its instance is recognized.
fn with_uid(number: u8) -> BoundPod {
    BoundPod { uid: format!("0f1c7a52-6d0e-4d5c-9a53-1f6a1f0c9c1{number}"), ..pod(number) }
}

fn drained(number: u8) -> BoundPod {
    BoundPod { demand: Demand::OutForUpdate, ..pod(number) }
}

#[tokio::test]
async fn an_instance_that_cannot_be_read_keeps_only_its_own_pod() {
    // Read one by one, and in a list.
    for count in [3, 12] {
        let mut fixture = Fixture::new(Memory { lists: true, ..Memory::default() }, json!({}));
        fixture.registry.spoil("web", &pod(1));
        (1..=count).for_each(|number| fixture.put(pod(number)));
        fixture.rounds().await;
        let shown = fixture.registry.shown("web");
        assert_eq!(shown.len(), usize::from(count) - 1, "{shown:?}");
        let problems: Vec<&str> = fixture.task.tracked.values().filter_map(TrackedPod::problem).collect();
        assert_eq!(problems, ["read at http://a: a value is no instance"]);
        assert!(fixture.task.comparison_due > Duration::from_secs(3), "{:?}", fixture.task.comparison_due);
        fixture.registry.lose("10.0.0.2");
        fixture.rounds().await;
        assert!(fixture.registry.shown("web").contains(&"10.0.0.2:8080".to_owned()));
        fixture.put(drained(3));
        assert_eq!(fixture.ask(Phase::Prepare, &drained(3)).await, Ok(EvidenceLevel::Proven));
        fixture.task.calls.clear();
        fixture.put(drained(1));
        let why = fixture.ask(Phase::Prepare, &drained(1)).await.unwrap_err();
        assert!(why.contains("a value is no instance"), "{why}");
    }
}

#[tokio::test]
async fn what_others_store_and_cannot_be_read_holds_no_drain() {
    for by_address in [false, true] {
        let registry = Memory { lists: true, by_address, ..Memory::default() };
        let mut fixture = Fixture::new(registry, json!({}));
        fixture.registry.spoil("other", &with_uid(9));
        (1..=3).for_each(|number| fixture.put(pod(number)));
        fixture.rounds().await;
        fixture.put(drained(2));
        assert_eq!(fixture.ask(Phase::Prepare, &drained(2)).await, Ok(EvidenceLevel::Proven));
        assert_eq!(fixture.task.suspects.is_empty(), by_address);
        Arc::make_mut(&mut fixture.binding).deleting = true;
        fixture.rounds().await;
        assert!(fixture.task.is_finished(&fixture.binding));
    }
}

#[tokio::test]
async fn an_instance_that_a_pod_may_have_left_and_that_cannot_be_read_holds_only_this_pod() {
    let mut fixture = Fixture::new(Memory { lists: true, ..Memory::default() }, json!({}));
    fixture.registry.spoil("old", &with_uid(1));
    [with_uid(1), pod(2)].into_iter().for_each(|pod| fixture.put(pod));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web").len(), 2);
    fixture.put(drained(2));
    assert_eq!(fixture.ask(Phase::Prepare, &drained(2)).await, Ok(EvidenceLevel::Proven));
    fixture.task.calls.clear();
    let first = BoundPod { demand: Demand::OutForUpdate, ..with_uid(1) };
    fixture.put(first.clone());
    let why = fixture.ask(Phase::Prepare, &first).await.unwrap_err();
    assert!(why.contains("a value is no instance"), "{why}");
    fixture.task.calls.clear();
    fixture.registry.correct();
    assert_eq!(fixture.ask(Phase::Prepare, &first).await, Ok(EvidenceLevel::Proven));
}

/// The keys of the registry have no UIDs.
#[tokio::test]
async fn an_address_that_a_pod_may_have_left_and_that_cannot_be_read_holds_only_this_pod() {
    let service = |name: &str| json!({"service": {"name": name}});
    let registry = Memory { lists: true, by_address: true, ..Memory::default() };
    let mut fixture = Fixture::new(registry, service("old"));
    (1..=2).for_each(|number| fixture.put(pod(number)));
    fixture.rounds().await;
    fixture.registry.spoil("old", &pod(1));
    fixture.bind(service("new"));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("new").len(), 2);
    fixture.put(drained(2));
    assert_eq!(fixture.ask(Phase::Prepare, &drained(2)).await, Ok(EvidenceLevel::Proven));
    fixture.task.calls.clear();
    fixture.put(drained(1));
    let why = fixture.ask(Phase::Prepare, &drained(1)).await.unwrap_err();
    assert!(why.contains("a value is no instance"), "{why}");
    // No pod of the other replica has ever had the service.
    let index = Arc::clone(&fixture.task.shared.index);
    fixture.replace_task(Shared { index, ..shared() });
    fixture.rounds().await;
    let why = fixture.ask(Phase::Prepare, &drained(1)).await.unwrap_err();
    assert!(why.contains("a value is no instance"), "{why}");
    fixture.task.calls.clear();
    assert_eq!(fixture.ask(Phase::Prepare, &drained(2)).await, Ok(EvidenceLevel::Proven));
    fixture.registry.correct();
    assert_eq!(fixture.ask(Phase::Prepare, &drained(1)).await, Ok(EvidenceLevel::Proven));
}

/// Applications have keys with addresses too.
#[tokio::test]
async fn an_address_in_an_unknown_service_holds_no_pod_without_a_trace_of_a_mark() {
    let registry = Memory { lists: true, by_address: true, marks: false, ..Memory::default() };
    let mut fixture = Fixture::new(registry, json!({}));
    fixture.registry.spoil("of an application", &pod(1));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.put(drained(1));
    assert_eq!(fixture.ask(Phase::Prepare, &drained(1)).await, Ok(EvidenceLevel::Proven));
}

#[tokio::test]
async fn a_deleted_binding_waits_for_what_may_be_its_instance() {
    for (service, waits) in [("web", true), ("of another binding", false)] {
        let mut fixture = Fixture::new(Memory { lists: true, ..Memory::default() }, json!({}));
        (1..=2).for_each(|number| fixture.put(pod(number)));
        fixture.rounds().await;
        // Its pod is gone.
        fixture.registry.spoil(service, &with_uid(3));
        Arc::make_mut(&mut fixture.binding).deleting = true;
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web"), Vec::<String>::new());
        assert_eq!(fixture.task.is_finished(&fixture.binding), !waits, "{service}");
        let why = fixture.task.remainder(&fixture.binding).unwrap_or_default();
        assert_eq!(why.contains("a value is no instance"), waits, "{why}");
        fixture.registry.correct();
        fixture.rounds().await;
        assert!(fixture.task.is_finished(&fixture.binding), "{service}");
    }
}

#[tokio::test]
async fn a_pod_is_not_released_while_its_instance_cannot_be_read() {
    let mut fixture = Fixture::new(Memory { lists: true, ..Memory::default() }, json!({}));
    let unselected = BoundPod { labels: Default::default(), ..with_uid(1) };
    fixture.registry.spoil("web", &unselected);
    fixture.put(unselected.clone());
    let why = fixture.ask(Phase::Release, &unselected).await.unwrap_err();
    assert!(why.contains("a value is no instance"), "{why}");
    fixture.task.calls.clear();
    fixture.registry.correct();
    assert_eq!(fixture.ask(Phase::Release, &unselected).await, Ok(EvidenceLevel::Proven));
}

/// Each comparison reads the whole registry.
#[tokio::test]
async fn a_question_that_cannot_be_answered_yet_does_not_keep_the_task_busy() {
    let unselected = BoundPod { labels: Default::default(), ..with_uid(1) };
    // An entry that cannot be read, and an address that does not answer.
    for (is_unlisted, at_least) in [(false, 3), (true, 1)] {
        let mut fixture = Fixture::new(Memory { lists: true, ..Memory::default() }, json!({}));
        fixture.put(unselected.clone());
        if !is_unlisted {
            fixture.registry.spoil("web", &unselected);
        }
        fixture.registry.unlist(is_unlisted);
        fixture.open(Phase::Release, &unselected);
        fixture.round().await;
        assert_eq!(fixture.task.calls.len(), 1);
        let pause = fixture.task.pause(&fixture.binding, &fixture.access);
        assert!(pause >= Duration::from_secs(at_least), "{is_unlisted}: {pause:?}");
    }
}

/// A list shows for a while what was deregistered.
#[tokio::test]
async fn a_question_does_not_have_a_registry_compared_whose_lists_are_old() {
    let list_lag = Duration::from_secs(30);
    let mut fixture = Fixture::new(Memory { lists: true, list_lag, ..Memory::default() }, json!({}));
    fixture.put(pod(1));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
    let unselected = BoundPod { labels: Default::default(), ..pod(1) };
    fixture.put(unselected.clone());
    fixture.open(Phase::Release, &unselected);
    fixture.round().await;
    assert_eq!(fixture.registry.shown("web"), Vec::<String>::new());
    let due = fixture.task.comparison_due.saturating_sub(fixture.task.shared.index.now());
    assert!(due > Duration::from_secs(20) && due <= Duration::from_secs(31), "{due:?}");
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

/// The server stores it after the client has given up.
#[tokio::test]
async fn a_removal_waits_for_a_registration_whose_result_is_not_known() {
    for registry in [Memory::default(), Memory { reads: false, ..Memory::default() }] {
        let level = if registry.reads { EvidenceLevel::Proven } else { EvidenceLevel::Assumed };
        let mut fixture = Fixture::new(registry, json!({}));
        fixture.registry.delay();
        fixture.put(pod(1));
        fixture.round().await;
        fixture.put(drained(1));
        let why = fixture.ask(Phase::Prepare, &drained(1)).await.unwrap_err();
        assert!(why.contains("may still take effect"), "{why}");
        fixture.task.calls.clear();
        fixture.registry.arrive();
        assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
        fixture.task.tracked.values_mut().for_each(|tracked| tracked.in_doubt_until = Duration::ZERO);
        assert_eq!(fixture.ask(Phase::Prepare, &drained(1)).await, Ok(level));
        assert_eq!(fixture.registry.shown("web"), Vec::<String>::new());
    }
}

/// Another replica has read none of its services.
#[tokio::test]
async fn the_service_of_a_pod_that_is_not_selected_any_more_is_read_before_it_is_released() {
    // It may have been registered where nobody looks, if the label that names its service has changed.
    for (track, is_other_replica, level, is_removed) in [
        (Some("a"), true, EvidenceLevel::Assumed, true),
        (Some("b"), true, EvidenceLevel::Assumed, false),
        (None, true, EvidenceLevel::Assumed, false),
        (Some("b"), false, EvidenceLevel::Proven, true),
    ] {
        let spec = json!({"service": {"name": "${pod.labels['track']}"}});
        let mut fixture = Fixture::new(Memory::default(), spec);
        let mut selected = pod(1);
        selected.labels.insert("track".to_owned(), "a".to_owned());
        fixture.put(selected.clone());
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("a"), ["10.0.0.1:8080"]);
        let labels = track.map(|track| ("track".to_owned(), track.to_owned())).into_iter().collect();
        let unselected = BoundPod { labels, ..pod(1) };
        fixture.put(unselected.clone());
        if is_other_replica {
            let index = Arc::clone(&fixture.task.shared.index);
            fixture.replace_task(Shared { index, ..shared() });
        }
        // The question comes before the first comparison, and after it.
        for phase in [Phase::Prepare, Phase::Release] {
            assert_eq!(fixture.ask(phase, &unselected).await, Ok(level), "{track:?}");
            assert_eq!(fixture.registry.shown("a").is_empty(), is_removed, "{track:?}");
        }
    }
}
