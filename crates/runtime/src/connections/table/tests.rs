use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

const LIMITS: ConnectionLimits =
    ConnectionLimits { connections: 8, unproven: 4, per_peer: 6, unproven_per_peer: 3 };

fn peer(last: u8) -> Peer {
    Peer::from(IpAddr::from([10, 0, 0, last]))
}

/// The handle of a connection is its own number.
fn table() -> ConnectionTable<u64> {
    ConnectionTable::new(LIMITS)
}

fn accepted(admission: Admission<u64>) -> u64 {
    match admission {
        Admission::Accepted(number) => number,
        other => panic!("{other:?}"),
    }
}

fn replaced(admission: Admission<u64>) -> u64 {
    match admission {
        Admission::Replaces(_, closed) => closed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_connection_replaces_the_oldest_unproven_one() {
    let mut table = table();
    let first: Vec<u64> = (1..=4).map(|last| accepted(table.admit(peer(last), |number| number))).collect();
    assert_eq!(replaced(table.admit(peer(5), |number| number)), first[0]);
    assert_eq!(replaced(table.admit(peer(5), |number| number)), first[1]);
    assert_eq!(table.counts(), ConnectionCounts { unproven: 4, proven: 0 });
}

#[test]
fn a_peer_at_its_limit_replaces_its_own_connections() {
    let mut table = table();
    let other = accepted(table.admit(peer(9), |number| number));
    let own: Vec<u64> = (0..3).map(|_| accepted(table.admit(peer(1), |number| number))).collect();
    assert_eq!(replaced(table.admit(peer(1), |number| number)), own[0]);
    assert!(table.remove(other).is_some());
}

#[test]
fn idle_clients_do_not_close_proven_connections() {
    let mut table = table();
    let mut proven = Vec::new();
    for _ in 0..4 {
        let number = accepted(table.admit(peer(1), |number| number));
        table.prove(number, false);
        proven.push(number);
    }
    for last in 0..200 {
        table.admit(peer(100 + last % 50), |number| number);
    }
    assert!(proven.iter().all(|&number| table.remove(number).is_some()));
}

#[test]
fn a_connection_with_a_request_in_flight_is_never_closed_for_another_one() {
    let mut table = table();
    for last in 1..=8 {
        let number = accepted(table.admit(peer(last), |number| number));
        table.prove(number, true);
    }
    assert_eq!(table.admit(peer(9), |number| number), Admission::Refused);
    assert_eq!(table.remove_least(), None);
}

#[test]
fn among_proven_connections_the_largest_peer_loses_its_longest_idle_one() {
    let mut table = table();
    let mut numbers = Vec::new();
    for last in [1, 2, 2, 2, 2, 3, 4, 5] {
        let number = accepted(table.admit(peer(last), |number| number));
        table.prove(number, false);
        numbers.push(number);
    }
    // The second one is used again.
    table.prove(numbers[1], true);
    table.prove(numbers[1], false);
    assert_eq!(replaced(table.admit(peer(6), |number| number)), numbers[2]);
    // The new one is unproven, and is the first to go.
    let unproven = replaced(table.admit(peer(7), |number| number));
    assert!(!numbers.contains(&unproven));
}

#[test]
fn a_peer_with_busy_connections_only_gets_no_more() {
    let mut table = table();
    for _ in 0..6 {
        let number = accepted(table.admit(peer(1), |number| number));
        table.prove(number, true);
    }
    assert_eq!(table.admit(peer(1), |number| number), Admission::Refused);
    accepted(table.admit(peer(2), |number| number));
}

#[derive(Clone, Debug)]
enum Step {
    Admit(u8),
    Prove(usize, bool),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..4).prop_map(Step::Admit),
        (0_usize..12, any::<bool>()).prop_map(|(at, busy)| Step::Prove(at, busy)),
        (0_usize..12).prop_map(Step::Remove),
    ]
}

proptest! {
    #[test]
    fn the_limits_hold_and_busy_proven_connections_stay(steps in prop::collection::vec(step(), 0..200)) {
        let mut table = table();
        // Number, peer, proven, busy.
        let mut open: Vec<(u64, u8, bool, bool)> = Vec::new();
        for step in steps {
            match step {
                Step::Admit(last) => match table.admit(peer(last), |number| number) {
                    Admission::Accepted(number) => open.push((number, last, false, false)),
                    Admission::Replaces(number, closed) => {
                        let at = open.iter().position(|entry| entry.0 == closed).unwrap();
                        let (_, _, proven, busy) = open.remove(at);
                        prop_assert!(!(proven && busy));
                        open.push((number, last, false, false));
                    }
                    Admission::Refused => {
                        let of_peer = open.iter().filter(|entry| entry.1 == last).all(|entry| entry.2 && entry.3);
                        prop_assert!(of_peer);
                    }
                },
                Step::Prove(at, busy) => {
                    if let Some(entry) = open.get_mut(at) {
                        table.prove(entry.0, busy);
                        (entry.2, entry.3) = (true, busy);
                    }
                }
                Step::Remove(at) => {
                    if at < open.len() {
                        let (number, ..) = open.remove(at);
                        prop_assert_eq!(table.remove(number), Some(number));
                    }
                }
            }
            let unproven = open.iter().filter(|entry| !entry.2).count();
            prop_assert_eq!(table.counts(), ConnectionCounts { unproven, proven: open.len() - unproven });
            prop_assert!(open.len() <= LIMITS.connections && unproven <= LIMITS.unproven);
            for last in 0..4 {
                let of_peer = open.iter().filter(|entry| entry.1 == last);
                prop_assert!(of_peer.clone().count() <= LIMITS.per_peer);
                prop_assert!(of_peer.filter(|entry| !entry.2).count() <= LIMITS.unproven_per_peer);
            }
        }
        for (number, ..) in open {
            prop_assert!(table.remove(number).is_some());
        }
        prop_assert!(table.entries.is_empty() && table.peers.is_empty() && table.idle.all.is_empty());
        prop_assert!(table.unproven.all.is_empty() && table.unproven.by_peer.is_empty() && table.idle.by_peer.is_empty());
    }
}
