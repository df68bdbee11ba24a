//! The finalizers of a binding, with an API server that answers every patch.

use hyper::{Method, Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use podward_api::DiscoveryBinding;
use podward_api::discovery_binding::{BINDING_FINALIZER, BINDING_HOOK_FINALIZER};
use podward_registries::{Change, Instance, Registry};

use super::*;
use crate::model::{Demand, Desired};

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
    api_server_with(object, StatusCode::OK)
}

/// As [`api_server`], with the status of the answers to the patches of the binding itself.
fn api_server_with(object: &DiscoveryBinding, status: StatusCode) -> (kube::Client, Patches) {
    let (patches, stored) = (Patches::default(), serde_json::to_vec(object).unwrap());
    let seen = Arc::clone(&patches);
    let answer = tower::service_fn(move |request: Request<Body>| {
        let (seen, stored) = (Arc::clone(&seen), stored.clone());
        async move {
            let is_of_binding = request.method() == Method::PATCH && request.uri().path().ends_with("/web");
            let body = request.into_body().collect_bytes().await?;
            let mut response = Response::new(Body::from(stored));
            if is_of_binding {
                seen.lock().push(serde_json::from_slice(&body).unwrap_or_default());
                if status != StatusCode::OK {
                    let failure = json!({"kind": "Status", "status": "Failure", "code": status.as_u16()});
                    *response.body_mut() = Body::from(failure.to_string().into_bytes());
                    *response.status_mut() = status;
                }
            }
            Ok::<_, kube::Error>(response)
        }
    });
    (kube::Client::new(answer, "shop"), patches)
}

fn entry(object: DiscoveryBinding) -> BindingEntry {
    let valid = Binding::new(object.clone()).ok().map(Arc::new);
    BindingEntry { valid, problem: None, object: Arc::new(object) }
}

impl Fixture {
    /// Does what is due for the binding as `object` has it, and returns the pause.
    async fn pass(&mut self, object: DiscoveryBinding) -> Duration {
        self.task.pass(&entry(object), &HookState::Attached).await
    }

    /// Has the task use the registry in memory, and an API server that answers patches of the binding with `status`.
    fn connect(&mut self, object: &DiscoveryBinding, status: StatusCode) -> Patches {
        let (client, patches) = api_server_with(object, status);
        self.replace_task(Shared { client, ..shared() });
        let connection = self.binding.spec.registry.connection.clone().unwrap();
        let fence = self.task.fence.clone();
        self.task.connector = RegistryConnector::connected(fence, connection, self.access.clone());
        patches
    }
}

/// Before an upgrade the binding had this one only. The webhook that its change waits for is replaced at the same time.
#[tokio::test]
async fn instances_are_kept_while_the_finalizer_of_the_hook_cannot_be_added() {
    for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::CONFLICT] {
        let object = object(&json!({}), &json!([BINDING_FINALIZER]));
        let registry = Memory { renewal: Some(Duration::ZERO), ..Memory::default() };
        let mut fixture = Fixture::new(registry, json!({}));
        let patches = fixture.connect(&object, status);
        fixture.put(pod(1));
        assert!(fixture.pass(object.clone()).await <= GUARD_RETRY, "{status}");
        assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"], "{status}");
        fixture.registry.written();
        fixture.task.renewal_due = Duration::ZERO;
        assert!(fixture.pass(object.clone()).await <= GUARD_RETRY, "{status}");
        assert!(fixture.registry.written().contains(&"renew".to_owned()), "{status}: no heartbeat");
        // Each change of a pod is a pass, and not a patch.
        assert_eq!(patches.lock().len(), 1, "{status}");
        assert_eq!(fixture.task.rejected, None, "{status}: the binding works");
        let problem = &fixture.task.guard_problem;
        assert_eq!(problem.is_some(), status != StatusCode::CONFLICT, "{status}: {problem:?}");
        assert!(may_attach(&entry(object.clone())), "{status}: pods wait for the hook");
        fixture.task.guard_due = Duration::ZERO;
        fixture.pass(object.clone()).await;
        let patches = patches.lock();
        assert_eq!(patches.len(), 2, "{status}");
        let expected = json!([BINDING_FINALIZER, BINDING_HOOK_FINALIZER]);
        assert_eq!(patches[1]["metadata"]["finalizers"], expected, "{status}");
    }
}

