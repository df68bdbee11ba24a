//! Pods whose instance gets another service, id or address.

use podward_proto::v1::{EvidenceLevel, Phase};

use super::*;
use crate::model::Demand;

fn service(name: &str) -> Value {
    json!({"service": {"name": name}})
}

#[tokio::test]
async fn the_instance_of_the_old_service_is_removed_after_the_new_one_is_shown() {
    for lists in [false, true] {
        let mut fixture = Fixture::new(Memory { lists, ..Memory::default() }, service("old"));
        fixture.put(pod(1));
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("old"), ["10.0.0.1:8080"]);

        fixture.bind(service("new"));
        fixture.registry.refuse(Some("register 10.0.0.1:8080 of service new"));
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("old"), ["10.0.0.1:8080"], "there is no other one yet");

        fixture.registry.refuse(None);
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("new"), ["10.0.0.1:8080"]);
        assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());
        let written = fixture.registry.written();
        assert_eq!(written.last().map(String::as_str), Some("deregister 10.0.0.1:8080 of service old"));
        assert!(!fixture.task.services.iter().any(|service| service.name == "old"), "it is empty");
    }
}

#[tokio::test]
async fn the_instance_with_the_old_port_is_removed() {
    for by_address in [false, true] {
        let mut fixture = Fixture::new(Memory { by_address, ..Memory::default() }, json!({}));
        fixture.put(pod(1));
        fixture.rounds().await;
        fixture.bind(json!({"port": 9090}));
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:9090"]);
    }
}

#[tokio::test]
async fn a_service_follows_a_label_of_the_pod() {
    let spec = service("${pod.labels['track']}");
    let with = |track: &str| {
        let mut pod = pod(1);
        pod.labels.insert("track".to_owned(), track.to_owned());
        pod
    };
    let mut fixture = Fixture::new(Memory::default(), spec);
    fixture.put(with("a"));
    fixture.rounds().await;
    fixture.put(with("b"));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("a"), Vec::<String>::new());
    assert_eq!(fixture.registry.shown("b"), ["10.0.0.1:8080"]);
}

#[tokio::test]
async fn a_drain_waits_for_the_instance_of_the_old_service() {
    let mut fixture = Fixture::new(Memory::default(), service("old"));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.registry.refuse(Some("service old"));
    fixture.bind(service("new"));
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    let why = fixture.ask(Phase::Prepare, &drained).await.unwrap_err();
    assert!(why.contains("old"), "{why}");
    assert_eq!(fixture.registry.shown("old"), ["10.0.0.1:8080"]);

    fixture.registry.refuse(None);
    assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(EvidenceLevel::Proven));
    assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());
}

/// The old instance may be stored after a comparison has not found it.
#[tokio::test]
async fn the_old_service_is_searched_until_no_registration_is_in_doubt() {
    let mut fixture = Fixture::new(Memory::default(), service("old"));
    fixture.registry.delay();
    fixture.put(pod(1));
    fixture.round().await;
    fixture.bind(service("new"));
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    let why = fixture.ask(Phase::Prepare, &drained).await.unwrap_err();
    assert!(why.contains("is searched for an instance"), "{why}");
    assert!(fixture.task.services.iter().any(|service| service.name == "old"));
}

#[tokio::test]
async fn the_old_service_is_read_after_the_pod_is_gone() {
    let mut fixture = Fixture::new(Memory::default(), service("old"));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.registry.refuse(Some("service old"));
    fixture.bind(service("new"));
    fixture.rounds().await;
    fixture.task.shared.index.remove_pod("shop", &pod(1).uid);
    fixture.rounds().await;
    fixture.registry.refuse(None);
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());
    assert!(fixture.task.tracked.is_empty() && fixture.task.orphans.is_empty());
}

#[tokio::test]
async fn what_an_earlier_replica_has_registered_elsewhere_is_removed() {
    let mut fixture = Fixture::new(Memory { lists: true, ..Memory::default() }, service("old"));
    fixture.put(pod(1));
    fixture.rounds().await;
    let index = Arc::clone(&fixture.task.shared.index);
    fixture.replace_task(Shared { index, ..shared() });
    fixture.bind(service("new"));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());
    assert_eq!(fixture.registry.shown("new"), ["10.0.0.1:8080"]);
}

