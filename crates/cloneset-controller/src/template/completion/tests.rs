//! Evidence in the status of pods.

use serde_json::{Value, json};

use super::*;
use crate::template::test_pods::{at, typed};
use podward_core::cloneset::keys::UPDATE_STATE;

/// Returns a pod with a container `app` that gets the image `app:2`, whose last status and status are these.
fn pod(last: Value, status: Value) -> Value {
    let state = json!({
        "revision": "web-2222", "updateTimestamp": "1970-01-01T00:01:00Z", "lastContainerStatuses": {"app": last},
        "containerBatchesRecord": [{"timestamp": "1970-01-01T00:01:00Z", "containers": ["app"]}],
    });
    let mut full = json!({
        "name": "app", "ready": false, "restartCount": 0, "image": "docker.io/library/app:1", "imageID": "sha256:1",
        "containerID": "containerd://1", "state": {"running": {"startedAt": "1970-01-01T00:00:10Z"}},
    });
    full.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    json!({
        "metadata": {"annotations": {UPDATE_STATE: state.to_string()}},
        "spec": {"containers": [{"name": "app", "image": "app:2"}, {"name": "log", "image": "log:1"}]},
        "status": {"containerStatuses": [full]},
    })
}

fn report(pod: &Value) -> Report {
    progress(&typed(pod), at(100))
}

fn is_complete(last: Value, status: Value) -> bool {
    report(&pod(last, status)).progress == Progress::Complete
}

fn last() -> Value {
    json!({"imageID": "sha256:1", "containerID": "containerd://1", "image": "app:1"})
}

#[test]
fn a_pod_without_an_update_is_complete() {
    assert_eq!(
        progress(&Pod::default(), at(0)),
        Report { progress: Progress::Complete, failing: Vec::new() }
    );
}

#[test]
fn a_container_is_replaced_by_another_one() {
    assert!(!is_complete(last(), json!({})));
    assert!(is_complete(last(), json!({"containerID": "containerd://2", "imageID": "sha256:2"})));
    assert!(is_complete(last(), json!({"containerID": "containerd://2"})), "both images have the same id");
    assert!(
        !is_complete(last(), json!({"image": "app:2"})),
        "the runtime reports one of the names of the image"
    );
    assert!(
        !is_complete(last(), json!({"containerID": "", "image": "app:2", "imageID": ""})),
        "it has not started"
    );
    let crashed = json!({"containerID": "containerd://2", "state": {"terminated": {"exitCode": 1}}});
    assert!(!is_complete(last(), crashed), "the old container has crashed");
    let new =
        json!({"containerID": "containerd://2", "image": "app:2", "state": {"terminated": {"exitCode": 1}}});
    assert!(is_complete(last(), new), "the new container has crashed");
}

#[test]
fn a_container_that_gets_its_image_back_may_never_be_replaced() {
    let back = json!({"imageID": "sha256:1", "image": "app:2"});
    assert!(is_complete(back.clone(), json!({})));
    assert!(!is_complete(back, json!({"imageID": "sha256:3", "containerID": "containerd://3"})));
}

#[test]
fn a_state_of_open_kruise_has_only_the_image() {
    let last = json!({"imageID": "sha256:1"});
    assert!(!is_complete(last.clone(), json!({})));
    assert!(is_complete(last.clone(), json!({"imageID": "sha256:2"})));
    assert!(is_complete(last.clone(), json!({"image": "docker.io/library/app:2"})));
    assert!(is_complete(last, json!({"state": {"running": {"startedAt": "1970-01-01T00:01:00Z"}}})));
}

#[test]
fn what_does_not_run_is_reported() {
    let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason, "message": "back-off"}}});
    let found = report(&pod(last(), waiting("ImagePullBackOff")));
    let text = "the container app is not replaced yet: ImagePullBackOff: back-off".to_owned();
    let failing = |reason: &str| vec![Failing { container: "app".to_owned(), reason: reason.to_owned() }];
    assert_eq!(
        found,
        Report { progress: Progress::Waits(text), failing: failing("ImagePullBackOff: back-off") }
    );

    let mut status = waiting("CrashLoopBackOff");
    status["containerID"] = json!("containerd://2");
    status["imageID"] = json!("sha256:2");
    let found = report(&pod(last(), status));
    assert_eq!(
        found,
        Report { progress: Progress::Complete, failing: failing("CrashLoopBackOff: back-off") }
    );

    let ended = json!({"state": {"terminated": {"exitCode": 3, "reason": "Error"}}});
    assert_eq!(report(&pod(last(), ended)).failing, failing("Error with exit code 3"));
    assert_eq!(report(&pod(last(), waiting("ContainerCreating"))).failing, Vec::new());
}

#[test]
fn a_container_with_another_environment_has_to_be_stopped() {
    let same = json!({"imageID": "sha256:1", "containerID": "containerd://1", "image": "app:2"});
    let text = "the container app has to be stopped, so that it starts with its new environment".to_owned();
    assert_eq!(report(&pod(same.clone(), json!({}))).progress, Progress::Blocked(text));
    assert!(is_complete(same, json!({"containerID": "containerd://2"})));
}

#[test]
fn the_next_containers_wait_until_these_are_ready() {
    let with = |ready: bool| {
        let status = json!({"containerID": "containerd://2", "imageID": "sha256:2", "ready": ready});
        let mut pod = pod(last(), status);
        let annotation = &mut pod["metadata"]["annotations"][UPDATE_STATE];
        let mut state: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
        state["nextContainerImages"] = json!({"log": "log:2"});
        state["preCheckBeforeNext"] = json!({"containersRequiredReady": ["app"]});
        *annotation = json!(state.to_string());
        report(&pod).progress
    };
    assert_eq!(with(true), Progress::NextBatch);
    let text = "the container app is not Ready, and log can change only after it".to_owned();
    assert_eq!(with(false), Progress::Waits(text));
}

#[test]
fn an_annotation_that_nobody_can_read_is_waited_for() {
    for key in [UPDATE_STATE, podward_core::cloneset::keys::UPDATE_GRACE] {
        let pod = json!({"metadata": {"annotations": {key: "{"}}});
        let found = report(&pod).progress;
        assert!(
            matches!(&found, Progress::Blocked(text) if text.contains(key) && text.contains("removed")),
            "{found:?}"
        );
    }
}

#[test]
fn resources_are_waited_for() {
    let mut pod = pod(last(), json!({"containerID": "containerd://2", "imageID": "sha256:2"}));
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    let state = json!({"revision": "web-2222", "updateTimestamp": null, "updateResources": true});
    pod["metadata"]["annotations"][UPDATE_STATE] = json!(state.to_string());
    let text = "the container app does not have its new resources yet".to_owned();
    assert_eq!(report(&pod).progress, Progress::Waits(text));
    let mut refused = pod.clone();
    refused["status"]["conditions"] = json!([{"type": "PodResizePending", "status": "True"}]);
    assert!(matches!(report(&refused).progress, Progress::Blocked(_)));
    pod["status"]["containerStatuses"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    assert_eq!(report(&pod).progress, Progress::Complete);
}
