use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::snapshot::Snapshot;

fn of(value: Value) -> Snapshot {
    let read = |name: &str| value[name].clone();
    Snapshot {
        now: "2026-01-01T10:00:00Z".parse().unwrap(),
        pod: serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web", "creationTimestamp": "2026-01-01T09:57:00Z"},
            "spec": value["spec"],
            "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": value["message"],
                "lastTransitionTime": "2026-01-01T09:57:00Z",
            }]},
        }))
        .unwrap(),
        nodes: Arc::new(serde_json::from_value(read("nodes")).unwrap_or_default()),
        pods_of_nodes: Arc::new(serde_json::from_value(read("running")).unwrap_or_default()),
        claims: serde_json::from_value(read("claims")).unwrap_or_default(),
        volumes: serde_json::from_value(read("volumes")).unwrap_or_default(),
        classes: serde_json::from_value(read("classes")).unwrap_or_default(),
        unread: serde_json::from_value(read("unread")).unwrap_or_default(),
        ..Snapshot::default()
    }
}

fn first(value: Value) -> (Case, String) {
    let snapshot = of(value);
    let mut causes = Vec::new();
    add(&mut causes, &snapshot);
    (causes[0].case, causes[0].line(snapshot.now))
}

fn server(requests: &Value) -> Value {
    json!({"containers": [{"name": "server", "resources": {"requests": requests}}]})
}

fn node(name: &str, labels: &Value, taints: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}},
    })
}

#[test]
fn what_no_node_can_have_is_told_from_what_no_node_has_free() {
    let nodes = json!([node("n1", &json!({}), &json!([]))]);
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: no";
    let (case, line) =
        first(json!({"spec": server(&json!({"cpu": "64"})), "message": message, "nodes": nodes}));
    assert_eq!(case, Case::Cpu);
    assert_eq!(
        line,
        "requests 64 CPU, and the largest node has 2 CPU (3 min); next: kubectl -n shop describe pod web"
    );
    let running = json!({"n1": [{"spec": server(&json!({"cpu": "1500m"}))}]});
    let spec = server(&json!({"cpu": "1"}));
    let (_, line) = first(json!({"spec": spec, "message": message, "nodes": nodes, "running": running}));
    assert!(
        line.starts_with("requests 1 CPU, and no node has that free; node n1 has the most, 0.5 CPU (3 min)"),
        "{line}"
    );
    let message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.";
    let spec = server(&json!({"nvidia.com/gpu": "2"}));
    let (case, line) = first(json!({"spec": spec, "message": message, "nodes": nodes}));
    assert_eq!(case, Case::OtherResource);
    assert!(line.starts_with("requests 2 nvidia.com/gpu, and the largest node has 0 (3 min)"), "{line}");
}

#[test]
fn only_nodes_that_the_pod_selects_are_compared() {
    let taint = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    let mut large = node("large", &json!({}), &taint);
    large["status"]["allocatable"]["cpu"] = json!("100");
    let nodes = json!([node("n1", &json!({}), &json!([])), large]);
    let message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).";
    let (_, line) = first(json!({"spec": server(&json!({"cpu": "4"})), "message": message, "nodes": nodes}));
    assert!(line.starts_with("requests 4 CPU, and the largest node has 2 CPU"), "{line}");
}

#[test]
fn requests_count_sidecars_init_containers_and_overhead() {
    let spec = json!({
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
            {"name": "i", "resources": {"requests": {"cpu": "2"}}},
        ],
        "overhead": {"cpu": "100m"},
    });
    let nodes = json!([node("n1", &json!({}), &json!([]))]);
    let message = "0/1 nodes are available: 1 Insufficient cpu.";
    let (_, line) = first(json!({"spec": spec, "message": message, "nodes": nodes}));
    assert!(line.starts_with("requests 2.6 CPU, "), "{line}");
}

#[test]
fn the_taint_that_most_nodes_have_is_named() {
    let taint = |key: &str| json!([{"key": key, "value": "x", "effect": "NoSchedule"}]);
    let nodes = json!([
        node("n1", &json!({}), &taint("team")),
        node("n2", &json!({}), &taint("team")),
        node("n3", &json!({}), &taint("gpu")),
    ]);
    let spec = json!({"containers": [], "tolerations": [{"key": "gpu", "operator": "Exists"}]});
    let message =
        "0/3 nodes are available: 2 node(s) had untolerated taint {team: x}, 1 node(s) were unschedulable.";
    let (case, line) = first(json!({"spec": spec, "message": message, "nodes": nodes}));
    assert_eq!(case, Case::Taint);
    assert!(
        line.starts_with("does not tolerate the taint team=x:NoSchedule of 2 nodes (n1, n2) (3 min)"),
        "{line}"
    );
    assert!(line.ends_with("kubectl taint node n1 team=x:NoSchedule-"), "{line}");
}