/// Nobody adds them to it.
#[tokio::test]
async fn a_deleted_binding_does_not_say_that_finalizers_are_added() {
    let mut object = object(&json!({}), &json!([BINDING_FINALIZER]));
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    fixture.connect(&object, StatusCode::INTERNAL_SERVER_ERROR);
    for is_deleted in [false, true] {
        if is_deleted {
            object.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        fixture.task.status_due = Duration::ZERO;
        fixture.pass(object.clone()).await;
        let status = fixture.task.written.as_ref().unwrap();
        let is_said = status.last_error.as_ref().is_some_and(|error| error.contains("finalizers"));
        assert_eq!(is_said, !is_deleted, "{status:?}");
    }
}

#[tokio::test]
async fn a_binding_without_a_finalizer_registers_nothing() {
    let object = object(&json!({}), &json!([BINDING_HOOK_FINALIZER]));
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    fixture.connect(&object, StatusCode::INTERNAL_SERVER_ERROR);
    fixture.put(pod(1));
    assert_eq!(fixture.pass(object).await, GUARD_RETRY);
    assert!(fixture.registry.written().is_empty());
}

#[test]
fn a_hook_is_registered_only_for_a_binding_that_stays_until_it_is_removed() {
    for (finalizers, may) in [
        (json!([BINDING_FINALIZER]), true),
        (json!([BINDING_HOOK_FINALIZER]), true),
        (json!(["other"]), false),
    ] {
        assert_eq!(may_attach(&entry(object(&json!({}), &finalizers))), may, "{finalizers}");
    }
}

/// Nothing wakes the task when the Lease is renewed.
#[tokio::test]
async fn a_deleted_binding_that_was_never_valid_is_looked_at_again_soon() {
    let mut object = object(&json!({}), &json!([BINDING_HOOK_FINALIZER]));
    object.spec.port = serde_json::from_value(json!(0)).unwrap();
    object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let (client, _) = api_server(&object);
    let mut fixture = Fixture::new(Memory::default(), json!({}));
    fixture.replace_task(Shared { client, ..shared() });
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    fixture.task.shared.tenure.confirm(long_ago);
    let pause = fixture.pass(object).await;
    assert!(pause <= Duration::from_secs(1), "{pause:?}");
}

/// Its last valid form does not say that it is being deleted.
#[tokio::test]
async fn a_binding_that_is_deleted_while_it_is_invalid_is_deleted() {
    let valid = object(&json!({}), &json!([BINDING_FINALIZER, BINDING_HOOK_FINALIZER]));
    let mut invalid = valid.clone();
    invalid.spec.port = serde_json::from_value(json!(0)).unwrap();
    invalid.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let fixture = Fixture::new(Memory::default(), json!({}));
    let (index, key) = (&fixture.task.shared.index, &fixture.task.key);
    index.put_binding(key.clone(), valid);
    assert!(!index.binding(key).unwrap().valid.unwrap().deleting);
    index.put_binding(key.clone(), invalid);
    let entry = index.binding(key).unwrap();
    assert!(entry.problem.is_some() && entry.valid.unwrap().deleting);
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

/// Its hook is removed at once, because operations on other pods would wait for it. Here its server does not answer.
#[tokio::test]
async fn a_deleted_binding_works_until_its_applications_are_put_back() {
    let spec = json!({"mode": "Steer"});
    let mut object = object(&spec, &json!([BINDING_HOOK_FINALIZER]));
    let mut fixture = Fixture::new(Memory { by_address: true, ..Memory::default() }, spec);
    fixture.connect(&object, StatusCode::OK);
    let Desired { service, instance, .. } = fixture.binding.desired(&pod(1), "c").unwrap();
    fixture.registry.write(&[Change::Register(service, instance)]).await.remove(0).unwrap();
    fixture.put(BoundPod { demand: Demand::OutForUpdate, ..pod(1) });
    fixture.pass(object.clone()).await;
    object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    fixture.pass(object.clone()).await;
    assert_eq!(fixture.registry.shown("web"), Vec::<String>::new(), "it is operated on");
    assert!(fixture.task.guard_due > Duration::ZERO, "its hook is not removed");
    fixture.task.unhooked = Some("u".to_owned());
    let Desired { service, instance, .. } = fixture.binding.desired(&pod(1), "c").unwrap();
    let ill = Instance { in_service: false, may_return: true, ..instance };
    fixture.registry.write(&[Change::Register(service, ill)]).await.remove(0).unwrap();
    (fixture.task.guard_due, fixture.task.status_due) = (Duration::ZERO, Duration::ZERO);
    fixture.put(pod(1));
    fixture.pass(object.clone()).await;
    assert!(fixture.task.guard_due.is_zero(), "its finalizer stays");
    let why = fixture.task.written.as_ref().and_then(|status| status.last_error.clone()).unwrap();
    assert!(why.contains("its finalizer stays") && why.contains("not healthy"), "{why}");
    fixture.registry.heal();
    fixture.task.tracked.values_mut().for_each(TrackedPod::retry_now);
    fixture.pass(object.clone()).await;
    assert_eq!(fixture.registry.shown("web"), ["10.0.0.1:8080"]);
    assert!(fixture.task.tracked.is_empty() && fixture.task.guard_due > Duration::ZERO, "its finalizer goes");
}
