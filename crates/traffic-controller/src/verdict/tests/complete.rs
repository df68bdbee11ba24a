//! COMPLETE: the pod is added to traffic.

use super::*;

#[test]
fn complete_waits_for_both_address_families() {
    let web = ServiceMembership { missing: [false, true], ..ready("web") };
    let (reason, _) = waits(complete(&endpoints([web]), &all_written(), &WAIT_TIMES, at(2000)));
    assert_eq!(reason, "no EndpointSlice of Service shop/web shows the pod as ready by IPv6 yet");
}

#[test]
fn complete_waits_for_all_services_that_select_the_pod() {
    let look = |services: Vec<ServiceMembership>, nodes: &NodeProxies, now| {
        complete(&endpoints(services), nodes, &WAIT_TIMES, at(now))
    };
    assert_eq!(
        done(look(vec![], &NodeProxies::NotConfigured, 0)),
        (Proven, "no Service selects the pod".to_owned())
    );
    let (reason, _) =
        waits(look(vec![ready("a"), ServiceMembership { slices: 0, ..out("b") }], &all_written(), 0));
    assert_eq!(reason, "no EndpointSlice of Service shop/b lists the pod yet");
    assert!(waits(look(vec![out("b")], &all_written(), 0)).0.contains("shows the pod as ready yet"));
    let by_hand = ServiceMembership { selects: false, has_selector: false, ..out("by-hand") };
    assert_eq!(
        done(look(vec![by_hand], &NodeProxies::NotConfigured, 0)).0,
        Proven,
        "it may never list the pod"
    );
    let (proven, words) = done(look(vec![ready("a")], &all_written(), 1000));
    assert!(
        proven == Proven
            && words == "ready in the slices of shop/a; kube-proxy of 2 nodes has applied the change",
        "{words}"
    );
    assert_eq!(waits(look(vec![ready("a")], &NodeProxies::NotConfigured, 2000)).1, Some(at(6000)));
    let headless = ServiceMembership { kind: ServiceKind::Headless, ..ready("a") };
    assert_eq!(
        done(look(vec![headless], &NodeProxies::NotConfigured, 1000)).0,
        Proven,
        "the next DNS query finds it"
    );
}
