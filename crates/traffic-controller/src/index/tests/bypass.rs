//! What bypasses kube-proxy: routes and meshes.

use super::*;

/// Returns an index in which nothing bypasses kube-proxy.
pub(super) fn listed() -> EndpointIndex {
    let mut index = EndpointIndex::default();
    index.retain_routes::<Ingress>(&HashSet::new(), at(1));
    index.retain_routes::<HttpRoute>(&HashSet::new(), at(1));
    index.retain_routes::<GrpcRoute>(&HashSet::new(), at(1));
    index.retain_routes::<TargetGroupBinding>(&HashSet::new(), at(1));
    index.retain_namespaces(&HashSet::new());
    put(&mut index, "s", slice("web", &[("a", true, true, false)]), 1);
    index
}

pub(super) fn bypass(index: &EndpointIndex) -> String {
    index.pod_endpoints(&pod("a")).services[0].bypass.clone().unwrap_or_default()
}

/// Returns what bypasses kube-proxy without what did so until recently.
fn lasting_bypass(index: &mut EndpointIndex) -> String {
    index.sweep(at(1000), RETENTION);
    bypass(index)
}

fn put_route<K: RouteKind>(index: &mut EndpointIndex, namespace: &str, spec: serde_json::Value) {
    let object = json!({"metadata": {"name": "r", "namespace": namespace}, "spec": spec});
    let object: RouteObject<K> = serde_json::from_value(object).unwrap();
    index.put_route::<K>(&ObjectKey::new(namespace, "r"), object.services(), at(1));
}

#[test]
fn routes_that_name_a_service_bypass_kube_proxy() {
    let mut index = listed();
    assert_eq!(lasting_bypass(&mut index), "");
    let path = json!([{"http": {"paths": [{"backend": {"service": {"name": "web"}}}]}}]);
    put_route::<Ingress>(&mut index, "shop", json!({"rules": path}));
    assert_eq!(bypass(&index), "the proxies behind Ingress shop/r, which bypass kube-proxy");
    put_route::<Ingress>(&mut index, "shop", json!({"defaultBackend": {"service": {"name": "web"}}}));
    assert!(bypass(&index).contains("Ingress shop/r"));
    put_route::<Ingress>(&mut index, "shop", json!({"defaultBackend": {"service": {"name": "other"}}}));
    put_route::<Ingress>(&mut index, "elsewhere", json!({"rules": path}));
    assert_eq!(lasting_bypass(&mut index), "", "another Service, or one of another namespace");
    let backend = |namespace| json!({"rules": [{"backendRefs": [{"name": "web", "namespace": namespace}]}]});
    put_route::<HttpRoute>(&mut index, "elsewhere", backend("shop"));
    assert!(bypass(&index).contains("HTTPRoute elsewhere/r"));
    index.retain_routes::<HttpRoute>(&HashSet::new(), at(1));
    let mirror = json!({"rules": [{"filters": [{"requestMirror": {"backendRef": {"name": "web"}}}]}]});
    put_route::<GrpcRoute>(&mut index, "shop", mirror);
    assert!(bypass(&index).contains("GRPCRoute shop/r"));
    index.remove_route::<GrpcRoute>(&ObjectKey::new("shop", "r"), at(1));
    assert_eq!(lasting_bypass(&mut index), "");
    let mirror = json!([{"requestMirror": {"backendRef": {"name": "web"}}}]);
    let mirrored = json!({"rules": [{"backendRefs": [{"name": "other", "filters": mirror}]}]});
    put_route::<HttpRoute>(&mut index, "shop", mirrored);
    assert!(bypass(&index).contains("HTTPRoute shop/r"), "the mirror of one backend");
    index.retain_routes::<HttpRoute>(&HashSet::new(), at(1));
    let authorizes = json!([{"externalAuth": {"protocol": "GRPC", "backendRef": {"name": "web"}}}]);
    for rule in
        [json!({"filters": authorizes}), json!({"backendRefs": [{"name": "other", "filters": authorizes}]})]
    {
        assert_eq!(lasting_bypass(&mut index), "");
        put_route::<HttpRoute>(&mut index, "shop", json!({"rules": [rule]}));
        assert!(bypass(&index).contains("HTTPRoute shop/r"), "{rule}");
        index.retain_routes::<HttpRoute>(&HashSet::new(), at(1));
    }
    put_route::<GrpcRoute>(
        &mut index,
        "shop",
        json!({"rules": [{"backendRefs": [{"kind": "Bucket", "name": "web"}]}]}),
    );
    assert_eq!(lasting_bypass(&mut index), "");
    let binding = |target: &str| json!({"targetType": target, "serviceRef": {"name": "web", "port": 80}});
    put_route::<TargetGroupBinding>(&mut index, "shop", binding("instance"));
    assert_eq!(lasting_bypass(&mut index), "", "NodePorts are kube-proxy's");
    put_route::<TargetGroupBinding>(&mut index, "shop", binding("ip"));
    assert!(bypass(&index).contains("TargetGroupBinding shop/r"));
    index.remove_route::<TargetGroupBinding>(&ObjectKey::new("shop", "r"), at(1));
    assert_eq!(lasting_bypass(&mut index), "");
    for bad in
        [json!(null), json!(5), json!({"rules": {}}), json!({"rules": [7, {"http": []}], "serviceRef": "x"})]
    {
        put_route::<Ingress>(&mut index, "shop", bad.clone());
        put_route::<HttpRoute>(&mut index, "shop", bad.clone());
        put_route::<TargetGroupBinding>(&mut index, "shop", bad);
    }
    assert_eq!(lasting_bypass(&mut index), "");
}

