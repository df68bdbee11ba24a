//! Lost nodes, evictions, and pods that the cluster deletes.

use podward_diagnosis::Case;
use podward_diagnosis::pod::diagnose;
use serde_json::{Value, json};

use super::{first, now, ready, ready_node, snapshot, with_container};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

fn lost_node() -> Value {
    json!({
        "metadata": {"name": "n1"},
        "spec": {"taints": [
            {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-01-01T09:58:20Z"},
        ]},
        "status": {"conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting.",
            "lastTransitionTime": "2026-01-01T09:58:00Z",
        }]},
    })
}

fn tolerating(tolerations: Value) -> Value {
    let mut pod = with_container(json!({}));
    pod["spec"]["tolerations"] = tolerations;
    pod
}

#[test]
fn a_lost_node_is_told_with_the_lease_and_the_time_until_eviction() {
    let lease = json!({"spec": {"renewTime": "2026-01-01T09:57:00.000000Z"}});
    let pod = tolerating(json!([{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}]));
    let (case, line, evidence) = first(json!({"pod": pod, "node": lost_node(), "lease": lease}));
    assert_eq!(case, Case::LostNode);
    assert_eq!(line, "its node n1 does not report (2 min); next: kubectl describe node n1");
    assert_eq!(evidence[1], "kubelet lease: renewed 3 min ago");
    assert_eq!(evidence[2], "taint node.kubernetes.io/unreachable: the pod is deleted in 3 min");
}

#[test]
fn the_end_of_a_pod_on_a_lost_node_follows_from_the_first_toleration_of_the_taint() {
    let exists = |effect: &str, seconds: i64| json!({"key": UNREACHABLE, "operator": "Exists", "effect": effect, "tolerationSeconds": seconds});
    let in_3_min = "taint node.kubernetes.io/unreachable: the pod is deleted in 3 min";
    let at_once = "taint node.kubernetes.io/unreachable: the pod does not tolerate it, and Kubernetes deletes it at once";
    for (tolerations, words) in [
        (json!([]), at_once),
        (json!([exists("NoSchedule", 600)]), at_once),
        (json!([{"key": UNREACHABLE, "value": "other", "tolerationSeconds": 600}]), at_once),
        (json!([{"key": UNREACHABLE, "value": "other"}, exists("NoExecute", 300)]), in_3_min),
        // The first that tolerates the taint counts, also if another one is shorter.
        (json!([exists("", 300), exists("NoExecute", 120)]), in_3_min),
        (
            json!([{"operator": "Exists"}, exists("", 300)]),
            "it tolerates node.kubernetes.io/unreachable without an end",
        ),
    ] {
        let (_, _, evidence) = first(json!({"pod": tolerating(tolerations.clone()), "node": lost_node()}));
        assert_eq!(evidence[1], words, "{tolerations}");
    }
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
