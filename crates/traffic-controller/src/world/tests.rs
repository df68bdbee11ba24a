use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(seconds: i64) -> UnixNanos {
    UnixNanos(seconds * 1_000_000_000)
}

/// A slice of Service `service` with these endpoints: uid, ready, serving, terminating.
fn slice(service: &str, endpoints: &[(&str, bool, bool, bool)]) -> Slice {
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

fn service(spec: serde_json::Value) -> Service {
    let object = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
    serde_json::from_value::<ServiceObject>(object).unwrap().service()
}

fn pod(uid: &str) -> PodId {
    PodId {
        namespace: "shop".into(),
        name: uid.to_owned(),
        uid: uid.into(),
        addresses: vec!["10.0.0.9".parse().unwrap()],
        labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
    }
}

fn put(world: &mut World, name: &str, slice: Slice, time: i64) {
    world.put_slice(Key::new("shop", name), slice, Origin::Watched, at(time));
}

#[test]
fn a_change_is_that_of_the_pod_not_of_its_neighbours() {
    let mut world = World::default();
    put(&mut world, "s1", slice("web", &[("a", true, true, false), ("b", true, true, false)]), 1);
    put(&mut world, "s1", slice("web", &[("a", true, true, false), ("b", false, false, false)]), 5);
    assert_eq!(world.facts(&pod("a")).changed[0].unwrap().seen, at(1));
    assert_eq!(world.facts(&pod("b")).changed[0].unwrap(), Change { seen: at(5), not_before: Some(at(4)) });
    put(&mut world, "s1", slice("web", &[("a", true, true, false)]), 9);
    let gone = world.facts(&pod("b"));
    assert_eq!(gone.changed[0].unwrap().seen, at(5), "it was out already");
    assert!(gone.services.is_empty());
    assert_eq!(gone.left[Carrier::KubeProxy.index()].unwrap().seen, at(5), "the proxies may not know yet");
    assert_eq!(world.facts(&pod("a")).left, [None; 3]);
    put(&mut world, "s1", slice("web", &[]), 12);
    assert_eq!(world.facts(&pod("a")).changed[0].unwrap().seen, at(12));
    world.sweep(at(611));
    assert_eq!(world.facts(&pod("a")).changed[0].unwrap().seen, at(12));
    world.sweep(at(613));
    assert_eq!(world.facts(&pod("a")).changed, [None; 2]);
}

#[test]
fn all_services_of_a_pod_are_found() {
    let mut world = World::default();
    let selector = json!({"app": "web"});
    world.put_service(
        &Key::new("shop", "web"),
        service(json!({"clusterIP": "10.1.0.1", "selector": selector})),
    );
    world.put_service(&Key::new("shop", "all"), service(json!({"clusterIP": "None", "selector": selector})));
    world.put_service(&Key::new("shop", "by-hand"), service(json!({"clusterIP": "10.1.0.2"})));
    world.put_service(
        &Key::new("shop", "name"),
        service(json!({"type": "ExternalName", "selector": selector})),
    );
    world.put_service(&Key::new("shop", "other"), service(json!({"selector": {"app": "db"}})));
    world.put_service(&Key::new("elsewhere", "web"), service(json!({"selector": selector})));
    put(&mut world, "web-1", slice("web", &[("a", true, true, false)]), 1);
    // People write slices without targetRef: the address tells.
    let by_hand = json!([{"addresses": ["10.0.0.9"]}]);
    let by_hand = object(json!({"kubernetes.io/service-name": "by-hand"}), by_hand).slice().unwrap();
    put(&mut world, "by-hand-1", by_hand, 2);
    let facts = world.facts(&pod("a"));
    let found: Vec<_> =
        facts.services.iter().map(|facts| (&*facts.key.name, facts.selects, facts.slices)).collect();
    assert_eq!(found, [("all", true, 0), ("by-hand", false, 1), ("web", true, 1)]);
    assert_eq!(facts.services[0].kind, ServiceKind::Headless);
    assert!(!facts.services[1].has_selector && facts.services[1].ready.is_some(), "unset is ready");
    assert_eq!(facts.changed[0].unwrap().seen, at(2), "the latest");
}

#[test]
fn the_end_of_a_service_is_a_change_though_its_slices_stay() {
    let mut world = World::default();
    let key = Key::new("shop", "web");
    world.put_service(&key, service(json!({"clusterIP": "10.1.0.1"})));
    put(&mut world, "s", slice("web", &[("a", true, true, false), ("b", false, false, false)]), 1);
    assert!(world.facts(&pod("a")).services[0].exists);
    world.remove_service(&key, Origin::Watched, at(5));
    let facts = world.facts(&pod("a"));
    assert!(!facts.services[0].exists && facts.services[0].ready.is_some());
    assert_eq!(facts.changed[0].unwrap().seen, at(5));
    assert_eq!(world.facts(&pod("b")).changed[0].unwrap().seen, at(1), "it had no traffic of it");
    world.put_service(&key, service(json!({"clusterIP": "10.1.0.1"})));
    world.keep_services(&HashSet::new(), at(7));
    assert_eq!(world.facts(&pod("a")).changed[0].unwrap(), Change { seen: at(7), not_before: None });
}

#[test]
fn nothing_of_other_namespaces_counts() {
    let mut world = World::default();
    let by_hand = json!([{"addresses": ["10.0.0.9"]}]);
    let by_hand = object(json!({"kubernetes.io/service-name": "by-hand"}), by_hand).slice().unwrap();
    put(&mut world, "s", by_hand, 1);
    let stranger = PodId { namespace: "elsewhere".into(), ..pod("a") };
    assert!(world.facts(&stranger).services.is_empty());
}

#[test]
fn others_are_counted_once_and_without_those_that_leave() {
    let mut world = World::default();
    let endpoints = [
        ("a", true, true, false),
        ("b", true, true, false),
        ("c", false, false, false),
        ("d", false, true, true),
        ("e", true, true, false),
    ];
    put(&mut world, "s4", slice("web", &endpoints), 1);
    let v6 = Slice { family: Family::V6, ..slice("web", &endpoints) };
    put(&mut world, "s6", v6, 1);
    put(&mut world, "s9", slice("db", &[("x", true, true, false)]), 1);
    let leaves = |owner: &Owner| *owner == Owner::Pod("e".into());
    let others = world.others(&Key::new("shop", "web"), &pod("a"), leaves);
    assert_eq!(others, Others { ready: 1, coming: 1 }, "b is ready, c is coming, d ends and e leaves");
}

#[test]
fn a_list_is_not_a_change_but_what_is_missing_in_it_is() {
    let mut world = World::default();
    let trigger = Origin::Listed(Some(at(100)));
    let web = || slice("web", &[("a", true, true, false)]);
    world.put_slice(Key::new("shop", "s1"), web(), trigger, at(200));
    let change = world.facts(&pod("a")).changed[0].unwrap();
    assert_eq!(change, Change { seen: at(200), not_before: Some(at(90)) });
    assert!(!world.put_slice(Key::new("shop", "s1"), web(), trigger, at(300)), "the same again is no news");
    world.keep_slices(&HashSet::new(), at(400));
    let change = world.facts(&pod("a")).changed[0].unwrap();
    assert_eq!(change, Change { seen: at(400), not_before: None });
    assert_eq!(world.sizes()[0], 0);
}

#[test]
fn a_pod_that_was_never_seen_counts_from_the_first_list() {
    let mut world = World::default();
    assert_eq!(world.facts(&pod("a")).changed, [None; 2]);
    world.slices_are_known(at(7));
    world.slices_are_known(at(9));
    let changed = world.facts(&pod("a")).changed;
    assert_eq!(changed, [Some(Change { seen: at(7), not_before: None }), None]);
}

#[test]
fn objects_are_read_as_the_api_server_writes_them() {
    let labels = |key: &str| json!({"kubernetes.io/service-name": "web", key: ""});
    let carrier = |key: &str| object(labels(key), json!(null)).slice().unwrap().carrier;
    assert_eq!(carrier("x"), Carrier::KubeProxy);
    assert_eq!(carrier("service.kubernetes.io/headless"), Carrier::Dns);
    assert_eq!(carrier("service.kubernetes.io/service-proxy-name"), Carrier::Other);
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
    assert!(matches!(names.listed(), Origin::Listed(Some(UnixNanos(1_767_225_600_000_000_000)))));
    assert_eq!(names.metadata.annotations.unwrap().len(), 1);
    let node: NodeObject = serde_json::from_value(json!({
        "metadata": {"name": "n1"},
        "status": {
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "fd00::1"}],
            "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "Unknown"}],
        },
    }))
    .unwrap();
    assert_eq!(node.node(), Node { address: Some("fd00::1".parse::<IpAddr>().unwrap()), ready: false });
}