fn ignores_gate(index: &EndpointIndex) -> String {
    index.pod_endpoints(&pod("a")).ignores_gate.unwrap_or_default()
}

#[test]
fn it_is_not_known_who_ignores_the_gate_before_the_objects_are_listed() {
    let mut index = listed();
    let may_ignore = |index: &EndpointIndex, uid| index.pod_endpoints(&pod(uid)).may_ignore_gate;
    index.forget_routes::<Ingress>();
    assert!(!may_ignore(&index, "a"), "Ingresses do not ignore it");
    index.forget_routes::<TargetGroupBinding>();
    assert!(may_ignore(&index, "a") && !may_ignore(&index, "of no Service"));
    index.retain_routes::<TargetGroupBinding>(&HashSet::new(), at(1));
    assert!(!may_ignore(&index, "a"));
    index.forget_namespaces();
    assert!(may_ignore(&index, "a"));
}

/// Target groups with IP targets, or without a known type, keep pods that are not Ready.
#[test]
fn target_groups_of_pods_ignore_the_gate() {
    let mut index = listed();
    let path = json!([{"http": {"paths": [{"backend": {"service": {"name": "web"}}}]}}]);
    put_route::<Ingress>(&mut index, "shop", json!({"rules": path}));
    let service = json!({"name": "web", "port": 80});
    for (spec, expected) in [
        (json!({"targetType": "instance", "serviceRef": service}), ""),
        (
            json!({"targetType": "ip", "serviceRef": service}),
            "the load balancer of TargetGroupBinding shop/r",
        ),
        (json!({"targetType": "ip", "serviceRef": {"name": "other"}}), ""),
        (json!({"serviceRef": service}), "the load balancer of TargetGroupBinding shop/r"),
    ] {
        put_route::<TargetGroupBinding>(&mut index, "shop", spec);
        assert_eq!(ignores_gate(&index), expected, "also beside an Ingress");
    }
    // A headless Service has clients that use DNS, and may have a target group as well.
    put_service(&mut index, "shop", "web", json!({"clusterIP": "None"}));
    assert!(ignores_gate(&index).contains("TargetGroupBinding shop/r"));
    index.remove_route::<TargetGroupBinding>(&ObjectKey::new("shop", "r"), at(1));
    assert_eq!(ignores_gate(&index), "", "the targets are deregistered");
}

