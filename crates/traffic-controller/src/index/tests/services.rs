//! Services that change their type.

use super::*;

/// Kubernetes leaves the slices of such a Service as they are, so they would show the pod as ready for ever.
#[test]
fn a_service_that_becomes_an_alias_is_a_change_though_its_slices_remain() {
    let mut index = EndpointIndex::default();
    let key = ObjectKey::new("shop", "web");
    let put_type = |index: &mut EndpointIndex, type_: &str, origin, time| {
        let spec = json!({"type": type_, "selector": {"app": "web"}});
        index.put_service(&key, service(spec), origin, at(time));
    };
    put_type(&mut index, "ClusterIP", ChangeOrigin::Watched, 1);
    put(&mut index, "s", slice("web", &[("a", true, true, false), ("b", false, false, false)]), 1);
    let state = |index: &EndpointIndex, uid: &str| {
        let endpoints = index.pod_endpoints(&pod(uid));
        let [service] = &endpoints.services[..] else { panic!("{endpoints:?}") };
        (service.exists, service.selects, endpoints.changed[0].unwrap())
    };
    let seen = |time| EndpointChange::dated(at(time), at(time - 1));
    assert_eq!(state(&index, "a"), (true, true, seen(1)));
    put_type(&mut index, "ExternalName", ChangeOrigin::Watched, 5);
    assert_eq!(state(&index, "a"), (false, false, seen(5)));
    assert_eq!(state(&index, "b"), (false, false, seen(1)), "it received no traffic");
    put_type(&mut index, "ExternalName", ChangeOrigin::Watched, 6);
    assert_eq!(state(&index, "a").2, seen(5), "nothing has changed");
    put_type(&mut index, "ClusterIP", ChangeOrigin::Listed(None), 7);
    assert_eq!(state(&index, "a"), (true, true, EndpointChange::undated(at(7))));
    put_type(&mut index, "NodePort", ChangeOrigin::Watched, 8);
    assert_eq!(state(&index, "a").2.seen, at(7), "the rules for its endpoints are the same");
}
