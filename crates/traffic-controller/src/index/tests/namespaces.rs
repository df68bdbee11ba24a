//! Slices of other namespaces.

use super::*;

/// The attack: a tenant writes a slice that names the UID of another tenant's pod and the name of its Service. Then
/// the pod would never be drained, and other pods would count as ready.
#[test]
fn a_slice_that_names_a_pod_of_another_namespace_does_not_count() {
    let mut index = EndpointIndex::default();
    put(&mut index, "s", slice("web", &[("a", false, false, false)]), 1);
    let foreign = json!({
        "metadata": {
            "name": "s", "namespace": "elsewhere", "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.9"], "targetRef": {"kind": "Pod", "namespace": "shop", "uid": "a"}}],
    });
    let foreign = serde_json::from_value::<SliceObject>(foreign).unwrap().slice().unwrap();
    index.put_slice(ObjectKey::new("elsewhere", "s"), foreign, ChangeOrigin::Watched, at(5));
    let endpoints = index.pod_endpoints(&pod("a"));
    assert_eq!(endpoints.services.len(), 1);
    assert_eq!((endpoints.services[0].slices, endpoints.services[0].ready.clone()), (1, None));
    assert_eq!(endpoints.changed[0].unwrap().seen, at(1));
}