#[test]
fn network_endpoint_groups_of_pods_ignore_the_gate() {
    let put = |index: &mut EndpointIndex, annotations: serde_json::Value| {
        let metadata = json!({"name": "web", "namespace": "shop", "annotations": annotations});
        let web = serde_json::from_value::<ServiceObject>(json!({"metadata": metadata})).unwrap().service();
        index.put_service(&ObjectKey::new("shop", "web"), web, ChangeOrigin::Watched, at(1));
    };
    for (groups, is_sender) in [
        (r#"{"network_endpoint_groups":{"80":"k8s1-a"},"zones":["z"]}"#, true),
        (r#"{"network_endpoint_groups":{"0":"k8s2-a"},"zones":["z"]}"#, false),
        (r#"{"network_endpoint_groups":{"0":"k8s2-a","80":"k8s1-a"}}"#, true),
        (r#"{"network_endpoint_groups":{}}"#, false),
        ("not JSON", true),
    ] {
        let mut index = listed();
        put(&mut index, json!({"cloud.google.com/neg-status": groups}));
        let sender = "the load balancer of Service shop/web (cloud.google.com/neg-status)";
        let bypassed = format!("{sender}, whose proxies bypass kube-proxy");
        let expected = if is_sender { (sender, &*bypassed) } else { ("", "") };
        assert_eq!((&*ignores_gate(&index), &*bypass(&index)), expected, "{groups}");
    }
    // The annotation alone only allows groups. GKE sets it on most Services.
    let mut index = listed();
    put(&mut index, json!({"cloud.google.com/neg": r#"{"ingress":true}"#}));
    assert_eq!((ignores_gate(&index), bypass(&index)), Default::default());
}

#[test]
fn meshes_that_look_at_containers_ignore_the_gate() {
    for (namespace, key, expected) in [
        ("shop", "kuma.io/sidecar-injection", "the mesh of namespace shop (kuma.io/sidecar-injection)"),
        ("clients", "kuma.io/sidecar-injection", ""),
        ("shop", "istio-injection", ""),
    ] {
        let mut index = listed();
        let metadata = json!({"name": namespace, "labels": {key: "enabled"}});
        let mesh = serde_json::from_value::<NamespaceObject>(json!({"metadata": metadata})).unwrap().mesh();
        index.put_namespace(&namespace.into(), mesh);
        assert_eq!(ignores_gate(&index), expected, "{namespace} {key}");
    }
}

#[test]
fn meshes_bypass_kube_proxy_from_any_namespace() {
    let mut index = listed();
    let namespace = |labels: serde_json::Value, annotations: serde_json::Value| {
        let metadata = json!({"name": "mesh", "labels": labels, "annotations": annotations});
        serde_json::from_value::<NamespaceObject>(json!({"metadata": metadata})).unwrap().mesh()
    };
    let istio = namespace(json!({"istio-injection": "enabled", "x": "y"}), json!(null));
    assert_eq!(istio, Some("istio-injection"));
    assert_eq!(namespace(json!({}), json!({"linkerd.io/inject": "enabled"})), Some("linkerd.io/inject"));
    assert_eq!(
        namespace(json!({"istio-injection": "disabled", "istio.io/dataplane-mode": "none"}), json!({})),
        None
    );
    assert!(index.put_namespace(&"clients".into(), istio));
    assert_eq!(
        bypass(&index),
        "the mesh of namespace clients (istio-injection), whose proxies bypass kube-proxy"
    );
    index.put_namespace(&"shop".into(), istio);
    assert!(bypass(&index).contains("namespace shop"), "its own first");
    // The pods have their proxies until they end, whatever the label says.
    assert!(!index.put_namespace(&"shop".into(), None) && !index.put_namespace(&"clients".into(), None));
    assert!(bypass(&index).contains("namespace shop"));
    // A namespace that is deleted has no pods.
    assert!(index.remove_namespace("shop") && !index.remove_namespace("shop"));
    assert!(bypass(&index).contains("namespace clients"));
    index.retain_namespaces(&HashSet::new());
    assert_eq!(bypass(&index), "");
    let metadata = json!({"name": "web", "namespace": "shop", "labels": {"istio.io/use-waypoint": "w"}});
    let waypoint = serde_json::from_value::<ServiceObject>(json!({"metadata": metadata})).unwrap().service();
    index.put_service(&ObjectKey::new("shop", "web"), waypoint, ChangeOrigin::Watched, at(1));
    assert!(bypass(&index).contains("the mesh of Service shop/web (istio.io/use-waypoint)"));
    put_service(&mut index, "shop", "web", json!({}));
    assert!(bypass(&index).contains("the mesh of Service shop/web"), "its clients may not have observed it");
}

#[test]
fn unknown_routes_and_routes_of_a_service_that_a_pod_has_left_count() {
    assert!(
        bypass(&{
            let mut index = EndpointIndex::default();
            put(&mut index, "s", slice("web", &[("a", true, true, false)]), 1);
            index
        })
        .contains("objects of kind Ingress are not known")
    );
    let mut index = listed();
    put_route::<Ingress>(&mut index, "shop", json!({"defaultBackend": {"service": {"name": "web"}}}));
    assert_eq!(index.pod_endpoints(&pod("a")).left_bypass, None);
    put(&mut index, "s", slice("web", &[]), 2);
    assert!(index.pod_endpoints(&pod("a")).left_bypass.unwrap().contains("Ingress shop/r"));
}

/// The clients of the Service that the pod has left have the proxies of the mesh. Its name is not known any more.
#[test]
fn the_mesh_of_a_service_counts_for_pods_that_have_left_one() {
    let mut index = listed();
    let key = ObjectKey::new("shop", "web");
    let metadata = json!({"name": "web", "namespace": "shop", "labels": {"istio.io/use-waypoint": "w"}});
    let waypoint = serde_json::from_value::<ServiceObject>(json!({"metadata": metadata})).unwrap().service();
    index.put_service(&key, waypoint, ChangeOrigin::Watched, at(1));
    let left = |index: &EndpointIndex, namespace: &str| {
        let pod = TargetPod { namespace: namespace.into(), ..pod("a") };
        index.pod_endpoints(&pod).left_bypass.unwrap_or_default()
    };
    put(&mut index, "s", slice("web", &[]), 2);
    let expected = "the mesh of Service shop/web (istio.io/use-waypoint), whose proxies bypass kube-proxy";
    assert_eq!(left(&index, "shop"), expected);
    assert_eq!(left(&index, "other"), "");
    index.remove_service(&key, ChangeOrigin::Watched, at(3));
    assert_eq!(left(&index, "shop"), expected, "the proxies may not have observed it");
    index.sweep(at(602), RETENTION);
    assert_eq!(left(&index, "shop"), "", "the pod has left it long ago");
}
