//! Watches that are interrupted.

use super::*;

#[test]
fn nothing_is_proven_while_a_watch_is_interrupted() {
    let interrupted = |pod: PodEndpoints, kind: &'static str| PodEndpoints { interrupted: Some(kind), ..pod };
    for kind in ["EndpointSlice", "Service", "Node"] {
        for pod in [endpoints([]), endpoints([out("web")])] {
            done(prepared(&pod, &all_written(), 60_000));
            let (reason, until) = waits(prepared(&interrupted(pod, kind), &all_written(), 60_000));
            assert!(reason.contains(&format!("the watch of kind {kind} is interrupted")), "{reason}");
            assert_eq!(until, None, "a list ends it");
        }
        for pod in [endpoints([]), endpoints([ready("web")])] {
            done(complete(&pod, &all_written(), &WAIT_TIMES, at(60_000)));
            let answer = complete(&interrupted(pod, kind), &all_written(), &WAIT_TIMES, at(60_000));
            assert!(waits(answer).0.contains("is interrupted"));
        }
        let unknown = interrupted(endpoints([]), kind);
        for answer in [release(&unknown, false), pre_check(&unknown, &[], &WAIT_TIMES, at(0), at(0))] {
            match kind {
                "Node" => assert_eq!(done(answer).0, Proven, "it does not depend on nodes"),
                _ => assert!(waits(answer).0.contains("is interrupted")),
            }
        }
        assert_eq!(
            done(release(&interrupted(endpoints([]), kind), true)).0,
            Assumed,
            "the pod has opted out"
        );
    }
}

/// The wait for requests begins again, because they may have arrived meanwhile. That for the kubelet does not.
#[test]
fn an_interruption_starts_the_wait_for_requests_again() {
    let web = endpoints([out("web")]);
    let interrupted = PodEndpoints { interrupted: Some("EndpointSlice"), ..web.clone() };
    let mut progress = seen_ready();
    let mut look = |pod: &PodEndpoints, now| {
        prepare(pod, &all_written(), &InFlightCount::NotReported, &mut progress, &WAIT_TIMES, at(now))
    };
    assert_eq!(waits(look(&web, 2000)).1, Some(at(4000)));
    waits(look(&interrupted, 3000));
    assert_eq!(waits(look(&web, 4000)).1, Some(at(6000)));
    done(look(&web, 6000));
}

/// The same with a pod that reports its requests: it reports twice after the interruption that none are in flight.
#[test]
fn an_interruption_starts_the_wait_for_a_second_report_again() {
    let web = endpoints([out("web")]);
    let interrupted = PodEndpoints { interrupted: Some("EndpointSlice"), ..web.clone() };
    let behind = NodeProxies::Read(vec![node("n1", RulesState::Pending("busy".into()))]);
    for (pod, nodes) in [(&interrupted, &all_written()), (&web, &behind)] {
        let mut progress = seen_ready();
        let mut look = |pod: &PodEndpoints, nodes: &NodeProxies, now| {
            prepare(pod, nodes, &InFlightCount::Count(0, at(now)), &mut progress, &WAIT_TIMES, at(now))
        };
        assert!(waits(look(&web, &all_written(), 2000)).0.contains("has reported once"));
        waits(look(pod, nodes, 3000));
        assert!(waits(look(&web, &all_written(), 4000)).0.contains("has reported once"));
        done(look(&web, &all_written(), 4300));
    }
}
