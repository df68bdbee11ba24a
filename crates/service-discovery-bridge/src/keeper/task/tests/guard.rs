//! The finalizers of a binding, with an API server that answers every patch.

use hyper::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use podward_api::DiscoveryBinding;
use podward_api::discovery_binding::{BINDING_FINALIZER, BINDING_HOOK_FINALIZER};

use super::*;

/// The bodies of the patches of the binding itself.
type Patches = Arc<Mutex<Vec<Value>>>;

fn object(spec: &Value, finalizers: &Value) -> DiscoveryBinding {
    serde_json::from_value(json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "7", "finalizers": finalizers},
        "spec": binding(spec.clone()).spec,
    }))
    .unwrap()
}

/// Returns a client of an API server that stores nothing, and the patches that it gets.
fn api_server(object: &DiscoveryBinding) -> (kube::Client, Patches) {
    let (patches, stored) = (Patches::default(), serde_json::to_vec(object).unwrap());
    let seen = Arc::clone(&patches);
    let answer = tower::service_fn(move |request: Request<Body>| {
        let (seen, stored) = (Arc::clone(&seen), stored.clone());
        async move {
            let is_of_binding = request.method() == Method::PATCH && request.uri().path().ends_with("/web");
            let body = request.into_body().collect_bytes().await?;
            if is_of_binding {
                seen.lock().push(serde_json::from_slice(&body).unwrap_or_default());
            }
            Ok::<_, kube::Error>(Response::new(Body::from(stored)))
        }
    });
    (kube::Client::new(answer, "shop"), patches)
}

impl Fixture {
    /// Does what is due for the binding as `object` has it, and returns the pause.
    async fn pass(&mut self, object: DiscoveryBinding) -> Duration {
        let valid = Binding::new(object.clone()).ok().map(Arc::new);
        let entry = BindingEntry { valid, problem: None, object: Arc::new(object) };
        self.task.pass(&entry, &HookState::Attached).await
    }
}

#[tokio::test]
async fn a_binding_has_its_finalizers_before_anything_else_happens() {
    let unusable = json!({"clusterRegistry": "missing"});
    for (spec, expected) in [
        (json!({"mode": "Own"}), json!([BINDING_FINALIZER, BINDING_HOOK_FINALIZER])),
        (json!({"mode": "Steer"}), json!([BINDING_HOOK_FINALIZER])),
        // Its pods wait for its hook, and it has no instances yet.
        (json!({"registry": unusable}), json!([BINDING_HOOK_FINALIZER])),
    ] {
        let object = object(&spec, &json!([]));
        let (client, patches) = api_server(&object);
        let mut fixture = Fixture::new(Memory::default(), json!({}));
        fixture.replace_task(Shared { client, ..shared() });
        fixture.put(pod(1));
        assert_eq!(fixture.pass(object).await, GUARD_RETRY, "{spec}");
        assert_eq!(fixture.task.compared, None, "{spec}: the registry was called");
        let patches = patches.lock();
        assert_eq!(patches.len(), 1, "{spec}: {patches:?}");
        assert_eq!(patches[0]["metadata"]["finalizers"], expected, "{spec}");
    }
}

/// A binding that has registered nothing does not need its registry.
#[tokio::test]
async fn the_hook_of_a_deleted_binding_is_removed_although_the_registry_cannot_be_used() {
    for mode in ["Own", "Steer"] {
        let spec = json!({"mode": mode, "registry": {"clusterRegistry": "missing"}});
        let mut object = object(&spec, &json!([BINDING_HOOK_FINALIZER]));
        object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let (client, patches) = api_server(&object);
        let mut fixture = Fixture::new(Memory::default(), json!({}));
        fixture.replace_task(Shared { client, ..shared() });
        let (wanted, _) = watch::channel(hook::hook_of(&fixture.binding));
        fixture.task.hook = Some((wanted, tokio::spawn(std::future::pending())));
        assert_eq!(fixture.pass(object).await, GUARD_RETRY, "{mode}");
        // Nobody registers it again. The lifecycle-controller does not answer.
        assert!(fixture.task.hook.is_none() && fixture.task.ended.is_none(), "{mode}");
        assert_eq!(patches.lock().len(), 0, "{mode}: the finalizer stays until the hook is removed");
    }
}
