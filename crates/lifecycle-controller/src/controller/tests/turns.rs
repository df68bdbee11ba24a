//! Pods that leave service in turn.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector;
use podward_core::keys::{SERVICE_AVAILABLE, SERVICE_READY_GATE, Stage, permission_key};
use podward_kube_util::{CachedPod, PodKey};
use serde_json::{Value, json};

use super::api_server::ApiServer;
use super::fixture::context;
use super::{TIMEOUT, condition, operated};
use crate::context::Context;
use crate::reconcile::reconcile;

/// A pod in service on which the operation `a` has passed its pre-check.
fn checked(name: &str) -> Value {
    let mut pod = operated(name);
    pod["metadata"]["labels"][Stage::PreChecked.key("a")] = json!("1");
    pod["metadata"]["labels"][permission_key("update")] = json!("1");
    pod
}

/// The same pod when a hook has drained it before the gate.
fn drained(name: &str) -> Value {
    let mut pod = checked(name);
    let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove(SERVICE_AVAILABLE);
    labels.insert(Stage::Preparing.key("a"), json!("1"));
    pod
}

fn read(pod: Value) -> Arc<CachedPod> {
    Arc::new(serde_json::from_value(pod).unwrap())
}

async fn hooks_are_known(context: &Context, pod: &CachedPod) {
    let known = async {
        while context.deciders.hooks.hooks_for(pod).is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, known).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_has_left_service_does_not_wait_behind_pods_that_serve() {
    let server = ApiServer::new();
    let (store, _writer) = reflector::store();
    let (context, _) = context(&server, &store);
    let context = Arc::new(context);
    let (serves, left) = (read(server.put(checked("serves"))), read(server.put(drained("left"))));
    hooks_are_known(&context, &serves).await;
    let other = |number| PodKey { namespace: "other".to_owned(), name: format!("web-{number}") };
    let turns: Vec<_> = (0..).map_while(|number| context.drain_turns.take(&other(number))).collect();
    for pod in [&serves, &left] {
        reconcile(pod.clone(), context.clone()).await.unwrap();
    }
    assert_eq!((server.writes("serves"), server.writes("left")), (0, 1));
    assert_eq!(condition(&server.get("left").unwrap(), SERVICE_READY_GATE), "False");
    drop(turns);
}
