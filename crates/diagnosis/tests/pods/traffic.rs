//! Readiness gates, and endpoints of Services.

use podward_diagnosis::pod::diagnose;
use podward_diagnosis::traffic::{self, ServiceEndpoint};
use podward_diagnosis::{Case, Snapshot};
use serde_json::json;

use super::{first, now, ready, ready_node, snapshot};

#[test]
fn gates_of_load_balancers_have_owners() {
    let gate = "target-health.elbv2.k8s.aws/k8s-shop-web";
    let pod = json!({
        "metadata": {},
        "spec": {"nodeName": "n1", "containers": [], "readinessGates": [{"conditionType": gate}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T09:50:00Z"},
            {"type": "Ready", "status": "False"},
        ]},
    });
    let (case, line, evidence) = first(json!({"pod": pod, "node": ready_node()}));
    assert_eq!(case, Case::ReadinessGateMissing);
    assert!(
        line.contains("was never written, which the AWS Load Balancer Controller does (10 min)"),
        "{line}"
    );
    assert!(
        line.ends_with("next: kubectl -n kube-system logs deployment/aws-load-balancer-controller"),
        "{line}"
    );
    assert_eq!(evidence, ["nobody has written the condition"]);
}

#[test]
fn gates_of_clone_sets_are_written_by_one_of_two_controllers() {
    let told = |gate: &str, manager: Option<&str>| {
        let mut pod = json!({
            "metadata": {},
            "spec": {"nodeName": "n1", "containers": [], "readinessGates": [{"conditionType": gate}]},
            "status": {"phase": "Running", "conditions": [{"type": "ContainersReady", "status": "True"}]},
        });
        if let Some(manager) = manager {
            let mut fields = json!({"f:status": {"f:conditions": {}}});
            fields["f:status"]["f:conditions"][format!("k:{{\"type\":\"{gate}\"}}")] =
                json!({"f:status": {}});
            pod["metadata"] = json!({"managedFields": [{"manager": manager, "fieldsV1": fields}]});
            let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(json!({"type": gate, "status": "False"}));
        }
        first(json!({"pod": pod, "node": ready_node()})).1
    };
    let kruise = "kubectl -n kruise-system logs deployment/kruise-controller-manager";
    let podward = "kubectl -n podward-system logs -l app.kubernetes.io/name=cloneset-controller --tail=-1";
    for gate in ["InPlaceUpdateReady", "KruisePodReady"] {
        for (manager, owner, next) in [
            ("podward-cloneset-controller", "Podward's cloneset-controller", podward),
            ("kruise-manager", "OpenKruise", kruise),
            ("other", "other", "kubectl -n shop get pod web -o yaml --show-managed-fields"),
        ] {
            let line = format!("its readiness gate {gate} is False, which {owner} sets; next: {next}");
            assert_eq!(told(gate, Some(manager)), line);
        }
        let line = told(gate, None);
        let words = "was never written, which OpenKruise or Podward's cloneset-controller does";
        assert!(line.contains(words) && !line.contains("kruise-system"), "{line}");
    }
    // A gate with the domain of its owner has no other owner.
    let line = told("target-health.elbv2.k8s.aws/web", Some("controller"));
    assert!(line.contains("is False, which the AWS Load Balancer Controller sets"), "{line}");
}

