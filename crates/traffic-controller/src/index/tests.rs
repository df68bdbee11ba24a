use std::collections::{BTreeMap, HashSet};

use podward_core::UnixNanos;
use proptest::prelude::*;
use serde_json::json;

use super::node::IndexedNode;
use super::service::IndexedService;
use super::slice::IndexedSlice;
use super::*;

mod addresses;
mod api_servers;
mod bypass;
mod former;
mod interrupted;
mod many_routes;
mod namespaces;
mod nodes;
mod ports;
mod services;

fn at(seconds: i64) -> UnixNanos {
    UnixNanos(seconds * 1_000_000_000)
}

/// Returns a slice of the Service `service` with endpoints: UID, ready, serving, terminating.
fn slice(service: &str, endpoints: &[(&str, bool, bool, bool)]) -> IndexedSlice {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|(uid, ready, serving, terminating)| {
            json!({
                "addresses": ["10.0.0.1"],
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
                "targetRef": {"kind": "Pod", "uid": uid},
            })
        })
        .collect();
    object(json!({"kubernetes.io/service-name": service}), json!(endpoints)).slice().unwrap()
}

fn object(labels: serde_json::Value, endpoints: serde_json::Value) -> SliceObject {
    serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "shop", "labels": labels},
        "addressType": "IPv4",
        "endpoints": endpoints,
    }))
    .unwrap()
}

fn service(spec: serde_json::Value) -> IndexedService {
    let object = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
    serde_json::from_value::<ServiceObject>(object).unwrap().service()
}

fn put_service(index: &mut EndpointIndex, namespace: &str, name: &str, spec: serde_json::Value) {
    index.put_service(&ObjectKey::new(namespace, name), service(spec), ChangeOrigin::Watched, at(1));
}

fn pod(uid: &str) -> TargetPod {
    TargetPod {
        namespace: "shop".into(),
        name: uid.to_owned(),
        uid: uid.into(),
        addresses: vec!["10.0.0.9".parse().unwrap()],
        ports: vec![8081],
        labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        node: "node1".to_owned(),
        never_ready: false,
    }
}

fn owner_of(uid: &str) -> EndpointOwner {
    EndpointOwner::Pod("shop".into(), uid.into())
}

#[test]
fn a_pod_that_no_slice_has_shown_as_ready_was_never_sent_traffic() {
    let mut index = EndpointIndex::default();
    let never_ready = |uid: &str| TargetPod { never_ready: true, ..pod(uid) };
    index.put_slice(
        ObjectKey::new("shop", "s1"),
        slice("web", &[("listed", false, false, false)]),
        ChangeOrigin::Listed(None),
        at(1),
    );
    put(&mut index, "s2", slice("web", &[("new", false, false, false), ("sent", false, true, false)]), 2);
    put(&mut index, "s2", slice("web", &[("new", false, false, false), ("sent", false, false, false)]), 3);
    assert!(index.pod_endpoints(&never_ready("new")).never_sent);
    assert!(index.pod_endpoints(&never_ready("unlisted")).never_sent);
    assert!(!index.pod_endpoints(&pod("new")).never_sent, "it was Ready");
    assert!(!index.pod_endpoints(&never_ready("sent")).never_sent, "somebody else's slice has shown it");
    assert!(!index.pod_endpoints(&never_ready("listed")).never_sent, "unknown before the first list");
}

fn put(index: &mut EndpointIndex, name: &str, slice: IndexedSlice, time: i64) {
    index.put_slice(ObjectKey::new("shop", name), slice, ChangeOrigin::Watched, at(time));
}

#[test]
fn a_change_of_one_pod_is_not_a_change_of_the_others() {
    let mut index = EndpointIndex::default();
    put(&mut index, "s1", slice("web", &[("a", true, true, false), ("b", true, true, false)]), 1);
    put(&mut index, "s1", slice("web", &[("a", true, true, false), ("b", false, false, false)]), 5);
    assert_eq!(index.pod_endpoints(&pod("a")).changed[0].unwrap().seen, at(1));
    assert_eq!(index.pod_endpoints(&pod("b")).changed[0].unwrap(), EndpointChange::dated(at(5), at(4)));
    put(&mut index, "s1", slice("web", &[("a", true, true, false)]), 9);
    let gone = index.pod_endpoints(&pod("b"));
    assert_eq!(gone.changed[0].unwrap().seen, at(5), "it was not ready before");
    assert!(gone.services.is_empty());
    assert_eq!(
        gone.left[DataPath::KubeProxy.index()].unwrap().seen,
        at(5),
        "the proxies may not have applied it yet"
    );
    assert_eq!(index.pod_endpoints(&pod("a")).left, [None; 3]);
    put(&mut index, "s1", slice("web", &[]), 12);
    assert_eq!(index.pod_endpoints(&pod("a")).changed[0].unwrap().seen, at(12));
    index.sweep(at(611), RETENTION);
    assert_eq!(index.pod_endpoints(&pod("a")).changed[0].unwrap().seen, at(12));
    index.sweep(at(613), RETENTION);
    assert_eq!(index.pod_endpoints(&pod("a")).changed, [None; 2]);
}

