//! Requests in flight, by the connections that the node-agent reports.

use super::*;

#[test]
fn connections_to_the_pod_are_waited_for() {
    let web = endpoints([out("web")]);
    let mut progress = seen_ready();
    let mut look = |flight: &InFlightCount, now| {
        prepare(&web, &all_written(), flight, &mut progress, &WAIT_TIMES, at(now))
    };
    let open = |open, silent, asked| {
        let silent_for = Duration::from_millis(silent);
        InFlightCount::Connections(OpenConnections { open, silent_for, rested: 0 }, at(asked))
    };
    assert!(waits(look(&InFlightCount::ConnectionsUnknown, 2000)).0.contains("from its node-agent"));
    for early in [open(0, 0, 2199), open(1, 9000, 2199)] {
        let (reason, _) = waits(look(&early, 2300));
        assert!(
            reason.contains("again"),
            "a packet that opens a connection may have been on its way: {reason}"
        );
    }
    let (reason, until) = waits(look(&open(2, 300, 3000), 3000));
    // The lifecycle-controller asks again soon: the end does not depend on a clock.
    assert!(reason.contains("2 connections to the pod, the last data 0.3 s ago") && until.is_none());
    let (level, words) = done(look(&open(1, 2000, 5000), 5000));
    assert!(
        level == Bounded && words.contains("no data on the 1 connection to the pod for 2.0 s"),
        "{words}"
    );
    let (level, words) = done(look(&open(0, 0, 2200), 2250));
    assert!(level == Proven && words.ends_with("no connection to the pod is left"), "{words}");
    let (level, words) = done(look(&open(3, 100, 62_000), 62_000));
    assert!(level == Assumed && words.contains("3 connections to the pod still carry data"), "{words}");
}

#[test]
fn connections_that_clients_keep_alive_are_waited_for_until_each_has_rested() {
    let web = endpoints([out("web")]);
    let mut progress = seen_ready();
    let mut look = |rested, now| {
        let connections = OpenConnections { open: 2, silent_for: Duration::from_millis(30), rested };
        let flight = InFlightCount::Connections(connections, at(now));
        prepare(&web, &all_written(), &flight, &mut progress, &WAIT_TIMES, at(now))
    };
    waits(look(2, 2000));
    waits(look(2, 3900));
    waits(look(1, 9000));
    let (level, words) = done(look(2, 9000));
    assert!(level == Assumed && words.contains("new ones on the 2 connections"), "{words}");
    // Clients have opened fewer since.
    assert_eq!(done(look(3, 9000)).0, Assumed);
}

#[test]
fn without_the_node_agent_the_quiet_period_counts() {
    let web = endpoints([out("web")]);
    let mut progress = seen_ready();
    let failed = InFlightCount::ConnectionsFailed("its node-agent is down".to_owned());
    let mut look = |now| prepare(&web, &all_written(), &failed, &mut progress, &WAIT_TIMES, at(now));
    let (reason, until) = waits(look(2000));
    assert!(reason.contains("its node-agent is down") && until == Some(at(4000)), "{reason}");
    let (level, words) = done(look(4000));
    assert!(level == Bounded && words.contains("its node-agent is down"), "{words}");
}

/// A pod without Services does not wait for connections.
#[test]
fn a_pod_without_services_is_not_read() {
    let mut progress = PrepareProgress::default();
    let unread = InFlightCount::ConnectionsUnknown;
    done(prepare(&PodEndpoints::default(), &all_written(), &unread, &mut progress, &WAIT_TIMES, at(0)));
}

/// One read that fails, as while the node-agent restarts, does not end the wait for a connection in use.
#[test]
fn one_failed_read_does_not_end_the_wait_for_a_connection_in_use() {
    let web = endpoints([out("web")]);
    let mut progress = seen_ready();
    let mut look = |flight: &InFlightCount, now| {
        prepare(&web, &all_written(), flight, &mut progress, &WAIT_TIMES, at(now))
    };
    waits(look(&InFlightCount::ConnectionsUnknown, 2000));
    let in_use = OpenConnections { open: 1, silent_for: Duration::from_millis(100), rested: 0 };
    waits(look(&InFlightCount::Connections(in_use, at(9000)), 9000));
    let failed = InFlightCount::ConnectionsFailed("its node-agent is down".to_owned());
    let (reason, until) = waits(look(&failed, 9100));
    assert!(reason.contains("its node-agent is down") && until == Some(at(10_900)), "{reason}");
    assert_eq!(done(look(&failed, 10_900)).0, Bounded);
}

/// One read that fails, as of a pod that is slow to answer, does not end the wait for the requests that it has reported.
#[test]
fn one_failed_read_does_not_end_the_wait_for_requests_that_the_pod_reports() {
    let web = endpoints([out("web")]);
    let mut progress = seen_ready();
    let mut look = |flight: &InFlightCount, now| {
        prepare(&web, &all_written(), flight, &mut progress, &WAIT_TIMES, at(now))
    };
    waits(look(&InFlightCount::Unknown, 2000));
    waits(look(&InFlightCount::Count(3, at(9000)), 9000));
    let failed = InFlightCount::Failed("no response within 1 s".to_owned());
    let (reason, until) = waits(look(&failed, 9200));
    assert!(reason.contains("no response within 1 s") && until == Some(at(11_000)), "{reason}");
    waits(look(&InFlightCount::Count(2, at(10_500)), 10_500));
    assert_eq!(waits(look(&failed, 11_000)).1, Some(at(12_500)), "the last report counts");
    assert_eq!(done(look(&failed, 12_500)).0, Bounded);
}