#[test]
fn labels_that_no_node_has_are_named() {
    let nodes = json!([node("n1", &json!({"disk": "hdd"}), &json!([]))]);
    let message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    let spec = json!({"containers": [], "nodeSelector": {"disk": "ssd"}});
    let (case, line) = first(json!({"spec": spec, "message": message, "nodes": nodes}));
    assert_eq!(case, Case::NodeAffinity);
    assert!(line.starts_with("no node has the label disk=ssd that its nodeSelector wants"), "{line}");
    let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    let spec = json!({"containers": [], "affinity": affinity});
    let (_, line) = first(json!({"spec": spec, "message": message, "nodes": nodes}));
    assert!(line.starts_with("no free node matches its required node affinity: disk In ssd|nvme"), "{line}");
}

#[test]
fn the_nodes_that_nearly_fit_say_why() {
    let taint = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    let nodes = json!([
        node("n1", &json!({"gpu": "yes"}), &taint),
        node("n2", &json!({}), &json!([])),
        node("n3", &json!({}), &json!([])),
    ]);
    let message = "0/3 nodes are available: 1 node(s) had untolerated taint(s), \
                   2 node(s) didn't match Pod's node affinity/selector.";
    let spec = json!({"containers": [], "nodeSelector": {"gpu": "yes"}});
    let (case, _) = first(json!({"spec": spec, "message": message, "nodes": nodes}));
    assert_eq!(case, Case::Taint);
    let term = json!({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}, {"key": "disk", "operator": "Exists"}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    let spec = json!({"containers": [], "affinity": affinity});
    let (case, _) = first(json!({"spec": spec, "message": message, "nodes": nodes}));
    assert_eq!(case, Case::NodeAffinity);
    let message = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).";
    let (case, _) = first(json!({"spec": server(&json!({"cpu": "1"})), "message": message, "nodes": nodes}));
    assert_eq!(case, Case::Cpu);
}

#[test]
fn taints_of_other_nodes_do_not_hide_why_the_selected_node_is_closed() {
    let own = json!({"own": "shop"});
    let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    let pressure = json!([{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]);
    let message =
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s).";
    let spec = json!({"containers": [], "nodeSelector": own});
    let others = |mine: Value| {
        json!([node("n1", &json!({}), &unreachable), node("n2", &json!({}), &unreachable), mine])
    };
    let cordon = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    let mut cordoned = node("mine", &own, &cordon);
    cordoned["spec"]["unschedulable"] = json!(true);
    let (case, line) = first(json!({"spec": spec, "message": message, "nodes": others(cordoned)}));
    assert_eq!(case, Case::Cordoned);
    assert!(line.starts_with("no node takes it: 1 of 3 nodes is cordoned"), "{line}");
    let (case, line) = first(json!({
        "spec": spec, "message": "0/3 nodes are available: 3 node(s) had untolerated taint(s).",
        "nodes": others(node("mine", &own, &pressure)),
    }));
    assert_eq!(case, Case::Taint);
    assert_eq!(
        line,
        "no node takes it: memory is low on node mine (taint node.kubernetes.io/memory-pressure:NoSchedule) (3 min); \
         next: kubectl describe node mine"
    );
}

#[test]
fn the_victims_of_a_preemption_are_named() {
    let mut snapshot = of(json!({"spec": {"containers": []}, "message": ""}));
    snapshot.pod.status.as_mut().unwrap().nominated_node_name = Some("n1".to_owned());
    let victim = json!({
        "metadata": {"namespace": "shop", "name": "low", "deletionTimestamp": "2026-01-01T10:00:20Z"},
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
    });
    let pods = json!({"n1": [{"metadata": {"name": "other"}}, victim]});
    for (pods, line) in [
        (
            pods,
            "waits on node n1 for pods of lower priority to end: shop/low, killed in 20 s (3 min); next: kubectl -n shop \
             describe pod low",
        ),
        (
            json!({}),
            "waits on node n1 for pods of lower priority to end (3 min); next: kubectl get pods -A --field-selector \
             spec.nodeName=n1",
        ),
    ] {
        snapshot.pods_of_nodes = Arc::new(serde_json::from_value(pods).unwrap());
        let mut causes = Vec::new();
        add(&mut causes, &snapshot);
        assert_eq!((causes[0].case, causes[0].line(snapshot.now).as_str()), (Case::Preemption, line));
    }
}