#[test]
fn all_services_of_a_pod_are_found() {
    let mut index = EndpointIndex::default();
    let selector = json!({"app": "web"});
    put_service(&mut index, "shop", "web", json!({"clusterIP": "10.1.0.1", "selector": selector}));
    put_service(&mut index, "shop", "all", json!({"clusterIP": "None", "selector": selector}));
    put_service(&mut index, "shop", "by-hand", json!({"clusterIP": "10.1.0.2"}));
    put_service(&mut index, "shop", "name", json!({"type": "ExternalName", "selector": selector}));
    put_service(&mut index, "shop", "other", json!({"selector": {"app": "db"}}));
    put_service(&mut index, "elsewhere", "web", json!({"selector": selector}));
    put(&mut index, "web-1", slice("web", &[("a", true, true, false)]), 1);
    // Slices that people write have no targetRef. The address identifies the pod.
    let by_hand = json!([{"addresses": ["10.0.0.9"]}]);
    let by_hand = object(json!({"kubernetes.io/service-name": "by-hand"}), by_hand).slice().unwrap();
    put(&mut index, "by-hand-1", by_hand, 2);
    let endpoints = index.pod_endpoints(&pod("a"));
    let found: Vec<_> = endpoints
        .services
        .iter()
        .map(|service| (&*service.key.name, service.selects, service.slices))
        .collect();
    assert_eq!(found, [("all", true, 0), ("by-hand", false, 1), ("web", true, 1)]);
    assert_eq!(endpoints.services[0].kind, ServiceKind::Headless);
    assert!(
        !endpoints.services[1].has_selector && endpoints.services[1].ready.is_some(),
        "an unset condition counts as ready"
    );
    assert_eq!(endpoints.changed[0].unwrap().seen, at(2), "the latest change counts");
}

#[test]
fn the_missing_address_family_of_a_service_is_known() {
    let mut index = EndpointIndex::default();
    let spec = json!({"selector": {"app": "web"}, "ipFamilies": ["IPv6", "IPv4"]});
    put_service(&mut index, "shop", "web", spec);
    put(&mut index, "web-4", slice("web", &[("a", true, true, false)]), 1);
    let missing = |index: &EndpointIndex, addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        index.pod_endpoints(&TargetPod { addresses, ..pod("a") }).services[0].missing
    };
    assert_eq!(missing(&index, &["10.0.0.9"]), [false, false], "the pod has no other address");
    put_service(&mut index, "shop", "six", json!({"selector": {"app": "web"}, "ipFamilies": ["IPv6"]}));
    put_service(&mut index, "shop", "unknown", json!({"selector": {"app": "web"}}));
    let selecting = |index: &EndpointIndex, addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let endpoints = index.pod_endpoints(&TargetPod { addresses, ..pod("a") });
        endpoints.services.iter().map(|service| service.key.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        selecting(&index, &["10.0.0.9"]),
        ["unknown", "web"],
        "Kubernetes skips a pod without an IPv6 address"
    );
    for addresses in [&["fd00::9"][..], &[]] {
        assert_eq!(selecting(&index, addresses), ["six", "unknown", "web"], "{addresses:?}");
    }
    index.remove_service(&ObjectKey::new("shop", "six"), ChangeOrigin::Watched, at(1));
    index.remove_service(&ObjectKey::new("shop", "unknown"), ChangeOrigin::Watched, at(1));
    let both = ["10.0.0.9", "fd00::9"];
    assert_eq!(missing(&index, &both), [false, true]);
    for (ready, expected) in [(false, [false, true]), (true, [false, false])] {
        let six = IndexedSlice { family: AddressFamily::V6, ..slice("web", &[("a", ready, ready, false)]) };
        put(&mut index, "web-6", six, 2);
        assert_eq!(missing(&index, &both), expected);
    }
}