proptest! {
    /// However slices come and go, the index says what looking through all of them would.
    #[test]
    fn the_index_is_what_the_slices_say(
        steps in prop::collection::vec(
            (0_usize..4, 0_usize..3, prop::option::of(prop::collection::vec((0_usize..5, any::<bool>(), any::<bool>()), 0..5))),
            1..40,
        )
    ) {
        const PODS: [&str; 5] = ["a", "b", "c", "d", "e"];
        const SERVICES: [&str; 3] = ["x", "y", "z"];
        let mut world = World::default();
        for (time, (name, service, content)) in steps.into_iter().enumerate() {
            let key = Key::new("shop", &name.to_string());
            let time = i64::try_from(time).unwrap();
            match content {
                Some(endpoints) => {
                    let endpoints: Vec<_> =
                        endpoints.into_iter().map(|(pod, ready, serving)| (PODS[pod], ready, serving, false)).collect();
                    put(&mut world, &name.to_string(), slice(SERVICES[service], &endpoints), time);
                }
                None => world.remove_slice(&key, Origin::Watched, at(time)),
            }
            for uid in PODS {
                let facts = world.facts(&PodId { addresses: Vec::new(), ..pod(uid) });
                for service in SERVICES {
                    let of_service: Vec<&Slice> = world.slices.values()
                        .filter(|slice| slice.service.as_deref() == Some(service)
                            && slice.endpoints.iter().any(|endpoint| endpoint.owner == Owner::Pod(uid.into())))
                        .collect();
                    let ready = of_service.iter().flat_map(|slice| &slice.endpoints)
                        .any(|endpoint| endpoint.owner == Owner::Pod(uid.into()) && endpoint.ready);
                    let found = facts.services.iter().find(|facts| &*facts.key.name == service);
                    prop_assert_eq!(found.map_or(0, |facts| facts.slices), of_service.len());
                    prop_assert_eq!(found.is_some_and(|facts| facts.ready.is_some()), ready);
                }
            }
        }
    }
}
