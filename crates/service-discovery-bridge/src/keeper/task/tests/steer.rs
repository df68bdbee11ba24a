//! Applications that register themselves.

use podward_proto::v1::{EvidenceLevel, Phase};
use podward_registries::{Change, Instance, Registry, ServiceKey};

use super::*;
use crate::keeper::tracked::SyncState;
use crate::model::Demand;

/// Returns a fixture with a pod whose application has registered itself by an id of its own.
async fn fixture(registry: Memory) -> Fixture {
    let mut fixture = Fixture::new(Memory { by_address: true, ..registry }, json!({"mode": "Steer"}));
    fixture.put(pod(1));
    register(&fixture).await;
    fixture.rounds().await;
    fixture.registry.written();
    fixture
}

/// The application registers itself as in service.
async fn register(fixture: &Fixture) {
    register_as(fixture, "of the application", true).await;
}

/// The application registers itself with an id, and reports whether it is healthy.
async fn register_as(fixture: &Fixture, id: &str, is_healthy: bool) {
    let service = ServiceKey { name: "web".to_owned(), ..ServiceKey::default() };
    let instance = Instance {
        id: id.to_owned(),
        host: "10.0.0.1".to_owned(),
        port: 8080,
        cluster: String::new(),
        weight: 1.0,
        metadata: Default::default(),
        in_service: is_healthy,
        may_return: !is_healthy,
        version: None,
    };
    let written = fixture.registry.write(&[Change::Register(service, instance)]).await;
    assert!(written.iter().all(Result::is_ok));
}

#[tokio::test]
async fn an_application_that_starts_again_is_taken_out_of_service_again() {
    let mut fixture = fixture(Memory::default()).await;
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(EvidenceLevel::Proven));
    fixture.task.calls.clear();
    register(&fixture).await;
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web"), Vec::<String>::new());
}

#[tokio::test]
async fn an_application_that_is_not_healthy_is_taken_out_of_service() {
    let mut fixture = fixture(Memory::default()).await;
    register_as(&fixture, "of the application", false).await;
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(EvidenceLevel::Proven));
    fixture.registry.heal();
    assert_eq!(fixture.registry.shown("web"), Vec::<String>::new(), "nothing was written");
    fixture.put(pod(1));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
}

#[tokio::test]
async fn all_instances_at_the_address_of_a_pod_are_taken_out_of_service() {
    // Read in lists, and one by one.
    for (list_lag, level) in
        [(Duration::ZERO, EvidenceLevel::Proven), (Duration::from_nanos(1), EvidenceLevel::Bounded)]
    {
        let registry = Memory { list_lag, ..Memory::default() };
        let mut fixture = Fixture::new(registry, json!({"mode": "Steer"}));
        fixture.put(pod(1));
        register_as(&fixture, "before the start", true).await;
        register_as(&fixture, "after the start", true).await;
        fixture.rounds().await;
        let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
        fixture.put(drained.clone());
        assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(level));
        assert_eq!(fixture.registry.shown("web"), Vec::<String>::new());
        fixture.put(pod(1));
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web").len(), 2);
    }
}

/// The list is older than the registration of the application. Clients that read single instances find it.
#[tokio::test]
async fn an_instance_that_a_list_may_lack_is_waited_for_although_clients_keep_nothing() {
    let registry = Memory { list_lag: Duration::from_secs(3600), ..Memory::default() };
    let mut fixture = Fixture::new(registry, json!({"mode": "Steer"}));
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    let why = fixture.ask(Phase::Prepare, &drained).await.unwrap_err();
    assert!(why.contains("clients may use what they have read before"), "{why}");
    fixture.task.calls.clear();
    register(&fixture).await;
    fixture.access.capabilities.list_lag = Duration::from_nanos(1);
    assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(EvidenceLevel::Bounded));
    assert_eq!(fixture.registry.shown("web"), Vec::<String>::new());
}

