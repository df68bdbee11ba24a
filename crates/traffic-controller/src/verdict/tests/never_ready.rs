//! Pods that were never Ready.

use super::*;

#[test]
fn a_pod_that_was_never_ready_waits_only_for_its_kubelet() {
    let behind = NodeProxies::Read(vec![node("n1", RulesState::Pending("busy".into()))]);
    let asked = |pod: &PodEndpoints, after: i64| {
        let mut progress = PrepareProgress::default();
        prepare(pod, &behind, &InFlightCount::NotReported, &mut progress, &WAIT_TIMES, at(1000));
        prepare(pod, &behind, &InFlightCount::NotReported, &mut progress, &WAIT_TIMES, at(1000 + after))
    };
    for slices in [0, 1] {
        let service = ServiceMembership { slices, ..out("web") };
        let sent = endpoints([service.clone()]);
        waits(asked(&sent, 1000));
        let never = |pod: PodEndpoints| PodEndpoints { never_sent: true, ..pod };
        let (level, words) = done(asked(&never(sent.clone()), 1000));
        assert!(level == Bounded && words.contains("the pod was never Ready"), "{words}");
        let (words, _) = waits(asked(&never(sent), 900));
        assert!(words.contains("until its kubelet has observed the readiness gate"), "{words}");
        let published = ServiceMembership { publishes_not_ready: true, ..service };
        waits(asked(&never(endpoints([out("other"), published])), 1000));
        let balanced =
            PodEndpoints { ignores_gate: Some("a target group".into()), ..endpoints([out("web")]) };
        waits(asked(&never(balanced), 1000));
        let bypass = Some("proxies that may bypass kube-proxy".into());
        let unlisted = ServiceMembership { bypass, ..out("web") };
        let unlisted = never(PodEndpoints { may_ignore_gate: true, ..endpoints([unlisted]) });
        waits(asked(&unlisted, 1000));
        assert_eq!(done(prepared(&unlisted, &all_written(), 60_000)).0, Bounded);
    }
    waits(asked(&PodEndpoints { never_sent: true, ..endpoints([ready("web")]) }, 1000));
    // It may have left a headless Service before this process started. Clients know its address for 30 s.
    let restarted =
        PodEndpoints { never_sent: true, may_have_left_since: Some(at(1000)), ..endpoints([out("web")]) };
    waits(asked(&restarted, 31_999));
    assert!(done(asked(&restarted, 32_000)).1.contains("the pod was never Ready"));
}