#[test]
fn a_deleted_service_is_a_change_though_its_slices_remain() {
    let mut index = EndpointIndex::default();
    let key = ObjectKey::new("shop", "web");
    index.put_service(&key, service(json!({"clusterIP": "10.1.0.1"})), ChangeOrigin::Watched, at(1));
    put(&mut index, "s", slice("web", &[("a", true, true, false), ("b", false, false, false)]), 1);
    assert!(index.pod_endpoints(&pod("a")).services[0].exists);
    index.remove_service(&key, ChangeOrigin::Watched, at(5));
    let endpoints = index.pod_endpoints(&pod("a"));
    assert!(!endpoints.services[0].exists && endpoints.services[0].ready.is_some());
    assert_eq!(endpoints.changed[0].unwrap().seen, at(5));
    assert_eq!(index.pod_endpoints(&pod("b")).changed[0].unwrap().seen, at(1), "it received no traffic");
    index.put_service(&key, service(json!({"clusterIP": "10.1.0.1"})), ChangeOrigin::Watched, at(1));
    index.retain_services(&HashSet::new(), at(7));
    assert_eq!(index.pod_endpoints(&pod("a")).changed[0].unwrap(), EndpointChange::undated(at(7)));
}

#[test]
fn other_namespaces_do_not_count() {
    let mut index = EndpointIndex::default();
    let by_hand = json!([{"addresses": ["10.0.0.9"]}]);
    let by_hand = object(json!({"kubernetes.io/service-name": "by-hand"}), by_hand).slice().unwrap();
    put(&mut index, "s", by_hand, 1);
    let other = TargetPod { namespace: "elsewhere".into(), ..pod("a") };
    assert!(index.pod_endpoints(&other).services.is_empty());
}

#[test]
fn other_endpoints_are_counted_once_and_without_draining_ones() {
    let mut index = EndpointIndex::default();
    let endpoints = [
        ("a", true, true, false),
        ("b", true, true, false),
        ("c", false, false, false),
        ("d", false, true, true),
        ("e", true, true, false),
    ];
    put(&mut index, "s4", slice("web", &endpoints), 1);
    let v6 = IndexedSlice { family: AddressFamily::V6, ..slice("web", &endpoints) };
    put(&mut index, "s6", v6, 1);
    put(&mut index, "s9", slice("db", &[("x", true, true, false)]), 1);
    let is_draining = |owner: &EndpointOwner, _| *owner == owner_of("e");
    let others = index.other_endpoints(&ObjectKey::new("shop", "web"), &pod("a"), is_draining);
    assert_eq!(
        others,
        OtherEndpoints { ready: 1, starting: 1, local: None },
        "b is ready, c starts, d terminates and e is draining"
    );
}

#[test]
fn other_endpoints_on_the_node_are_counted_if_the_service_uses_only_those() {
    let mut index = EndpointIndex::default();
    let endpoint = |uid: &str, node: &str, ready: bool| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "nodeName": node, "targetRef": {"uid": uid}});
    let endpoints = [
        endpoint("a", "n1", true),
        endpoint("b", "n1", true),
        endpoint("c", "n1", false),
        endpoint("d", "n2", true),
        endpoint("e", "n2", false),
    ];
    put(
        &mut index,
        "s",
        object(json!({"kubernetes.io/service-name": "web"}), json!(endpoints)).slice().unwrap(),
        1,
    );
    let key = ObjectKey::new("shop", "web");
    let mut look = |spec: serde_json::Value| {
        index.put_service(&key, service(spec), ChangeOrigin::Watched, at(1));
        index.other_endpoints(&key, &pod("a"), |owner, _| *owner == owner_of("b"))
    };
    let local = |policy| Some(LocalEndpoints { policy, node: "n1".into(), ready: 0, starting: 1 });
    let (external, internal) = ("externalTrafficPolicy", "internalTrafficPolicy");
    for (spec, local) in [
        (json!({external: "Local"}), local(LocalPolicy::External)),
        (json!({external: "Cluster", internal: "Local"}), local(LocalPolicy::Internal)),
        (json!({external: "Cluster", internal: "Cluster"}), None),
        (json!({internal: "Local", "clusterIP": "None"}), None),
    ] {
        assert_eq!(look(spec), OtherEndpoints { ready: 1, starting: 2, local });
    }
}

#[test]
fn an_object_that_is_missing_in_a_list_is_a_change() {
    let mut index = EndpointIndex::default();
    let trigger = ChangeOrigin::Listed(Some(at(100)));
    let web = || slice("web", &[("a", true, true, false)]);
    index.put_slice(ObjectKey::new("shop", "s1"), web(), trigger, at(200));
    let change = index.pod_endpoints(&pod("a")).changed[0].unwrap();
    assert_eq!(change, EndpointChange::dated(at(200), at(90)));
    assert!(
        !index.put_slice(ObjectKey::new("shop", "s1"), web(), trigger, at(300)),
        "the same slice is not a change"
    );
    index.retain_slices(&HashSet::new(), at(400));
    let change = index.pod_endpoints(&pod("a")).changed[0].unwrap();
    assert_eq!(change, EndpointChange::undated(at(400)));
    assert_eq!(index.sizes()[0], 0);
}

