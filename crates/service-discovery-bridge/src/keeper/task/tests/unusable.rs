//! A binding that cannot be used for a while, because it or its connection is invalid.

use podward_api::DiscoveryBinding;

use super::*;

impl Fixture {
    /// Does what is due while the binding is invalid, or its ClusterRegistry does not exist.
    async fn unusable_round(&mut self, is_valid: bool) {
        let spec = json!({"registry": {"clusterRegistry": "missing"}});
        let object = json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
            "metadata": {"namespace": "shop", "name": "web"}, "spec": binding(spec.clone()).spec,
        });
        let object: DiscoveryBinding = serde_json::from_value(object).unwrap();
        let valid = is_valid.then(|| Arc::new(binding(spec)));
        let problem = (!is_valid).then(|| "it is invalid".to_owned());
        let entry = BindingEntry { valid, problem, object: Arc::new(object) };
        self.task.pass(&entry, &HookState::Attached).await;
    }
}

#[tokio::test]
async fn changes_of_pods_are_not_kept_and_not_missed() {
    for is_valid in [false, true] {
        let mut fixture = Fixture::new(Memory { lists: true, ..Memory::default() }, json!({}));
        fixture.put(pod(1));
        fixture.rounds().await;
        fixture.task.shared.index.remove_pod("shop", &pod(1).uid);
        (2..=50).for_each(|number| fixture.put(pod(number)));
        (3..=50).for_each(|number| fixture.task.shared.index.remove_pod("shop", &pod(number).uid));
        fixture.unusable_round(is_valid).await;
        let kept = fixture.task.pod_changes.take();
        assert!(kept.is_empty(), "{kept:?}");
        fixture.rounds().await;
        assert_eq!(fixture.registry.shown("web"), ["10.0.0.2:8080"]);
    }
}

#[tokio::test]
async fn the_instance_that_a_pod_has_left_meanwhile_is_removed() {
    let service = |name: &str| json!({"service": {"name": name}});
    let mut fixture = Fixture::new(Memory { reads: false, ..Memory::default() }, service("old"));
    fixture.put(pod(1));
    fixture.rounds().await;
    fixture.unusable_round(true).await;
    fixture.bind(service("new"));
    fixture.rounds().await;
    assert_eq!(fixture.registry.shown("new"), ["10.0.0.1:8080"]);
    assert_eq!(fixture.registry.shown("old"), Vec::<String>::new());
}