#[tokio::test]
async fn an_earlier_registration_that_is_not_healthy_does_not_delay_an_application() {
    let mut fixture = Fixture::new(Memory::default(), json!({"mode": "Steer"}));
    fixture.put(pod(1));
    register_as(&fixture, "before the start", false).await;
    register_as(&fixture, "after the start", true).await;
    assert_eq!(fixture.ask(Phase::Complete, &pod(1)).await, Ok(EvidenceLevel::Proven));
    let written = fixture.registry.written();
    assert!(written.iter().all(|change| change.starts_with("register")), "{written:?}");
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_holds_the_removal_of_the_pod_that_it_may_belong_to() {
    // That of another pod, that of this pod, and that of nobody knows whom.
    for (ip, is_held) in [("10.0.0.9", false), ("10.0.0.1", true), ("", true)] {
        let mut fixture = Fixture::new(Memory::default(), json!({"mode": "Steer"}));
        fixture.put(pod(1));
        register(&fixture).await;
        fixture.registry.spoil("web", &BoundPod { ip: ip.to_owned(), ..pod(9) });
        assert_eq!(fixture.ask(Phase::Complete, &pod(1)).await, Ok(EvidenceLevel::Proven), "{ip}");
        fixture.task.calls.clear();
        let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
        fixture.put(drained.clone());
        let answer = fixture.ask(Phase::Prepare, &drained).await;
        let is_named = answer.as_ref().is_err_and(|why| why.contains("a value is no instance"));
        assert_eq!((answer.is_ok(), is_named), (!is_held, is_held), "{ip}: {answer:?}");
    }
}

/// Its status is the application's own.
#[tokio::test]
async fn an_application_that_is_not_healthy_is_waited_for() {
    let mut fixture = Fixture::new(Memory::default(), json!({"mode": "Steer"}));
    fixture.put(pod(1));
    register_as(&fixture, "of the application", false).await;
    fixture.registry.written();
    let why = fixture.ask(Phase::Complete, &pod(1)).await.unwrap_err();
    assert!(why.contains("is registered, but not healthy"), "{why}");
    assert_eq!(fixture.registry.written(), Vec::<String>::new());
    fixture.task.calls.clear();
    fixture.registry.heal();
    assert_eq!(fixture.ask(Phase::Complete, &pod(1)).await, Ok(EvidenceLevel::Proven));
}

#[tokio::test]
async fn an_earlier_registration_that_is_not_healthy_does_not_keep_another_one_out_of_service() {
    let mut fixture = Fixture::new(Memory::default(), json!({"mode": "Steer"}));
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    register_as(&fixture, "of the application", true).await;
    assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(EvidenceLevel::Proven));
    register_as(&fixture, "before the start", false).await;
    fixture.task.calls.clear();
    fixture.put(pod(1));
    assert_eq!(fixture.ask(Phase::Complete, &pod(1)).await, Ok(EvidenceLevel::Proven));
}

#[tokio::test]
async fn the_application_sends_heartbeats_itself() {
    let mut fixture = fixture(Memory { renewal: Some(Duration::ZERO), ..Memory::default() }).await;
    for _ in 0..3 {
        fixture.task.renewal_due = Duration::ZERO;
        fixture.round().await;
    }
    assert_eq!(fixture.registry.written(), Vec::<String>::new());
    assert!(fixture.task.tracked.values().all(|tracked| matches!(tracked.state, SyncState::Shown { .. })));
}

/// Nobody else would put it back.
#[tokio::test]
async fn an_application_that_is_out_of_service_is_put_back_although_its_pod_leaves_the_binding() {
    for (is_deleted, is_other_replica, is_gone) in
        [(false, false, false), (true, false, false), (true, true, false), (true, false, true)]
    {
        let mut fixture = fixture(Memory::default()).await;
        let drained = BoundPod { demand: Demand::OutForUpdate, controlled: true, ..pod(1) };
        fixture.put(drained.clone());
        assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(EvidenceLevel::Proven));
        fixture.task.calls.clear();
        if is_other_replica {
            let index = Arc::clone(&fixture.task.shared.index);
            fixture.replace_task(Shared { index, ..shared() });
        }
        Arc::make_mut(&mut fixture.binding).deleting = is_deleted;
        let labels = if is_deleted { pod(1).labels } else { Default::default() };
        let left = |demand| BoundPod { labels: labels.clone(), demand, ..drained.clone() };
        for demand in [Demand::OutForUpdate, Demand::NotReady] {
            fixture.put(left(demand));
            assert!(fixture.task.has_taken_out(&fixture.binding));
            fixture.rounds().await;
            assert_eq!(fixture.registry.shown("web"), Vec::<String>::new(), "it is operated on");
            assert!(!fixture.task.is_finished(&fixture.binding));
            let why = fixture.task.remainder(&fixture.binding);
            assert_eq!(why.is_some_and(|why| why.contains("such as web-1")), is_deleted);
        }
        match is_gone {
            true => fixture.task.shared.index.remove_pod("shop", &pod(1).uid),
            false => fixture.put(left(Demand::InService)),
        }
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web").len(), usize::from(!is_gone));
        assert!(fixture.task.tracked.is_empty() && !fixture.task.has_taken_out(&fixture.binding));
        assert!(fixture.task.is_finished(&fixture.binding));
    }
}

/// It may register itself by another port or service, or not at all.
#[tokio::test]
async fn a_deleted_binding_says_which_application_it_waits_for() {
    let mut fixture = fixture(Memory::default()).await;
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(EvidenceLevel::Proven));
    fixture.task.calls.clear();
    Arc::make_mut(&mut fixture.binding).deleting = true;
    fixture.put(pod(1));
    for is_registered in [true, false] {
        match is_registered {
            true => register_as(&fixture, "of the application", false).await,
            false => fixture.registry.lose("10.0.0.1"),
        }
        fixture.rounds().await;
        assert!(!fixture.task.is_finished(&fixture.binding));
        let why = fixture.task.remainder(&fixture.binding).unwrap();
        let reason = if is_registered { "registered, but not healthy" } else { "has not registered" };
        assert!(why.contains("web-1: ") && why.contains(reason), "{why}");
    }
    register_as(&fixture, "of the application", true).await;
    fixture.rounds().await;
    assert!(fixture.task.is_finished(&fixture.binding) && !fixture.task.has_taken_out(&fixture.binding));
}
