//! The ports on which clients reach a pod.

use std::collections::BTreeSet;

use super::*;

fn with_ports(endpoints: &[(&str, bool, bool, bool)], ports: serde_json::Value) -> IndexedSlice {
    let slice: SliceObject = serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": ports,
    }))
    .unwrap();
    IndexedSlice { endpoints: super::slice("web", endpoints).endpoints, ..slice.slice().unwrap() }
}

#[test]
fn the_ports_of_the_slices_of_a_pod_are_kept_when_it_leaves_them() {
    let mut index = EndpointIndex::default();
    let ready = ("a", true, true, false);
    let ports = json!([
        {"name": "grpc", "port": 50_051, "protocol": "TCP"},
        {"name": "default", "port": 8080},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "any"},
        {"name": "invalid", "port": 70_000},
    ]);
    put(&mut index, "s1", with_ports(&[ready, ("b", true, true, false)], ports), 1);
    put(&mut index, "s2", with_ports(&[ready], json!([{"port": 9000}])), 1);
    assert_eq!(index.ports_of(&pod("a")), BTreeSet::from([8080, 8081, 9000, 50_051]));
    assert_eq!(index.ports_of(&pod("b")), BTreeSet::from([8080, 8081, 50_051]));
    assert_eq!(index.ports_of(&pod("c")), BTreeSet::from([8081]), "the pod declares it");
    put(&mut index, "s1", with_ports(&[], json!([])), 2);
    index.remove_slice(&ObjectKey::new("shop", "s2"), ChangeOrigin::Watched, at(3));
    assert_eq!(
        index.ports_of(&pod("a")),
        BTreeSet::from([8080, 8081, 9000, 50_051]),
        "older connections remain"
    );
}

#[test]
fn the_ports_of_a_pod_are_bounded() {
    let mut index = EndpointIndex::default();
    let number = u16::try_from(MAX_PORTS).unwrap();
    let ports = |from: u16| (from..from + number).map(|port| json!({"port": port})).collect::<Vec<_>>();
    let ready = ("a", true, true, false);
    put(&mut index, "s", with_ports(&[ready], json!(ports(1000))), 1);
    let target = TargetPod { ports: Vec::new(), ..pod("a") };
    assert_eq!(index.ports_of(&target).len(), MAX_PORTS);
    for from in [2000, 3000] {
        put(&mut index, "s", with_ports(&[ready], json!(ports(from))), 2);
        assert_eq!(index.ports_of(&target).len(), MAX_PORTS + 1, "more are not sent");
    }
}
