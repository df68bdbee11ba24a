//! Containers that do not start or do not stay: images, commands, volumes, networks and sandboxes.

use podward_diagnosis::Case;
use podward_diagnosis::pod::diagnose;
use serde_json::{Value, json};

use super::{first, ready_node, snapshot, with_container};

#[test]
fn errors_of_registries_are_told_apart() {
    for (error, case) in [
        ("failed to resolve reference: example.com/web:1: not found", Case::ImageNotFound),
        (
            "pull access denied, repository does not exist or may require authorization: server message: \
             insufficient_scope: authorization failed",
            Case::ImageUnauthorized,
        ),
        (
            "unexpected status: 429 Too Many Requests - toomanyrequests: You have reached your limit",
            Case::ImageRateLimit,
        ),
        ("dial tcp: lookup example.com: no such host", Case::ImageRegistryUnreachable),
        ("x509: certificate signed by unknown authority", Case::ImageRegistryUnreachable),
        ("something new", Case::ImagePull),
    ] {
        let waiting = json!({"state": {"waiting": {"reason": "ErrImagePull", "message": error}}});
        let (found, line, _) = first(json!({"pod": with_container(waiting), "node": ready_node()}));
        assert_eq!(found, case, "{line}");
        assert!(line.contains("example.com/web:1") && line.contains("container server"), "{line}");
    }
}

#[test]
fn names_of_images_are_not_errors() {
    for image in [
        "r.example.com/web:20260429",
        "r.example.com/web:20260401",
        "r.example.com/web:20260403",
        "r.example.com/web:429",
        "r.example.com/denied:timeout",
        "denied.example.com/web@sha256:429",
        "shop/geofence:1",
        "geofence:1",
        "forbidden:1",
    ] {
        let error = format!(
            "Failed to pull image \"{image}\": rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": \
             failed to resolve reference \"{image}\": {image}: not found"
        );
        let waiting =
            json!({"image": image, "state": {"waiting": {"reason": "ErrImagePull", "message": error}}});
        let (found, line, _) = first(json!({"pod": with_container(waiting), "node": ready_node()}));
        assert_eq!(found, Case::ImageNotFound, "{line}");
    }
}

#[test]
fn a_pull_that_backs_off_is_explained_by_its_event() {
    let waiting =
        json!({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}});
    let events = json!([["Failed", "Failed to pull image \"example.com/web:1\": manifest unknown"]]);
    let (case, _, evidence) =
        first(json!({"pod": with_container(waiting), "events": events, "node": ready_node()}));
    assert_eq!(case, Case::ImageNotFound);
    assert!(evidence[1].starts_with("event Failed: "), "{evidence:?}");
}

#[test]
fn a_container_that_was_killed_for_its_memory_is_named_with_its_limit() {
    let killed = json!({"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-01-01T09:58:00Z"});
    let state = json!({
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": killed}, "restartCount": 4,
    });
    let (case, line, _) = first(json!({"pod": with_container(state), "node": ready_node()}));
    assert_eq!(case, Case::OutOfMemory);
    let words =
        "container server used more memory than its limit of 64Mi and was killed, 4 restarts (2 min); next: ";
    assert!(line.starts_with(words), "{line}");
}

/// A container that was killed for its memory at `killed`, has run since `started`, and whose readiness probe fails now.
fn killed_and_unready(killed: &str, started: &str) -> Vec<(Case, String)> {
    let mut pod = with_container(json!({
        "state": {"running": {"startedAt": started}}, "started": true, "restartCount": 1,
        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": killed}},
    }));
    pod["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/readyz", "port": 8080}});
    let events = json!([["Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503"]]);
    let causes = diagnose(&snapshot(json!({"pod": pod, "events": events, "node": ready_node()})), None);
    causes.into_iter().map(|cause| (cause.case, cause.what)).collect()
}

#[test]
fn an_end_of_a_container_long_ago_is_not_why_its_probe_fails_now() {
    let probe = "the readiness probe of container server fails: HTTP probe failed with statuscode: 503";
    let causes = killed_and_unready("2025-12-25T10:00:00Z", "2025-12-25T10:00:01Z");
    assert_eq!(causes[0], (Case::ReadinessProbe, probe.to_owned()));
    assert_eq!(causes.iter().skip(1).map(|cause| cause.0).collect::<Vec<_>>(), [Case::OutOfMemory]);
    // The container may end again. The probe has failed since it was started.
    let causes = killed_and_unready("2026-01-01T09:55:00Z", "2026-01-01T09:55:01Z");
    assert_eq!(
        causes.iter().map(|cause| cause.0).collect::<Vec<_>>(),
        [Case::OutOfMemory, Case::ReadinessProbe]
    );
    // The event is about the container that was killed.
    let causes = killed_and_unready("2026-01-01T09:59:20Z", "2026-01-01T09:59:30Z");
    assert_eq!(causes.iter().map(|cause| cause.0).collect::<Vec<_>>(), [Case::OutOfMemory]);
}

