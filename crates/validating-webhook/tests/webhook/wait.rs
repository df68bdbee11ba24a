//! Deletes that wait for their pod (`--wait`).

use std::time::Duration;

use podward_core::keys::Stage;
use podward_runtime::admission::Limits;
use serde_json::{Value, json};

use crate::scene::{POD, Scene, delete_review, pod, until};

const LONG: Duration = Duration::from_secs(600);
const MEMORY: usize = 2;

async fn patient() -> Scene {
    let limits = Limits { decision: LONG, ..Limits::default() };
    let scene = Scene::with(LONG, limits).await;
    scene.cluster.put(POD, pod());
    until(|| scene.cluster.watchers() == MEMORY).await;
    scene
}

/// Asks for the delete, and does `then` once it waits.
async fn waits_until(scene: &Scene, then: impl FnOnce()) -> Value {
    let meanwhile = async {
        until(|| scene.cluster.watchers() > MEMORY).await;
        then();
        std::future::pending::<()>().await;
    };
    let pod = pod();
    tokio::select! {
        response = scene.delete(&pod) => response,
        () = meanwhile => unreachable!(),
    }
}

#[tokio::test]
async fn the_permission_lets_it_go_on() {
    let scene = patient().await;
    let mut granted = pod();
    for stage in [Stage::Operating, Stage::Operate] {
        granted["metadata"]["labels"][stage.key("pod-delete")] = json!("1");
    }
    let mut touched = pod();
    touched["metadata"]["annotations"]["x"] = json!("y");
    let response = waits_until(&scene, || {
        scene.cluster.put(POD, touched);
        scene.cluster.put(POD, granted);
    })
    .await;
    assert_eq!(response, json!({"uid": "u-1", "allowed": true}));
    assert_eq!(scene.controller.asked().len(), 1);
}

#[tokio::test]
async fn so_does_its_end() {
    let scene = patient().await;
    let response = waits_until(&scene, || scene.cluster.delete(POD)).await;
    assert_eq!(response["allowed"], true);
    // Gone before the wait began.
    assert_eq!(scene.delete(&pod()).await["allowed"], true);
}

#[tokio::test]
async fn it_has_an_end() {
    let scene = patient().await;
    let response = scene.ask("/delete?timeout=1s", &delete_review(&pod())).await;
    assert_eq!(response["status"]["code"], 429);
    assert!(response["status"]["message"].as_str().unwrap().contains("asked for by jane"), "{response}");
    // The process is to stop.
    let response = waits_until(&scene, || scene.stop.cancel()).await;
    assert_eq!(response["status"]["code"], 429);
}

#[tokio::test]
async fn the_clusters_own_controllers_do_not_wait() {
    let scene = patient().await;
    let mut review = delete_review(&pod());
    review["request"]["userInfo"]["username"] =
        json!("system:serviceaccount:kube-system:replicaset-controller");
    assert_eq!(scene.ask("/delete", &review).await["status"]["code"], 429);
    assert_eq!(scene.evict().await["status"]["code"], 429);
    assert_eq!(scene.cluster.watchers(), MEMORY);
}