#[test]
fn a_ready_pod_that_a_slice_does_not_list_as_ready_is_a_cause() {
    let slice = |ready: bool| {
        json!([{
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "targetRef": {"uid": "u1"}}],
        }])
    };
    let service = json!([{"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}}]);
    let (case, line, _) = first(json!({
        "pod": ready(&json!({})), "slices": slice(false), "services": service, "node": ready_node(),
    }));
    assert_eq!(case, Case::Traffic);
    assert!(
        line.starts_with("is Ready, and EndpointSlice web-1 of Service web lists it as not ready"),
        "{line}"
    );
    let (case, line, _) = first(json!({
        "pod": ready(&json!({"app": "web"})), "services": service, "node": ready_node(),
    }));
    assert_eq!(case, Case::Traffic);
    assert!(line.starts_with("is Ready, and no EndpointSlice of Service web lists it; next: "), "{line}");
    let in_order = json!({
        "pod": ready(&json!({})), "slices": slice(true), "services": service, "node": ready_node(),
    });
    let in_order = snapshot(in_order);
    assert_eq!(diagnose(&in_order, None), []);
    let [ServiceEndpoint { service, ready: true, serving: true, terminating: false, .. }] =
        &traffic::endpoints(&in_order)[..]
    else {
        panic!("{:?}", traffic::endpoints(&in_order))
    };
    assert_eq!(service, "web");
}

#[test]
fn a_pod_that_is_not_ready_and_listed_as_ready_is_told_unless_its_service_wants_it() {
    let gate = json!([{"conditionType": "example.com/balancer"}]);
    let pod = json!({
        "metadata": {}, "spec": {"nodeName": "n1", "containers": [], "readinessGates": gate},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
            {"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"},
        ]},
    });
    let labels = json!({
        "kubernetes.io/service-name": "mesh", "endpointslice.kubernetes.io/managed-by": "mesh.example.com",
    });
    // The endpoint has no reference to the pod.
    let slices = json!([{
        "metadata": {"name": "by-hand", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    }]);
    let told = |publishes: bool| {
        let spec = json!({"publishNotReadyAddresses": publishes});
        let services = json!([{"metadata": {"name": "mesh"}, "spec": spec}]);
        let snapshot =
            snapshot(json!({"pod": pod, "slices": slices, "services": services, "node": ready_node()}));
        diagnose(&snapshot, None)
    };
    let causes = told(false);
    let cases: Vec<Case> = causes.iter().map(|cause| cause.case).collect();
    assert_eq!(cases, [Case::ReadinessGateMissing, Case::Traffic]);
    let words = "is not Ready, and EndpointSlice by-hand of Service mesh, which mesh.example.com manages, lists it as ready, \
                 so that it gets traffic; next: kubectl -n shop get endpointslice by-hand -o yaml";
    assert_eq!(causes[1].line(now()), words);
    assert_eq!(told(true).len(), 1);
}

/// Slices that people write remain when the Service is deleted, and all slices when it becomes an alias. No proxy reads them.
#[test]
fn slices_that_a_service_has_left_behind_send_no_traffic() {
    let slices = json!([{
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"uid": "u1"}}],
    }]);
    let pod = json!({
        "metadata": {}, "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
    });
    let told = |services: serde_json::Value, unread: &[&str]| {
        let snapshot =
            snapshot(json!({"pod": pod, "slices": slices, "services": services, "node": ready_node()}));
        let unread = unread.iter().map(|text| (*text).to_owned()).collect();
        diagnose(&Snapshot { unread, ..snapshot }, None)
    };
    assert_eq!(told(json!([]), &[]), []);
    let service = |spec: serde_json::Value| json!([{"metadata": {"name": "web"}, "spec": spec}]);
    assert_eq!(told(service(json!({"type": "ExternalName", "externalName": "example.com"})), &[]), []);
    for causes in [told(service(json!({})), &[]), told(json!([]), &["Services could not be read: forbidden"])]
    {
        assert_eq!(causes.iter().map(|cause| cause.case).collect::<Vec<_>>(), [Case::Traffic]);
    }
}

#[test]
fn a_service_of_another_address_family_does_not_list_the_pod() {
    let told = |families: serde_json::Value| {
        let mut pod = ready(&json!({"app": "web"}));
        pod["status"]["podIPs"] = json!([{"ip": "10.0.0.1"}]);
        let spec = json!({"selector": {"app": "web"}, "ipFamilies": families});
        let services = json!([{"metadata": {"name": "web"}, "spec": spec}]);
        diagnose(&snapshot(json!({"pod": pod, "services": services, "node": ready_node()})), None).len()
    };
    assert_eq!(told(json!(["IPv6"])), 0);
    assert_eq!([told(json!(["IPv6", "IPv4"])), told(json!([]))], [1, 1]);
}

/// `why` prints them as sources of traffic, and compares them.
#[test]
fn endpoints_of_a_service_that_is_gone_are_none() {
    let found = |services: serde_json::Value| {
        let slices = json!([{
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"uid": "u1"}}],
        }]);
        let pod = ready(&json!({}));
        traffic::endpoints(&snapshot(json!({"pod": pod, "slices": slices, "services": services}))).len()
    };
    assert_eq!(found(json!([{"metadata": {"name": "web"}, "spec": {}}])), 1);
    assert_eq!(found(json!([])), 0, "deleted");
    let alias = json!({"type": "ExternalName", "externalName": "example.com"});
    assert_eq!(found(json!([{"metadata": {"name": "web"}, "spec": alias}])), 0);
}

/// As in the traffic-controller.
#[test]
fn an_endpoint_whose_reference_has_no_uid_belongs_to_the_pod_with_its_address() {
    let found = |reference: serde_json::Value| {
        let slices = json!([{
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": reference}],
        }]);
        let mut pod = ready(&json!({}));
        pod["status"]["podIP"] = json!("10.0.0.1");
        let services = json!([{"metadata": {"name": "web"}, "spec": {}}]);
        traffic::endpoints(&snapshot(json!({"pod": pod, "slices": slices, "services": services}))).len()
    };
    for own in [json!(null), json!({"kind": "Pod", "name": "web"}), json!({"uid": ""}), json!({"uid": "u1"})]
    {
        assert_eq!(found(own.clone()), 1, "{own}");
    }
    assert_eq!(found(json!({"uid": "other"})), 0);
}
