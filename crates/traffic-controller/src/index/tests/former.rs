//! What is remembered for a while after it has ended, and what is forgotten.

use std::time::Duration;

use clap::Parser;

use super::bypass::{bypass, listed};
use super::*;

#[test]
fn a_service_that_a_pod_has_left_is_forgotten_while_the_pod_is_in_another_one() {
    let mut index = EndpointIndex::default();
    let ready = ("a", true, true, false);
    put(&mut index, "s1", slice("web", &[ready]), 1);
    let headless = IndexedSlice { data_path: DataPath::Dns, ..slice("headless", &[ready]) };
    put(&mut index, "s2", headless, 1);
    index.remove_slice(&ObjectKey::new("shop", "s2"), ChangeOrigin::Watched, at(10));
    let left = |index: &EndpointIndex| index.pod_endpoints(&pod("a")).left;
    index.sweep(at(609), RETENTION);
    assert_eq!(left(&index)[DataPath::Dns.index()].unwrap().seen, at(10));
    index.sweep(at(611), RETENTION);
    assert_eq!(left(&index), [None; 3]);
    assert_eq!(index.pod_endpoints(&pod("a")).services.len(), 1);
}

/// Clients cache its addresses for 20 minutes.
#[test]
fn a_headless_service_that_a_pod_has_left_is_remembered_until_clients_have_forgotten_it() {
    let mut index = EndpointIndex::default();
    let headless =
        IndexedSlice { data_path: DataPath::Dns, ..slice("headless", &[("a", true, true, false)]) };
    put(&mut index, "s", headless, 1);
    index.remove_slice(&ObjectKey::new("shop", "s"), ChangeOrigin::Watched, at(10));
    let kept = retention(&["--dns-ttl", "1200", "--propagation", "3"]);
    index.sweep(at(1211), kept);
    assert_eq!(index.pod_endpoints(&pod("a")).left[DataPath::Dns.index()].unwrap().seen, at(10));
    index.sweep(at(2531), kept);
    assert_eq!(index.pod_endpoints(&pod("a")).left, [None; 3]);
}

/// Without the Service, nothing would wait for the rest of the time.
#[test]
fn a_service_that_a_pod_has_left_is_remembered_while_its_requests_are_waited_for() {
    assert_eq!(retention(&[]), RETENTION);
    for wait in ["--connection-wait", "--quiet-period"] {
        let mut index = EndpointIndex::default();
        put(&mut index, "s", slice("web", &[("a", true, true, false)]), 1);
        index.remove_slice(&ObjectKey::new("shop", "s"), ChangeOrigin::Watched, at(10));
        let kept = retention(&[wait, "1800"]);
        index.sweep(at(10 + 30 + 1800), kept);
        assert!(index.pod_endpoints(&pod("a")).left[DataPath::KubeProxy.index()].is_some(), "{wait}");
        index.sweep(at(3671), kept);
        assert_eq!(index.pod_endpoints(&pod("a")).left, [None; 3], "{wait}");
    }
}

/// Returns the retention with these arguments.
fn retention(waits: &[&str]) -> Duration {
    crate::Args::parse_from([&["x"], waits].concat()).waits.wait_times().retention()
}

/// The slice is written by hand, and its label is changed or removed. kube-proxy has to remove the rules of the Service.
#[test]
fn a_slice_that_goes_to_another_service_or_data_path_is_a_change() {
    let ready = || slice("web", &[("a", true, true, false), ("b", false, false, false)]);
    let moved = [
        IndexedSlice { service: None, ..ready() },
        slice("other", &[("a", true, true, false), ("b", false, false, false)]),
        IndexedSlice { data_path: DataPath::OtherProxy, ..ready() },
    ];
    for to in moved {
        let mut index = EndpointIndex::default();
        put(&mut index, "s", ready(), 1);
        put(&mut index, "s", to.clone(), 5);
        let endpoints = index.pod_endpoints(&pod("a"));
        assert_eq!(endpoints.changed[0].unwrap().seen, at(5), "{to:?}");
        assert_eq!(endpoints.left[DataPath::KubeProxy.index()].unwrap().seen, at(5), "{to:?}");
        assert_eq!(endpoints.services.len(), usize::from(to.service.is_some()));
        let idle = index.pod_endpoints(&pod("b"));
        assert_eq!(idle.changed[0].unwrap().seen, at(1), "it received no traffic: {to:?}");
    }
}

