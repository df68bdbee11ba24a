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
    let service = ServiceKey { name: "web".to_owned(), ..ServiceKey::default() };
    let instance = Instance {
        id: "of the application".to_owned(),
        host: "10.0.0.1".to_owned(),
        port: 8080,
        cluster: String::new(),
        weight: 1.0,
        metadata: Default::default(),
        in_service: true,
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
async fn the_application_sends_heartbeats_itself() {
    let mut fixture = fixture(Memory { renewal: Some(Duration::ZERO), ..Memory::default() }).await;
    for _ in 0..3 {
        fixture.task.renewal_due = Duration::ZERO;
        fixture.round().await;
    }
    assert_eq!(fixture.registry.written(), Vec::<String>::new());
    assert!(fixture.task.tracked.values().all(|tracked| matches!(tracked.state, SyncState::Shown { .. })));
}
