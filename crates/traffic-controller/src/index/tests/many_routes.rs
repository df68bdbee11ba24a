//! Routes that name very many Services. Their writers must not be able to fill the memory.

use super::bypass::{bypass, listed};
use super::*;

const NAMED: &str = "the proxies behind Ingress shop/r, which bypass kube-proxy";

/// Returns an object whose rules name so many Services of its namespace.
fn ingress(namespace: &str, services: usize) -> RouteObject<Ingress> {
    let path = |number| json!({"backend": {"service": {"name": format!("other{number}")}}});
    let paths: Vec<_> = (0..services).map(path).collect();
    let spec = json!({"rules": [{"http": {"paths": paths}}]});
    let metadata = json!({"name": "r", "namespace": namespace});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn put_ingress(index: &mut EndpointIndex, namespace: &str, name: &str, services: usize) -> bool {
    index.put_route::<Ingress>(
        &ObjectKey::new(namespace, name),
        ingress(namespace, services).services(),
        at(1),
    )
}

#[test]
fn an_object_with_very_many_services_counts_for_all_of_its_namespace() {
    let mut index = listed();
    put_ingress(&mut index, "elsewhere", "r", 1_001);
    put_ingress(&mut index, "shop", "r", 1_000);
    assert_eq!(bypass(&index), "");
    assert!(put_ingress(&mut index, "shop", "r", 1_001));
    assert_eq!(bypass(&index), NAMED);
    assert!(!put_ingress(&mut index, "shop", "r", 1_001), "nothing has changed");
    put(&mut index, "s", slice("web", &[]), 2);
    assert_eq!(index.pod_endpoints(&pod("a")).left_bypass.as_deref(), Some(NAMED));
    put(&mut index, "s", slice("web", &[("a", true, true, false)]), 3);
    index.remove_route::<Ingress>(&ObjectKey::new("shop", "r"), at(4));
    assert!(bypass(&index).contains("Ingress shop/r, which bypassed kube-proxy until recently"));
    index.sweep(at(1000), RETENTION);
    assert_eq!(bypass(&index), "");
}

#[test]
fn an_object_with_very_many_services_of_other_namespaces_counts_for_all() {
    let mut index = listed();
    let number = |number| ObjectKey::new(&format!("n{number}"), "other");
    let named: Vec<ObjectKey> = (0..2_000).map(number).collect();
    index.put_route::<HttpRoute>(&ObjectKey::new("elsewhere", "r"), named, at(1));
    assert!(bypass(&index).contains("HTTPRoute elsewhere/r"));
    put(&mut index, "s", slice("web", &[]), 2);
    assert!(index.pod_endpoints(&pod("a")).left_bypass.unwrap().contains("HTTPRoute elsewhere/r"));
}

#[test]
fn the_number_of_services_of_all_objects_is_bounded() {
    let mut index = listed();
    put_ingress(&mut index, "shop", "r", 1);
    for number in 0..50 {
        put_ingress(&mut index, "elsewhere", &number.to_string(), 1_000 - usize::from(number == 49));
    }
    assert_eq!(bypass(&index), "", "an earlier object keeps what it names");
    put_ingress(&mut index, "shop", "r", 10);
    assert_eq!(bypass(&index), "", "small objects are not affected by those of others");
    put_ingress(&mut index, "shop", "r", 11);
    assert_eq!(bypass(&index), NAMED, "a later one counts for all Services of its namespace");
    for number in 0..50 {
        index.remove_route::<Ingress>(&ObjectKey::new("elsewhere", &number.to_string()), at(2));
    }
    put_ingress(&mut index, "shop", "r", 1);
    index.sweep(at(1000), RETENTION);
    assert_eq!(bypass(&index), "");
}

#[test]
fn a_text_that_is_no_name_is_skipped() {
    let long = "x".repeat(254);
    let spec =
        json!({"rules": [{"backendRefs": [{"name": ""}, {"name": long}, {"name": "web", "namespace": ""}]}]});
    let object = json!({"metadata": {"name": "r", "namespace": "shop"}, "spec": spec});
    let object: RouteObject<HttpRoute> = serde_json::from_value(object).unwrap();
    assert_eq!(object.services(), [ObjectKey::new("shop", "web")]);
}
