//! PRE_CHECK: the last endpoint of a Service.

use super::*;

#[test]
fn the_last_endpoint_waits_for_a_replacement() {
    let service = |ready, starting| RemainingEndpoints {
        service: ObjectKey::new("shop", "web"),
        others: OtherEndpoints { ready, starting, local: None },
    };
    let look = |services: &[RemainingEndpoints], now| {
        pre_check(&endpoints([]), services, &WAIT_TIMES, at(0), at(now))
    };
    assert_eq!(done(look(&[], 0)).0, Proven);
    let (proven, words) = done(look(&[service(2, 0), service(1, 4)], 0));
    assert_eq!((proven, words.as_str()), (Proven, "Service shop/web keeps 1 other ready endpoint"));
    assert!(done(look(&[service(0, 0)], 0)).1.contains("no other endpoint is starting"));
    let (reason, until) = waits(look(&[service(3, 0), service(0, 1)], 59_999));
    assert!(reason.contains("1 other endpoint not ready yet") && until == Some(at(60_000)), "{reason}");
    assert_eq!(done(look(&[service(0, 1)], 60_000)).0, Assumed);
}

#[test]
fn the_last_endpoint_on_a_node_counts_where_nodes_use_only_their_own() {
    let look = |policy, (ready, starting), now| {
        let local = LocalEndpoints { policy, node: "n1".into(), ready, starting };
        let others = OtherEndpoints { ready: 3, starting: 1, local: Some(local) };
        let remaining = RemainingEndpoints { service: ObjectKey::new("shop", "web"), others };
        pre_check(&endpoints([]), &[remaining], &WAIT_TIMES, at(0), at(now))
    };
    for (policy, what) in [
        (LocalPolicy::External, "health checks have seen this"),
        (LocalPolicy::Internal, "clients on the node then have no endpoint"),
    ] {
        assert_eq!(
            done(look(policy, (1, 0), 0)),
            (Proven, "Service shop/web keeps 3 other ready endpoints".into())
        );
        let (reason, until) = waits(look(policy, (0, 1), 0));
        assert!(reason.contains("on node n1, 1 other") && until == Some(at(60_000)), "{reason}");
        for late in [look(policy, (0, 1), 60_000), look(policy, (0, 0), 0)] {
            let (assumed, detail) = done(late);
            assert!(
                assumed == Assumed && detail.contains(what) && detail.contains(policy.as_str()),
                "{detail}"
            );
        }
    }
}