#[test]
fn the_wait_of_an_unknown_pod_begins_with_the_last_list() {
    let mut index = EndpointIndex::default();
    assert_eq!(index.pod_endpoints(&pod("a")).changed, [None; 2]);
    for time in [7, 9] {
        index.set_slices_listed(at(time));
        let endpoints = index.pod_endpoints(&pod("a"));
        assert_eq!(endpoints.changed, [Some(EndpointChange::undated(at(time))), None]);
        assert_eq!(
            endpoints.may_have_left_since,
            Some(at(time)),
            "it may have left a slice since the last list"
        );
    }
}

#[test]
fn objects_are_parsed() {
    let labels = |key: &str| json!({"kubernetes.io/service-name": "web", key: ""});
    let data_path = |key: &str| object(labels(key), json!(null)).slice().unwrap().data_path;
    assert_eq!(data_path("x"), DataPath::KubeProxy);
    assert_eq!(data_path("service.kubernetes.io/headless"), DataPath::Dns);
    assert_eq!(data_path("service.kubernetes.io/service-proxy-name"), DataPath::OtherProxy);
    let mut names = object(labels("x"), json!([]));
    names = serde_json::from_value(json!({
        "metadata": {"name": names.metadata.name, "annotations": {
            "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z", "other": "x",
        }},
        "addressType": "FQDN",
        "endpoints": [{"addresses": ["example.com"]}],
    }))
    .unwrap();
    assert_eq!(names.slice(), None);
    assert!(matches!(
        names.listed_origin(),
        ChangeOrigin::Listed(Some(UnixNanos(1_767_225_600_000_000_000)))
    ));
    assert_eq!(names.metadata.annotations.unwrap().len(), 1);
    let node: NodeObject = serde_json::from_value(json!({
        "metadata": {"name": "n1"},
        "status": {
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "fd00::1"}],
            "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "Unknown",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ],
        },
    }))
    .unwrap();
    assert_eq!(
        node.node(),
        IndexedNode {
            addresses: vec!["fd00::1".parse().unwrap()],
            not_ready_since: Some(UnixNanos(1_767_225_600_000_000_000)),
            ..IndexedNode::default()
        }
    );
}

/// Endpoints of the pod with an index, ready and serving. `None` removes the slice.
fn any_endpoints() -> impl Strategy<Value = Option<Vec<(usize, bool, bool)>>> {
    prop::option::of(prop::collection::vec((0_usize..5, any::<bool>(), any::<bool>()), 0..5))
}

proptest! {
    /// After any sequence of changes the index returns the same as a search through all slices.
    #[test]
    fn the_index_agrees_with_the_slices(
        steps in prop::collection::vec(
            (0_usize..4, 0_usize..3, any_endpoints()),
            1..40,
        )
    ) {
        const PODS: [&str; 5] = ["a", "b", "c", "d", "e"];
        const SERVICES: [&str; 3] = ["x", "y", "z"];
        let mut index = EndpointIndex::default();
        for (time, (name, service, content)) in steps.into_iter().enumerate() {
            let key = ObjectKey::new("shop", &name.to_string());
            let time = i64::try_from(time).unwrap();
            match content {
                Some(endpoints) => {
                    let endpoints: Vec<_> =
                        endpoints.into_iter().map(|(pod, ready, serving)| (PODS[pod], ready, serving, false)).collect();
                    put(&mut index, &name.to_string(), slice(SERVICES[service], &endpoints), time);
                }
                None => index.remove_slice(&key, ChangeOrigin::Watched, at(time)),
            }
            for uid in PODS {
                let endpoints = index.pod_endpoints(&TargetPod { addresses: Vec::new(), ..pod(uid) });
                for service in SERVICES {
                    let of_service: Vec<&IndexedSlice> = index.slices.values()
                        .filter(|slice| slice.service.as_deref() == Some(service)
                            && slice.endpoints.iter().any(|endpoint| endpoint.owner == owner_of(uid)))
                        .collect();
                    let ready = of_service.iter().flat_map(|slice| &slice.endpoints)
                        .any(|endpoint| endpoint.owner == owner_of(uid) && endpoint.ready);
                    let found = endpoints.services.iter().find(|membership| &*membership.key.name == service);
                    prop_assert_eq!(found.map_or(0, |membership| membership.slices), of_service.len());
                    prop_assert_eq!(found.is_some_and(|membership| membership.ready.is_some()), ready);
                    let serving = of_service.iter().flat_map(|slice| &slice.endpoints)
                        .any(|endpoint| endpoint.owner == owner_of(uid) && endpoint.serving);
                    prop_assert_eq!(found.is_some_and(|membership| membership.serving.is_some()), serving);
                }
            }
        }
    }
}
