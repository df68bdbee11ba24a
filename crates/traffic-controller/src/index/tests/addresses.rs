//! Endpoints without a `targetRef`, which name pods by their addresses.

use std::sync::Arc;

use super::api_servers::put_addresses;
use super::*;

/// A pod that uses the network of its node, which is a control plane.
fn on_control_plane(namespace: &str, ports: &[u16]) -> TargetPod {
    TargetPod {
        namespace: namespace.into(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        ports: ports.to_vec(),
        ..pod("a")
    }
}

fn index_with_node() -> EndpointIndex {
    let mut index = EndpointIndex::default();
    let addresses = vec!["10.0.0.1".parse().unwrap()];
    index.put_node(&"node1".into(), IndexedNode { addresses, ..IndexedNode::default() });
    index
}

/// Such pods could never be drained: nobody removes the address of an API server for them.
#[test]
fn the_addresses_of_the_api_servers_are_not_those_of_pods() {
    let mut index = index_with_node();
    put_addresses(&mut index, "IPv4", &["10.0.0.1"], 1);
    for ports in [&[][..], &[6443]] {
        let found = index.pod_endpoints(&on_control_plane("default", ports));
        assert!(found.services.is_empty() && found.may_be_listed_in.is_none(), "{found:?}");
    }
    assert_eq!(index.slices.len(), 1, "the slice was read");
}

#[test]
fn the_address_of_a_node_belongs_to_the_pods_with_the_ports_of_the_slice() {
    let mut index = index_with_node();
    let put_ports = |index: &mut EndpointIndex, ports: serde_json::Value| {
        let by_hand: SliceObject = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}],
            "ports": ports,
        }))
        .unwrap();
        put(index, "s", by_hand.slice().unwrap(), 1);
    };
    let found = |index: &EndpointIndex, pod: &TargetPod| {
        let found = index.pod_endpoints(pod);
        // What a pod declares does not limit the ports on which it listens.
        assert_eq!(found.services.is_empty(), found.may_be_listed_in.is_some(), "{found:?}");
        found.services.len()
    };
    put_ports(&mut index, json!([{"port": 9100}]));
    for (ports, expected) in [(&[8080][..], 0), (&[8080, 9100], 1), (&[], 1)] {
        assert_eq!(found(&index, &on_control_plane("shop", ports)), expected, "{ports:?}");
    }
    let unknown = TargetPod { node: String::new(), ..on_control_plane("shop", &[8080]) };
    assert_eq!(found(&index, &unknown), 1, "its address may be its own");
    put_ports(&mut index, json!([]));
    assert_eq!(found(&index, &on_control_plane("shop", &[8080])), 1, "the slice names no port");
}

/// A node of a cluster with two address families has an address of each, and so have the pods with its network.
#[test]
fn each_address_of_a_node_belongs_to_the_pods_with_the_ports_of_the_slice() {
    let addresses = ["10.0.0.1", "fd00::1"];
    let typed = addresses.map(|address| json!({"type": "InternalIP", "address": address}));
    let node = json!({"metadata": {"name": "node1"}, "status": {"addresses": typed}});
    let node: NodeObject = serde_json::from_value(node).unwrap();
    for address in addresses {
        let mut index = EndpointIndex::default();
        index.put_node(&"node1".into(), node.node());
        let put_in = |index: &mut EndpointIndex, namespace: &str| {
            let by_hand: SliceObject = serde_json::from_value(json!({
                "metadata": {"name": "s", "namespace": namespace, "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": if address.contains(':') { "IPv6" } else { "IPv4" },
                "endpoints": [{"addresses": [address]}],
                "ports": [{"port": 9100}],
            }))
            .unwrap();
            let key = ObjectKey::new(namespace, "s");
            index.put_slice(key, by_hand.slice().unwrap(), ChangeOrigin::Watched, at(1));
        };
        put_in(&mut index, "shop");
        put_in(&mut index, "other");
        put_service(&mut index, "other", "web", json!({"clusterIP": "10.2.0.1"}));
        let own = addresses.map(|address| address.parse().unwrap()).to_vec();
        let pod = TargetPod { addresses: own, ..on_control_plane("shop", &[8080]) };
        let found = index.pod_endpoints(&pod);
        assert!(found.services.is_empty() && found.may_be_listed_in.is_some(), "{address}: {found:?}");
        assert_eq!(found.also_sent_by, None, "{address}: it belongs to many pods");
    }
}

/// They send the pod traffic, but their writers must not be able to hold it.
#[test]
fn slices_of_others_that_have_the_address_of_a_pod_are_named() {
    let mut index = index_with_node();
    let pod = TargetPod { addresses: vec!["10.1.0.9".parse().unwrap()], ..pod("a") };
    let put_other = |index: &mut EndpointIndex, namespace: &str, endpoint: serde_json::Value| {
        let slice: SliceObject = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": namespace, "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [endpoint],
        }))
        .unwrap();
        let key = ObjectKey::new(namespace, "s");
        index.put_slice(key, slice.slice().unwrap(), ChangeOrigin::Watched, at(1));
    };
    let ready = json!({"addresses": ["10.1.0.9"]});
    let out = json!({"addresses": ["10.1.0.9"], "conditions": {"ready": false}});
    let elsewhere = json!({"addresses": ["10.1.0.8"], "targetRef": {"kind": "Pod", "uid": "a"}});
    let foreign = json!({"addresses": ["10.1.0.9"], "targetRef": {"kind": "Pod", "uid": "other"}});
    let second = json!({"addresses": ["10.1.0.8", "10.1.0.9"]});
    let of_pod = json!({"addresses": ["10.1.0.9"], "targetRef": {"kind": "Pod", "uid": "a"}});
    put_other(&mut index, "other", ready.clone());
    assert_eq!(index.pod_endpoints(&pod).also_sent_by, None, "no proxy reads a slice without its Service");
    for namespace in ["other", "shop"] {
        put_service(&mut index, namespace, "web", json!({"clusterIP": "10.2.0.1"}));
    }
    let cases = [
        ("other", &ready, true),
        ("other", &of_pod, true),
        ("other", &out, false),
        ("other", &elsewhere, false),
        ("shop", &foreign, true),
        ("shop", &second, true),
        ("shop", &of_pod, false),
        ("shop", &ready, false),
    ];
    for (namespace, endpoint, is_named) in cases {
        put_other(&mut index, namespace, endpoint.clone());
        let found = index.pod_endpoints(&pod);
        let expected = is_named.then(|| Arc::new(ObjectKey::new(namespace, "s")));
        assert_eq!(found.also_sent_by, expected, "{namespace}: {endpoint}");
        assert!(namespace == "shop" || found.services.is_empty(), "nobody waits for it: {found:?}");
        index.remove_slice(&ObjectKey::new(namespace, "s"), ChangeOrigin::Watched, at(2));
        assert!(index.by_address.is_empty(), "{:?}", index.by_address);
    }
    put_other(&mut index, "other", json!({"addresses": ["10.0.0.1"]}));
    assert_eq!(index.pod_endpoints(&on_control_plane("shop", &[8080])).also_sent_by, None);
}