fn with_claim() -> Value {
    json!({"containers": [], "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]})
}

#[test]
fn a_volume_in_another_zone_is_named_with_the_zones_of_the_nodes() {
    let zone = "topology.kubernetes.io/zone";
    let claims = json!([{
        "metadata": {"name": "data"}, "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"},
    }]);
    let term = json!({"matchExpressions": [{"key": zone, "operator": "In", "values": ["b"]}]});
    let volumes = json!([{
        "metadata": {"name": "pv-1"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    }]);
    let nodes = json!([node("n1", &json!({zone: "a"}), &json!([]))]);
    for message in [
        "0/1 nodes are available: 1 node(s) had volume node affinity conflict.",
        "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.",
    ] {
        let (case, line) = first(json!({
            "spec": with_claim(), "message": message, "nodes": nodes, "claims": claims, "volumes": volumes,
        }));
        assert_eq!(case, Case::VolumeZone);
        let words =
            "its volume pv-1 (PersistentVolumeClaim data) is in zone b, and the nodes are in a (3 min)";
        assert!(line.starts_with(words), "{line}");
    }
}

#[test]
fn a_claim_is_missing_or_unbound() {
    let missing = "0/1 nodes are available: persistentvolumeclaim \"data\" not found. not found";
    let (case, line) = first(json!({"spec": with_claim(), "message": missing}));
    assert_eq!(case, Case::Claim);
    assert!(line.starts_with("PersistentVolumeClaim data does not exist (3 min)"), "{line}");
    let unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    let claim =
        |class: Value| json!([{"metadata": {"name": "data"}, "spec": class, "status": {"phase": "Pending"}}]);
    for (class, classes, words) in [
        (json!({}), json!([]), "it names no StorageClass, and the cluster has no default one"),
        (
            json!({"storageClassName": "fast"}),
            json!([{"metadata": {"name": "slow"}, "provisioner": "x"}]),
            "StorageClass fast does not exist, and no PersistentVolume with its name is free",
        ),
        (
            json!({"storageClassName": "local"}),
            json!([{"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}]),
            "no PersistentVolume of StorageClass local is free, and nothing provisions them",
        ),
    ] {
        let (_, line) = first(json!({
            "spec": with_claim(), "message": unbound, "claims": claim(class), "classes": classes,
        }));
        let whole = format!("PersistentVolumeClaim data is not bound: {words}");
        assert!(line.starts_with(&whole), "{line}");
    }
}

#[test]
fn what_could_not_be_read_is_not_said_to_be_missing() {
    let forbidden = |kind: &str| json!([format!("{kind} could not be read: forbidden")]);
    let unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    for class in [json!({"storageClassName": "fast"}), json!({})] {
        let claims = json!([{"metadata": {"name": "data"}, "spec": class, "status": {"phase": "Pending"}}]);
        let (_, line) = first(json!({
            "spec": with_claim(), "message": unbound, "claims": claims, "unread": forbidden("StorageClasses"),
        }));
        let words = "PersistentVolumeClaim data is not bound: pod has unbound immediate PersistentVolumeClaims (3 min)";
        assert!(line.starts_with(words), "{line}");
    }
    let spec = json!({"containers": [], "nodeSelector": {"disk": "ssd"}});
    let message = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.";
    let (_, line) = first(json!({"spec": spec, "message": message, "unread": forbidden("nodes")}));
    let words = "no free node has all labels that its nodeSelector wants: disk=ssd (3 min)";
    assert!(line.starts_with(words), "{line}");
    let term = json!({"matchExpressions": [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]},
    ]});
    let (_, line) = first(json!({
        "spec": with_claim(), "unread": forbidden("nodes"),
        "message": "0/1 nodes are available: 1 node(s) had volume node affinity conflict.",
        "claims": [{"metadata": {"name": "data"}, "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}],
        "volumes": [{
            "metadata": {"name": "pv-1"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
        }],
    }));
    let words =
        "its volume pv-1 (PersistentVolumeClaim data) is in zone b, and no node there takes the pod (3 min)";
    assert!(line.starts_with(words), "{line}");
}

#[test]
fn gates_preemption_and_silence_have_causes() {
    let (case, line) =
        first(json!({"spec": {"containers": [], "schedulingGates": [{"name": "example.com/quota"}]}}));
    assert_eq!(case, Case::SchedulingGate);
    assert!(
        line.starts_with("is not scheduled until the owner of scheduling gate example.com/quota removes it"),
        "{line}"
    );
    let (case, line) = first(json!({"spec": {"containers": [], "schedulerName": "mine"}, "message": ""}));
    assert_eq!(case, Case::NotScheduled);
    assert!(line.contains("(schedulerName: mine)"), "{line}");
    let (case, line) = first(json!({"spec": {"containers": []}, "message": "a new reason"}));
    assert_eq!(case, Case::Unschedulable);
    assert!(line.starts_with("cannot be scheduled: a new reason"), "{line}");
}
