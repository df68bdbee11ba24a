//! First lines for pods, from objects of the Kubernetes API. Their causes are also caused on clusters, in `tests/e2e`.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::sync::Arc;

use jiff::Timestamp;
use podward_diagnosis::pod::diagnose;
use podward_diagnosis::traffic::{self, ServiceEndpoint};
use podward_diagnosis::{Case, PodEvents, Snapshot};
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-01T10:00:00Z".parse().unwrap()
}

/// Reads a snapshot from JSON: `pod` without its name, `events` as reason and message.
fn snapshot(mut value: Value) -> Snapshot {
    let metadata = &mut value["pod"]["metadata"];
    metadata["namespace"] = json!("shop");
    metadata["name"] = json!("web");
    metadata["uid"] = json!("u1");
    let events = value["events"].as_array().cloned().unwrap_or_default().into_iter().map(|event| {
        json!({
            "metadata": {}, "reason": event[0], "message": event[1],
            "involvedObject": {"fieldPath": "spec.containers{server}"}, "lastTimestamp": "2026-01-01T09:59:00Z",
        })
    });
    let events = serde_json::from_value(Value::Array(events.collect())).unwrap();
    let list = |name: &str| if value[name].is_null() { json!([]) } else { value[name].clone() };
    Snapshot {
        now: now(),
        pod: serde_json::from_value(value["pod"].clone()).unwrap(),
        events: PodEvents::new(events),
        node: serde_json::from_value(value["node"].clone()).unwrap(),
        lease: serde_json::from_value(value["lease"].clone()).unwrap(),
        budgets: Arc::new(serde_json::from_value(list("budgets")).unwrap()),
        services: Arc::new(serde_json::from_value(list("services")).unwrap()),
        slices: Arc::new(serde_json::from_value(list("slices")).unwrap()),
        ..Snapshot::default()
    }
}

fn first(value: Value) -> (Case, String, Vec<String>) {
    let causes = diagnose(&snapshot(value), None);
    (causes[0].case, causes[0].line(now()), causes[0].evidence.clone())
}

