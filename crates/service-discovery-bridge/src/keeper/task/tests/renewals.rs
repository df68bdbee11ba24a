//! Heartbeats while a registry is slow.

use super::*;

#[tokio::test]
async fn instances_are_renewed_while_a_registry_is_read() {
    for is_comparison in [true, false] {
        let registry = Memory { renewal: Some(Duration::from_secs(1)), ..Memory::default() };
        let mut fixture = Fixture::new(registry, json!({}));
        fixture.put(pod(1));
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
        fixture.put(pod(2));
        fixture.task.observe(&fixture.binding, &fixture.access);
        fixture.registry.wait_for_renewal();
        let (binding, access) = (&fixture.binding, &fixture.access);
        let read = async {
            match is_comparison {
                true => fixture.task.compare(binding, access).await,
                false => _ = fixture.task.step(binding, access).await,
            }
        };
        let read = tokio::time::timeout(Duration::from_secs(20), read).await;
        assert!(read.is_ok(), "heartbeats wait for the registry: {is_comparison}");
        assert_eq!(fixture.registry.shown("web").len(), 2 - usize::from(is_comparison));
    }
}

#[tokio::test]
async fn instances_are_renewed_while_others_are_removed() {
    let registry = Memory { renewal: Some(Duration::from_secs(1)), ..Memory::default() };
    let mut fixture = Fixture::new(registry, json!({}));
    (1..=4).for_each(|number| fixture.put(pod(number)));
    fixture.rounds().await;
    fixture.put(BoundPod { labels: Default::default(), ..pod(4) });
    fixture.task.observe(&fixture.binding, &fixture.access);
    fixture.task.compare(&fixture.binding, &fixture.access).await;
    fixture.registry.wait_for_renewal();
    let removed = fixture.task.remove_orphans(&fixture.binding, &fixture.access);
    let removed = tokio::time::timeout(Duration::from_secs(20), removed).await;
    assert!(removed.is_ok(), "heartbeats wait for the registry");
    assert_eq!(fixture.registry.shown("web").len(), 3);
}