#[tokio::test]
async fn a_registry_that_cannot_be_read_has_the_old_instance_deregistered() {
    let registry = Memory { reads: false, ..Memory::default() };
    let mut fixture = Fixture::new(registry, service("old"));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.bind(service("new"));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("new"), ["10.0.0.1:8080"]);
    assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());

    // Back again, and to the service that it has left.
    fixture.registry.refuse(Some("deregister"));
    fixture.bind(service("old"));
    fixture.rounds().await;
    fixture.registry.refuse(None);
    fixture.bind(service("new"));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("new"), ["10.0.0.1:8080"]);
    assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());
}

#[tokio::test]
async fn two_names_of_one_service_are_no_move() {
    let registry = Memory { lists: true, ignores_groups: true, ..Memory::default() };
    let mut fixture = Fixture::new(registry, json!({"service": {"name": "web", "group": "a"}}));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.bind(json!({"service": {"name": "web", "group": "b"}}));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
    let written = fixture.registry.written();
    assert!(!written.iter().any(|change| change.starts_with("deregister")), "{written:?}");
}

#[tokio::test]
async fn pods_that_are_not_ready_keep_their_old_instances_within_the_limit() {
    let mut fixture = Fixture::new(Memory::default(), service("old"));
    (1..=4).for_each(|number| fixture.put(pod(number)));
    fixture.rounds().await;
    fixture.registry.refuse(Some("register"));
    fixture.bind(service("new"));
    fixture.rounds().await;
    (1..=4).for_each(|number| fixture.put(BoundPod { demand: Demand::NotReady, ..pod(number) }));
    fixture.registry.refuse(None);
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("old").len(), 4);
    assert!(fixture.task.held.is_some());
}

#[tokio::test]
async fn a_drain_waits_for_clients_from_the_removal_of_the_old_instance() {
    let spec = |name: &str| json!({"service": {"name": name}, "clientCacheSeconds": 1});
    let mut fixture = Fixture::new(Memory::default(), spec("old"));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.registry.refuse(Some("service old"));
    fixture.bind(spec("new"));
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    fixture.rounds().await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    fixture.registry.refuse(None);
    let why = fixture.ask(Phase::Prepare, &drained).await.unwrap_err();
    assert!(why.contains("clients may use what they have read"), "{why}");
    assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(fixture.ask(Phase::Prepare, &drained).await, Ok(EvidenceLevel::Bounded));
}

#[tokio::test]
async fn an_instance_that_was_replaced_meanwhile_is_no_problem() {
    // As in Consul, where another service with the same id replaces an instance.
    let mut fixture = Fixture::new(Memory { one_service: true, ..Memory::default() }, service("old"));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.bind(service("new"));
    for _ in 0..4 {
        fixture.round().await;
        assert_eq!(fixture.task.removal_problem, None);
    }
    assert_eq!(fixture.registry.shown("new"), ["10.0.0.1:8080"]);
    assert!(fixture.task.orphans.is_empty());
}

#[tokio::test]
async fn a_service_is_read_while_it_has_an_instance() {
    let with = |app: &str, track: Option<&str>| {
        let mut pod = pod(1);
        pod.labels.insert("app".to_owned(), app.to_owned());
        pod.labels.extend(track.map(|track| ("track".to_owned(), track.to_owned())));
        pod
    };
    // The pod is not selected any more; or it loses the label that names its service, and ends.
    for (next, ends) in [(with("debug", Some("a")), false), (with("web", None), true)] {
        let mut fixture = Fixture::new(Memory::default(), service("${pod.labels['track']}"));
        fixture.put(with("web", Some("a")));
        fixture.rounds().await;
        fixture.registry.refuse(Some("deregister"));
        fixture.put(next);
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("a"), ["10.0.0.1:8080"]);
        if ends {
            fixture.task.shared.index.remove_pod("shop", &pod(1).uid);
            fixture.rounds().await;
        }
        fixture.registry.refuse(None);
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("a"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_list_that_may_be_older_than_the_move_shows_nothing() {
    let registry = Memory { list_lag: Duration::from_secs(3600), ..Memory::default() };
    let mut fixture = Fixture::new(registry, service("old"));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.bind(service("new"));
    let drained = BoundPod { demand: Demand::OutForUpdate, ..pod(1) };
    fixture.put(drained.clone());
    let why = fixture.ask(Phase::Prepare, &drained).await.unwrap_err();
    assert!(why.contains("is searched for an instance"), "{why}");
    assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());
    assert!(fixture.task.services.iter().any(|service| service.name == "old"), "it is read again");

    Arc::make_mut(&mut fixture.binding).deleting = true;
    fixture.rounds().await;
    assert!(!fixture.task.is_finished(&fixture.binding));
}