fn ready_node() -> Value {
    json!({"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A pod on node n1 whose container has this status.
fn with_container(state: Value) -> Value {
    let mut status = json!({
        "name": "server", "image": "example.com/web:1", "imageID": "", "ready": false, "restartCount": 0, "started": false,
    });
    status.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
    json!({
        "metadata": {},
        "spec": {"nodeName": "n1", "containers": [{"name": "server", "resources": {"limits": {"memory": "64Mi"}}}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    })
}

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
fn a_lost_node_is_told_with_the_lease_and_the_time_until_eviction() {
    let node = json!({
        "metadata": {"name": "n1"},
        "spec": {"taints": [
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T09:58:20Z"},
        ]},
        "status": {"conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting.",
            "lastTransitionTime": "2026-01-01T09:58:00Z",
        }]},
    });
    let lease = json!({"spec": {"renewTime": "2026-01-01T09:57:00.000000Z"}});
    let (case, line, evidence) =
        first(json!({"pod": with_container(json!({})), "node": node, "lease": lease}));
    assert_eq!(case, Case::LostNode);
    assert_eq!(line, "its node n1 does not report (2 min); next: kubectl describe node n1");
    assert_eq!(evidence[1], "kubelet lease: renewed 3 min ago");
    assert_eq!(evidence[2], "taint node.kubernetes.io/unreachable: the pod is deleted in 3 min");
}

#[test]
fn an_evicted_pod_names_the_pressure() {
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ";
    let pod = json!({
        "metadata": {}, "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Failed", "reason": "Evicted", "message": message, "startTime": "2026-01-01T09:00:00Z"},
    });
    let (case, line, _) = first(json!({"pod": pod}));
    assert_eq!(case, Case::Evicted);
    assert!(
        line.starts_with("the kubelet of node n1 evicted it: The node was low on resource: memory."),
        "{line}"
    );
    assert!(line.ends_with("; next: kubectl describe node n1"), "{line}");
}

#[test]
fn a_pod_that_ends_on_a_lost_node_says_so() {
    let mut pod = with_container(json!({"state": {"running": {}}}));
    pod["metadata"] = json!({"deletionTimestamp": "2026-01-01T09:59:30Z", "deletionGracePeriodSeconds": 30});
    let lost = json!({"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let (case, line, _) = first(json!({"pod": pod.clone(), "node": lost}));
    assert_eq!(case, Case::LostNode);
    assert!(line.starts_with("is being deleted, but its node n1 does not report (60 s)"), "{line}");
    let (case, line, _) = first(json!({"pod": pod, "node": ready_node()}));
    assert_eq!(case, Case::Stopping);
    assert!(line.starts_with("container server still runs 30 s after its grace period (60 s)"), "{line}");
}

#[test]
fn a_pod_that_the_cluster_deletes_says_why() {
    for (reason, words) in [
        (
            "PreemptionByScheduler",
            "is stopping, preempted by the scheduler for a pod of higher priority: container",
        ),
        ("EvictionByEvictionAPI", "is stopping, evicted: container server handles SIGTERM, killed in 30 s"),
        ("DeletionByTaintManager", "is stopping, deleted for a taint of its node: container server"),
        ("DeletionByPodGC", "is stopping, deleted by the garbage collector of pods: container server"),
    ] {
        let mut pod = with_container(json!({"state": {"running": {}}}));
        pod["metadata"] =
            json!({"deletionTimestamp": "2026-01-01T10:00:30Z", "deletionGracePeriodSeconds": 30});
        pod["status"]["conditions"] =
            json!([{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "told"}]);
        let (_, line, evidence) = first(json!({"pod": pod, "node": ready_node()}));
        assert!(line.starts_with(words), "{line}");
        assert_eq!(evidence, [format!("condition DisruptionTarget ({reason}): told")]);
    }
}

#[test]
fn gates_of_load_balancers_have_owners() {
    let gate = "target-health.elbv2.k8s.aws/k8s-shop-web";
    let pod = json!({
        "metadata": {},
        "spec": {"nodeName": "n1", "containers": [], "readinessGates": [{"conditionType": gate}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T09:50:00Z"},
            {"type": "Ready", "status": "False"},
        ]},
    });
    let (case, line, evidence) = first(json!({"pod": pod, "node": ready_node()}));
    assert_eq!(case, Case::ReadinessGateMissing);
    assert!(
        line.contains("was never written, which the AWS Load Balancer Controller does (10 min)"),
        "{line}"
    );
    assert!(
        line.ends_with("next: kubectl -n kube-system logs deployment/aws-load-balancer-controller"),
        "{line}"
    );
    assert_eq!(evidence, ["nobody has written the condition"]);
}

#[test]
fn gates_of_clone_sets_are_written_by_one_of_two_controllers() {
    let told = |gate: &str, manager: Option<&str>| {
        let mut pod = json!({
            "metadata": {},
            "spec": {"nodeName": "n1", "containers": [], "readinessGates": [{"conditionType": gate}]},
            "status": {"phase": "Running", "conditions": [{"type": "ContainersReady", "status": "True"}]},
        });
        if let Some(manager) = manager {
            let mut fields = json!({"f:status": {"f:conditions": {}}});
            fields["f:status"]["f:conditions"][format!("k:{{\"type\":\"{gate}\"}}")] =
                json!({"f:status": {}});
            pod["metadata"] = json!({"managedFields": [{"manager": manager, "fieldsV1": fields}]});
            let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(json!({"type": gate, "status": "False"}));
        }
        first(json!({"pod": pod, "node": ready_node()})).1
    };
    let kruise = "kubectl -n kruise-system logs deployment/kruise-controller-manager";
    let podward = "kubectl -n podward-system logs -l app.kubernetes.io/name=cloneset-controller --tail=-1";
    for gate in ["InPlaceUpdateReady", "KruisePodReady"] {
        for (manager, owner, next) in [
            ("podward-cloneset-controller", "Podward's cloneset-controller", podward),
            ("kruise-manager", "OpenKruise", kruise),
            ("other", "other", "kubectl -n shop get pod web -o yaml --show-managed-fields"),
        ] {
            let line = format!("its readiness gate {gate} is False, which {owner} sets; next: {next}");
            assert_eq!(told(gate, Some(manager)), line);
        }
        let line = told(gate, None);
        let words = "was never written, which OpenKruise or Podward's cloneset-controller does";
        assert!(line.contains(words) && !line.contains("kruise-system"), "{line}");
    }
    // A gate with the domain of its owner has no other owner.
    let line = told("target-health.elbv2.k8s.aws/web", Some("controller"));
    assert!(line.contains("is False, which the AWS Load Balancer Controller sets"), "{line}");
}

fn ready(labels: &Value) -> Value {
    json!({
        "metadata": {"labels": labels}, "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn a_ready_pod_on_a_node_that_is_not_ready_is_told() {
    let node = json!({"metadata": {"name": "n1"}, "status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime is down"},
    ]}});
    let (case, line, _) = first(json!({"pod": ready(&json!({})), "node": node}));
    assert_eq!(case, Case::NodeNotReady);
    let words =
        "is Ready, and its node n1 is not Ready: container runtime is down; next: kubectl describe node n1";
    assert_eq!(line, words);
}

#[test]
fn an_eviction_that_budgets_refuse_names_them() {
    let budget = |name: &str| {
        json!({
            "metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 3},
        })
    };
    let waits =
        "operation pod-delete (delete) waits for its pre-checks: the disruption budget web has no room";
    let causes = |budgets: Value| {
        let snapshot = snapshot(json!({
            "pod": ready(&json!({"app": "web"})), "budgets": budgets, "node": ready_node(),
        }));
        diagnose(&snapshot, Some(waits))
    };
    let found = causes(json!([budget("web")]));
    assert_eq!((found[0].case, found[1].case), (Case::Budget, Case::Operation));
    assert_eq!(
        found[0].line(now()),
        "PodDisruptionBudget web allows no eviction: 2 of 3 pods are healthy, and 2 have to be; \
         next: kubectl -n shop describe pdb web"
    );
    let found = causes(json!([budget("web"), budget("all")]));
    assert_eq!(found[0].case, Case::SeveralBudgets);
}

#[test]
fn a_ready_pod_that_a_slice_does_not_list_as_ready_is_a_cause() {
    let slice = |ready: bool| {
        json!([{
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "targetRef": {"uid": "u1"}}],
        }])
    };
    let (case, line, _) = first(json!({
        "pod": ready(&json!({})), "slices": slice(false), "node": ready_node(),
    }));
    assert_eq!(case, Case::Traffic);
    assert!(
        line.starts_with("is Ready, and EndpointSlice web-1 of Service web lists it as not ready"),
        "{line}"
    );
    let service = json!([{"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}}]);
    let (case, line, _) = first(json!({
        "pod": ready(&json!({"app": "web"})), "services": service, "node": ready_node(),
    }));
    assert_eq!(case, Case::Traffic);
    assert!(line.starts_with("is Ready, and no EndpointSlice of Service web lists it; next: "), "{line}");
    let in_order = json!({"pod": ready(&json!({})), "slices": slice(true), "node": ready_node()});
    let in_order = snapshot(in_order);
    assert_eq!(diagnose(&in_order, None), []);
    let [ServiceEndpoint { service, ready: true, serving: true, terminating: false, .. }] =
        &traffic::endpoints(&in_order)[..]
    else {
        panic!("{:?}", traffic::endpoints(&in_order))
    };
    assert_eq!(service, "web");
}

#[test]
fn a_pod_that_is_not_ready_and_listed_as_ready_is_told_unless_its_service_wants_it() {
    let gate = json!([{"conditionType": "example.com/balancer"}]);
    let pod = json!({
        "metadata": {}, "spec": {"nodeName": "n1", "containers": [], "readinessGates": gate},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
            {"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"},
        ]},
    });
    let labels = json!({
        "kubernetes.io/service-name": "mesh", "endpointslice.kubernetes.io/managed-by": "mesh.example.com",
    });
    // The endpoint has no reference to the pod.
    let slices = json!([{
        "metadata": {"name": "by-hand", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    }]);
    let told = |publishes: bool| {
        let spec = json!({"publishNotReadyAddresses": publishes});
        let services = json!([{"metadata": {"name": "mesh"}, "spec": spec}]);
        let snapshot =
            snapshot(json!({"pod": pod, "slices": slices, "services": services, "node": ready_node()}));
        diagnose(&snapshot, None)
    };
    let causes = told(false);
    let cases: Vec<Case> = causes.iter().map(|cause| cause.case).collect();
    assert_eq!(cases, [Case::ReadinessGateMissing, Case::Traffic]);
    let words = "is not Ready, and EndpointSlice by-hand of Service mesh, which mesh.example.com manages, lists it as ready, \
                 so that it gets traffic; next: kubectl -n shop get endpointslice by-hand -o yaml";
    assert_eq!(causes[1].line(now()), words);
    assert_eq!(told(true).len(), 1);
}

#[test]
fn texts_of_others_do_not_control_the_terminal() {
    let waiting =
        json!({"state": {"waiting": {"reason": "RunContainerError", "message": "no \u{1b}[2J such file"}}});
    let (case, line, _) = first(json!({"pod": with_container(waiting), "node": ready_node()}));
    assert_eq!(case, Case::ContainerStart);
    assert!(line.contains(r"no \u{1b}[2J such file"), "{line}");
}
