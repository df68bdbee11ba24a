//! Services that change their type, headless ones without a selector, and the other endpoints of a Service.

use super::*;
use crate::drain_tracker::DrainTracker;

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

/// Returns a slice of the Service `by-hand` without the labels that Kubernetes writes, which names pods by address.
fn by_hand(addresses: &[&str]) -> IndexedSlice {
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    object(json!({"kubernetes.io/service-name": "by-hand"}), json!(endpoints)).slice().unwrap()
}

/// kube-proxy has nothing to do with a headless Service, even if the writer of its slices has not labelled them.
#[test]
fn a_headless_service_without_a_selector_reaches_pods_by_dns() {
    type Leave = fn(&mut EndpointIndex);
    let ways: [Leave; 3] = [
        |index| put(index, "s", by_hand(&[]), 5),
        |index| index.remove_slice(&ObjectKey::new("shop", "s"), ChangeOrigin::Watched, at(5)),
        |index| {
            index.remove_service(&ObjectKey::new("shop", "by-hand"), ChangeOrigin::Watched, at(5));
            put(index, "s", by_hand(&[]), 6);
        },
    ];
    for (way, leave) in ways.into_iter().enumerate() {
        let mut index = EndpointIndex::default();
        put(&mut index, "s", by_hand(&["10.0.0.9"]), 1);
        // The slice may be observed before its Service.
        put_service(&mut index, "shop", "by-hand", json!({"clusterIP": "None"}));
        assert_eq!(index.pod_endpoints(&pod("a")).services[0].kind, ServiceKind::Headless);
        leave(&mut index);
        let left = index.pod_endpoints(&pod("a")).left[DataPath::Dns.index()];
        assert_eq!(left.map(|change| change.seen), Some(at(5)), "{way}");
    }
    let mut index = EndpointIndex::default();
    put_service(&mut index, "shop", "by-hand", json!({"clusterIP": "10.1.0.1"}));
    put(&mut index, "s", by_hand(&["10.0.0.9"]), 1);
    assert_eq!(index.pod_endpoints(&pod("a")).services[0].kind, ServiceKind::Proxied);
}

fn of_other_proxy() -> IndexedService {
    IndexedService { kind: ServiceKind::OtherProxy, ..service(json!({"clusterIP": "10.1.0.1"})) }
}

#[test]
fn slices_without_labels_belong_to_the_proxy_of_their_service() {
    let mut index = EndpointIndex::default();
    put(&mut index, "s", by_hand(&["10.0.0.9"]), 1);
    let by_hand_service = ObjectKey::new("shop", "by-hand");
    index.put_service(&by_hand_service, of_other_proxy(), ChangeOrigin::Watched, at(1));
    assert_eq!(index.pod_endpoints(&pod("a")).services[0].kind, ServiceKind::OtherProxy);
    put(&mut index, "s", by_hand(&[]), 5);
    let left = index.pod_endpoints(&pod("a")).left[DataPath::OtherProxy.index()];
    assert_eq!(left.map(|change| change.seen), Some(at(5)));
}

/// Each may have clients that have not learned of the change.
#[test]
fn a_service_that_is_handed_to_another_proxy_has_been_left_by_the_former_one() {
    let by_hand_service = ObjectKey::new("shop", "by-hand");
    let of_kube_proxy = || service(json!({"clusterIP": "10.1.0.1"}));
    for (before, after, former) in [
        (of_kube_proxy(), of_other_proxy(), DataPath::KubeProxy),
        (of_other_proxy(), of_kube_proxy(), DataPath::OtherProxy),
    ] {
        let mut index = EndpointIndex::default();
        index.put_service(&by_hand_service, before, ChangeOrigin::Watched, at(1));
        put(&mut index, "s", by_hand(&["10.0.0.9"]), 1);
        index.put_service(&by_hand_service, after, ChangeOrigin::Watched, at(5));
        for slices in [by_hand(&["10.0.0.9"]), by_hand(&[])] {
            let left = index.pod_endpoints(&pod("a")).left[former.index()];
            assert_eq!(left.map(|change| change.seen), Some(at(5)), "{former:?}");
            put(&mut index, "s", slices, 6);
        }
    }
}

/// With several replicas, another one may have been told that the pod is back in service.
#[test]
fn a_drained_pod_that_is_ready_again_counts_as_another_endpoint() {
    let mut index = EndpointIndex::default();
    let tracker = DrainTracker::default();
    tracker.mark_checked(&"b".into(), at(0));
    tracker.mark_drained(&"b".into(), at(0));
    let mut ready = |b_is_ready, now| {
        put(&mut index, "s", slice("web", &[("a", true, true, false), ("b", b_is_ready, true, false)]), now);
        let others = index.other_endpoints(&ObjectKey::new("shop", "web"), &pod("a"), |owner, is_ready| {
            matches!(owner, EndpointOwner::Pod(_, uid) if tracker.is_draining(uid, is_ready, at(now)))
        });
        (others.ready, others.starting)
    };
    assert_eq!(ready(false, 61), (0, 0), "it is drained");
    assert_eq!(ready(true, 59), (0, 0), "it may be drained soon");
    assert_eq!(ready(true, 61), (1, 0), "it is back");
    assert_eq!(ready(false, 3601), (0, 1), "the time is over");
}

#[test]
fn a_change_of_a_service_is_remembered_for_a_while() {
    let alias = || service(json!({"type": "ExternalName", "selector": {"app": "web"}}));
    let key = ObjectKey::new("shop", "web");
    type Change<'a> = &'a dyn Fn(&mut EndpointIndex);
    let ways: [Change<'_>; 3] = [
        &|index| index.put_service(&key, alias(), ChangeOrigin::Watched, at(5)),
        &|index| index.remove_service(&key, ChangeOrigin::Watched, at(5)),
        &|index| index.retain_services(&HashSet::new(), at(5)),
    ];
    for change in ways {
        let mut index = EndpointIndex::default();
        put_service(&mut index, "shop", "web", json!({"selector": {"app": "web"}}));
        put(&mut index, "s", slice("web", &[("a", true, true, false)]), 1);
        put(&mut index, "s", slice("web", &[("a", false, false, false)]), 2);
        let changed = |index: &EndpointIndex| index.pod_endpoints(&pod("a")).service_changed;
        assert!(!changed(&index), "only its slice has");
        change(&mut index);
        put(&mut index, "s", slice("web", &[("a", true, true, false)]), 6);
        assert!(changed(&index), "a later change of the slice does not show that it was received");
        index.sweep(at(604), RETENTION);
        assert!(changed(&index));
        index.sweep(at(605), RETENTION);
        assert!(!changed(&index));
    }
}