/// The start took long, as when the image has to be pulled again.
#[test]
fn the_last_end_of_a_container_that_started_recently_is_a_cause_whenever_it_was() {
    let causes = killed_and_unready("2026-01-01T09:45:00Z", "2026-01-01T09:59:30Z");
    assert_eq!(causes.iter().map(|cause| cause.0).collect::<Vec<_>>(), [Case::OutOfMemory]);
}

#[test]
fn exit_codes_have_meanings() {
    for (code, words) in [
        (127, "ends with exit code 127: its command does not exist in the image"),
        (139, "ends with exit code 139: SIGSEGV"),
        (0, "ends with exit code 0: it ends although it should run on"),
        (42, "ends with exit code 42, 1 restart"),
    ] {
        let state = json!({
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"reason": "Error", "exitCode": code}}, "restartCount": 1,
        });
        let (case, line, _) = first(json!({"pod": with_container(state), "node": ready_node()}));
        assert_eq!(case, Case::Crash);
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn a_volume_that_is_attached_elsewhere_is_named_with_its_user() {
    // Kubernetes 1.37 says it in other words.
    for begin in ["Multi-Attach error", "Waiting for detach"] {
        let text = format!("{begin} for volume \"pv-1\" Volume is already used by pod(s) old");
        let pod = json!({"metadata": {}, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Pending"}});
        let (case, line, _) =
            first(json!({"pod": pod, "events": [["FailedAttachVolume", text]], "node": ready_node()}));
        assert_eq!(case, Case::MultiAttach);
        let words = "volume pv-1 is still attached for pod old on another node (60 s)";
        assert!(line.starts_with(words), "{line}");
    }
}

#[test]
fn a_network_that_cannot_be_made_names_the_node() {
    let pod =
        json!({"metadata": {}, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Pending"}});
    let events = json!([["FailedCreatePodSandBox", "plugin type=\"calico\" failed: connection refused"]]);
    let (case, line, _) = first(json!({"pod": pod, "events": events, "node": ready_node()}));
    assert_eq!(case, Case::Network);
    assert!(line.starts_with("the network of the pod cannot be made on node n1: plugin type="), "{line}");
}

#[test]
fn a_sandbox_without_its_runtime_is_not_blamed_on_the_network() {
    let mut pod =
        json!({"metadata": {}, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Pending"}});
    let failed = |pod: &Value, text: &str| {
        let text = format!("Failed to create pod sandbox: rpc error: code = Unknown desc = {text}");
        first(json!({"pod": pod, "events": [["FailedCreatePodSandBox", text]], "node": ready_node()}))
    };
    let (case, line, _) = failed(&pod, "failed to create containerd task: no space left on device");
    assert_eq!(case, Case::Sandbox);
    assert!(line.starts_with("the sandbox of the pod cannot be made on node n1: Failed to create"), "{line}");
    let network =
        "failed to setup network for sandbox \"4f\": plugin type=\"bridge\" failed (add): no IP addresses";
    let (case, line, _) = failed(&pod, network);
    assert_eq!(case, Case::Network);
    let words =
        "the network of the pod cannot be made on node n1: plugin type=\"bridge\" failed (add): no IP";
    assert!(line.starts_with(words), "{line}");
    pod["spec"]["runtimeClassName"] = json!("gvisor");
    let (case, line, _) =
        failed(&pod, "failed to get sandbox runtime: no runtime for \"runsc\" is configured");
    assert_eq!(case, Case::Sandbox);
    assert!(line.starts_with("node n1 does not have the runtime runsc of RuntimeClass gvisor"), "{line}");
}

#[test]
fn texts_of_others_do_not_control_the_terminal() {
    let waiting =
        json!({"state": {"waiting": {"reason": "RunContainerError", "message": "no \u{1b}[2J such file"}}});
    let (case, line, _) = first(json!({"pod": with_container(waiting), "node": ready_node()}));
    assert_eq!(case, Case::ContainerStart);
    assert!(line.contains(r"no \u{1b}[2J such file"), "{line}");
}