fn ingress_to(index: &mut EndpointIndex, service: &str, time: i64) {
    let spec = json!({"defaultBackend": {"service": {"name": service}}});
    let object = json!({"metadata": {"name": "r", "namespace": "shop"}, "spec": spec});
    let object: RouteObject<Ingress> = serde_json::from_value(object).unwrap();
    index.put_route::<Ingress>(&ObjectKey::new("shop", "r"), object.services(), at(time));
}

/// An Ingress is switched from the Service `web` to another one, and the pods of `web` are deleted at once. The
/// Ingress controller sends requests to them until it has observed that.
#[test]
fn a_route_bypasses_kube_proxy_for_a_while_after_it_has_ended() {
    const FORMER: &str = "the proxies behind Ingress shop/r, which bypassed kube-proxy until recently";
    type End = fn(&mut EndpointIndex);
    let ends: [End; 3] = [
        |index| ingress_to(index, "green", 5),
        |index| index.remove_route::<Ingress>(&ObjectKey::new("shop", "r"), at(5)),
        |index| index.retain_routes::<Ingress>(&HashSet::new(), at(5)),
    ];
    for end in ends {
        let mut index = listed();
        ingress_to(&mut index, "web", 1);
        end(&mut index);
        assert_eq!(bypass(&index), FORMER);
        index.sweep(at(604), RETENTION);
        assert_eq!(bypass(&index), FORMER);
        let mut swept = index;
        swept.sweep(at(606), RETENTION);
        assert_eq!(bypass(&swept), "");
    }
    let mut index = listed();
    ingress_to(&mut index, "web", 1);
    ingress_to(&mut index, "green", 5);
    ingress_to(&mut index, "web", 6);
    assert_eq!(bypass(&index), "the proxies behind Ingress shop/r, which bypass kube-proxy");
}

#[test]
fn a_former_route_counts_for_a_pod_that_has_left_its_service() {
    let mut index = listed();
    ingress_to(&mut index, "web", 1);
    put(&mut index, "s", slice("web", &[]), 2);
    ingress_to(&mut index, "green", 3);
    index.remove_route::<Ingress>(&ObjectKey::new("shop", "r"), at(4));
    let left = index.pod_endpoints(&pod("a")).left_bypass.unwrap();
    assert!(left.contains("Ingress shop/r, which bypassed kube-proxy until recently"), "{left}");
}

/// An untrusted writer can name any number of Services.
#[test]
fn the_number_of_former_services_is_bounded() {
    let mut index = listed();
    let names = |prefix: usize| -> Vec<ObjectKey> {
        (0..900).map(|number| ObjectKey::new("x", &format!("{prefix}-{number}"))).collect()
    };
    for prefix in 0..12 {
        index.put_route::<Ingress>(&ObjectKey::new("x", "r"), names(prefix), at(5));
    }
    assert_eq!(bypass(&index), "");
    index.remove_route::<Ingress>(&ObjectKey::new("x", "r"), at(5));
    assert!(bypass(&index).contains("until recently"), "it is not known which Services are missing");
    index.sweep(at(606), RETENTION);
    assert_eq!(bypass(&index), "");
}

/// The pod left a headless Service, or one with an Ingress, just before this process started. The first list does not
/// show that.
#[test]
fn a_pod_in_the_first_list_may_have_left_a_service_before() {
    let mut index = EndpointIndex::default();
    let key = ObjectKey::new("shop", "s1");
    let old = slice("web", &[("old", true, true, false)]);
    index.put_slice(key, old, ChangeOrigin::Listed(Some(at(1))), at(2));
    index.set_slices_listed(at(3));
    put(&mut index, "s2", slice("web", &[("new", true, true, false)]), 4);
    let since = |index: &EndpointIndex, uid: &str| index.pod_endpoints(&pod(uid)).may_have_left_since;
    assert_eq!(since(&index, "old"), Some(at(3)));
    assert_eq!(since(&index, "new"), None, "it was probably created later");
    index.set_slices_listed(at(60));
    assert_eq!(since(&index, "old"), Some(at(3)), "what has changed since then is known");
    assert_eq!(since(&index, "unlisted"), Some(at(60)));
}
