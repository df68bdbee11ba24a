//! Pods that were not ready when their question was asked.

use super::*;

fn no_connections(asked: i64) -> InFlightCount {
    let connections = OpenConnections { open: 0, silent_for: Duration::ZERO, rested: 0 };
    InFlightCount::Connections(connections, at(asked))
}

/// A probe has failed, and then the gate becomes False. A probe that succeeds now makes the pod Ready until the
/// kubelet has observed the gate.
#[test]
fn a_pod_that_was_not_ready_before_waits_for_its_kubelet() {
    let web = endpoints([out("web")]);
    let mut progress = PrepareProgress::default();
    let mut look = |pod: &PodEndpoints, now| {
        prepare(pod, &all_written(), &no_connections(now), &mut progress, &WAIT_TIMES, at(now))
    };
    for now in [10_000, 10_999] {
        let (reason, until) = waits(look(&web, now));
        assert!(reason.ends_with("waiting until its kubelet has observed the readiness gate"), "{reason}");
        assert_eq!(until, Some(at(11_000)));
    }
    assert!(waits(look(&web, 11_000)).0.contains("reading the connections to the pod again"));
    assert_eq!(done(look(&web, 11_200)).0, Proven, "requests may have arrived until then");

    // The probe succeeds while the time runs.
    let mut progress = PrepareProgress::default();
    let mut look = |pod: &PodEndpoints, now| {
        prepare(pod, &all_written(), &no_connections(now), &mut progress, &WAIT_TIMES, at(now))
    };
    waits(look(&web, 10_000));
    waits(look(&endpoints([ready("web")]), 10_300));
    assert!(waits(look(&web, 10_700)).0.contains("again"), "the kubelet has observed the gate");
    assert_eq!(done(look(&web, 10_900)).0, Proven);
}

#[test]
fn a_pod_whose_slice_follows_the_gate_does_not_wait_for_its_kubelet() {
    let by_hand = ServiceMembership { has_selector: false, ..ready("by-hand") };
    let always = ServiceMembership { publishes_not_ready: true, ..ready("always") };
    let serving = ServiceMembership { ready: None, ..ready("web") };
    let own = ServiceMembership { ready: None, serving: None, ..by_hand.clone() };
    for (first, then, follows) in [
        (vec![ready("web")], out("web"), true),
        (vec![serving], out("web"), true),
        (vec![by_hand.clone()], own, true),
        (vec![out("web"), by_hand.clone()], out("web"), false),
        (vec![out("web"), by_hand, always], out("web"), false),
    ] {
        let mut progress = PrepareProgress::default();
        let mut look = |pod: &PodEndpoints, now| {
            let count = InFlightCount::NotReported;
            prepare(pod, &all_written(), &count, &mut progress, &WAIT_TIMES, at(now))
        };
        waits(look(&endpoints(first), 10_000));
        let (reason, _) = waits(look(&endpoints([then]), 10_100));
        assert_eq!(reason.contains("waiting for requests in flight"), follows, "{reason}");
        assert_eq!(reason.contains("until its kubelet"), !follows, "{reason}");
    }
}

#[test]
fn a_pod_without_a_path_by_its_readiness_does_not_wait_for_its_kubelet() {
    let always = ServiceMembership { publishes_not_ready: true, ..ready("always") };
    done(prepare(
        &endpoints([always]),
        &all_written(),
        &no_connections(10_000),
        &mut PrepareProgress::default(),
        &WAIT_TIMES,
        at(10_000),
    ));
    let gone = ServiceMembership { exists: false, ..ready("gone") };
    let mut progress = PrepareProgress::default();
    let mut look = |now| {
        prepare(
            &endpoints([gone.clone()]),
            &all_written(),
            &no_connections(now),
            &mut progress,
            &WAIT_TIMES,
            at(now),
        )
    };
    waits(look(10_000));
    assert_eq!(done(look(10_200)).0, Proven);
    let mut left = endpoints([]);
    left.left[DataPath::KubeProxy.index()] = left.changed[0];
    let mut progress = PrepareProgress::default();
    let mut look =
        |now| prepare(&left, &all_written(), &no_connections(now), &mut progress, &WAIT_TIMES, at(now));
    waits(look(10_000));
    assert_eq!(done(look(10_200)).0, Proven);
}
