//! Pods of a Deployment that wait for each other.

use futures::{FutureExt, StreamExt};
use kube::runtime::reflector;
use podward_core::UnixNanos;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::{
    AVAILABLE_CONDITIONS, DELETE_OPERATION, DELETE_TIMESTAMP, DELETION_REQUEST, SERVICE_AVAILABLE, Stage,
    TO_DELETE,
};
use podward_kube_util::{CachedPod, now};
use serde_json::{Value, json};

use super::api_server::ApiServer;
use super::fixture::context;
use super::pod;
use crate::deciders::DeletionTurn;

const FINALIZER: &str = "prot.podopslifecycle.kusionstack.io/test";

/// A pod of the ReplicaSet `set` with a consumer, in service.
fn member(name: &str, set: &str) -> Value {
    let mut pod = pod(name);
    let expected = json!({"expectedFinalizers": {"test": FINALIZER}}).to_string();
    pod["metadata"]["annotations"] = json!({AVAILABLE_CONDITIONS: expected});
    pod["metadata"]["finalizers"] = json!([FINALIZER]);
    pod["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true},
    ]);
    pod
}

/// `pod` with a request of the ReplicaSet controller to delete it.
fn scaled_in(mut pod: Value) -> Value {
    let mut request = DeletionRequest::new(DeletionKind::Delete, "replicaset-controller", UnixNanos(1));
    request.by_workload = true;
    let annotations = &mut pod["metadata"]["annotations"];
    annotations[DELETION_REQUEST] = json!(request.to_text());
    annotations[DELETE_TIMESTAMP] = json!("1");
    let labels = &mut pod["metadata"]["labels"];
    labels[TO_DELETE] = json!("1");
    labels[Stage::Operating.key(DELETE_OPERATION)] = json!("1");
    labels[Stage::OperationType.key(DELETE_OPERATION)] = json!("delete");
    pod
}

fn read(pod: &Value) -> CachedPod {
    serde_json::from_value(pod.clone()).unwrap()
}

/// Stores the Deployment `web` of one pod, and its ReplicaSets: `old` is to have no pod, `new` one.
fn put_owners(server: &ApiServer) {
    let controller = json!([
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true},
    ]);
    let owner = |kind: &str, name: &str, replicas: u32| {
        json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {}}},
        })
    };
    let path = "/apis/apps/v1/namespaces/shop";
    for (name, replicas) in [("old", 0), ("new", 1)] {
        let mut set = owner("ReplicaSet", name, replicas);
        set["metadata"]["ownerReferences"] = controller.clone();
        server.put_owner(&format!("{path}/replicasets/{name}"), set);
    }
    server.put_owner(&format!("{path}/deployments/web"), owner("Deployment", "web", 1));
}

/// The mutating webhook sets the label in the write of the last consumer, so the leader never sets it itself.
#[tokio::test]
async fn a_pod_that_a_webhook_puts_into_service_wakes_one_that_waits_for_it() {
    let server = ApiServer::new();
    put_owners(&server);
    let (store, _writer) = reflector::store();
    let (context, mut woken) = context(&server, &store);
    let mut new = member("new-0", "new");
    let in_service = read(&new);
    new["metadata"]["finalizers"] = json!([]);
    new["metadata"]["labels"].as_object_mut().unwrap().remove(SERVICE_AVAILABLE);
    let old = server.put(scaled_in(member("old-0", "old")));
    for pod in [read(&server.put(new)), read(&old)] {
        context.observe(&pod);
    }
    let DeletionTurn::Stays(_) = context.deciders.deletion(&read(&old), now()).await.unwrap() else {
        panic!("the pod that serves was deleted");
    };
    assert_eq!(woken.next().now_or_never(), None);
    context.observe(&in_service);
    assert_eq!(woken.next().now_or_never().flatten(), Some(read(&old).key().object_ref()));
    context.observe(&in_service);
    assert_eq!(woken.next().now_or_never(), None, "it was in service before");
}
