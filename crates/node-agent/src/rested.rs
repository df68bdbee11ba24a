//! The connections on which the older requests have ended, although clients send new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::connections::{Connection, LastData, PodConnections};

/// An answer may have ended if nothing follows it for this time. It has if the client then sends something. The kernel counts
/// in steps of 1 to 10 ms.
const PAUSE: Duration = Duration::from_millis(5);
/// An answer has ended if nothing follows it for this time.
const REST: Duration = Duration::from_millis(500);

/// Collects the connections that have rested during a call: the pod has answered everything that it had received, and then
/// nothing followed for [`REST`], or nothing followed for [`PAUSE`] and then the client sent something new. Or there was no
/// data for the quiet period.
#[derive(Debug)]
pub(crate) struct Rested {
    quiet: Duration,
    rested: BTreeSet<Connection>,
    /// The connections that have answered, and how much they had received.
    answered: BTreeMap<Connection, u64>,
}

impl Rested {
    /// Returns an empty collection, for a quiet period.
    pub(crate) fn new(quiet: Duration) -> Self {
        Self { quiet, rested: BTreeSet::new(), answered: BTreeMap::new() }
    }

    /// Adds the connections of which `read` shows that they have rested. `read` was made when the call had lasted `since`.
    pub(crate) fn observe(&mut self, read: &PodConnections, since: Duration) {
        for (connection, socket) in read.iter() {
            let Some(data) = socket.data else { continue };
            let continues =
                self.answered.get(connection).is_some_and(|answered| data.received_bytes > *answered);
            let is_answered = socket.unread == 0 && is_answered(data, since);
            let silent = data.silent_for();
            let rests = !socket.is_busy() && (silent >= self.quiet || silent >= REST && is_answered);
            if continues || rests || data.received_bytes == 0 {
                self.rested.insert(*connection);
            } else if silent >= PAUSE && is_answered {
                // Not all of it may be acknowledged: the acknowledgement often comes with the next request.
                self.answered.insert(*connection, data.received_bytes);
            }
        }
    }

    /// Returns how many of the connections in `read` have rested, now or before.
    pub(crate) fn count_in(&self, read: &PodConnections) -> usize {
        read.iter().filter(|(connection, _)| self.rested.contains(connection)).count()
    }
}

/// Returns true if the pod has sent data after all that it received, in a call that has lasted `since`. The kernel counts in
/// steps of some milliseconds: if both are of the same step, the pod may not have answered a request that is older than
/// the call, but what it has not answered since then is newer.
fn is_answered(data: LastData, since: Duration) -> bool {
    data.sent < data.received || data.sent == data.received && data.sent < since
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{Sockets, TcpSocket, TcpState};

    /// A connection with the last data received and sent so many milliseconds ago, after so many bytes were received.
    fn connection(received: u64, sent: u64, received_bytes: u64) -> PodConnections {
        changed(received, sent, received_bytes, |_| {})
    }

    fn changed(
        received: u64,
        sent: u64,
        received_bytes: u64,
        change: impl FnOnce(&mut TcpSocket),
    ) -> PodConnections {
        let [received, sent] = [received, sent].map(Duration::from_millis);
        let socket = |remote: &str, state| TcpSocket {
            local: "10.0.0.7:80".parse().unwrap(),
            remote: remote.parse().unwrap(),
            state,
            unread: 0,
            unacknowledged: 0,
            data: Some(LastData { received, sent, received_bytes }),
        };
        let mut open = socket("10.0.0.9:40000", TcpState::Open);
        change(&mut open);
        let tcp = vec![socket("0.0.0.0:0", TcpState::Listening), open];
        let sockets = Sockets { tcp, has_other_protocols: false, outbound_ports: 32_768..=60_999 };
        PodConnections::of([&sockets], &BTreeSet::new())
    }

    /// Returns true if the connection has rested after these reads, each 50 ms after the other.
    fn rests(reads: &[PodConnections]) -> bool {
        let mut rested = Rested::new(Duration::from_secs(2));
        for (number, read) in (0_u32..).zip(reads) {
            rested.observe(read, Duration::from_millis(50) * number);
        }
        let last = reads.last().expect("there is a read");
        rested.count_in(last) == 1
    }

    #[test]
    fn a_new_request_ends_the_one_before() {
        let answered = || connection(60, 5, 100);
        assert!(rests(&[answered(), connection(0, 55, 200)]));
        assert!(!rests(&[answered()]), "the answer may continue");
        assert!(!rests(&[answered(), connection(110, 0, 100)]), "it continues");
        assert!(!rests(&[connection(60, 4, 100), connection(0, 54, 200)]), "no pause");
        assert!(!rests(&[connection(20, 60, 100), connection(0, 110, 200)]), "an upload");
        let unread = changed(60, 5, 100, |socket| socket.unread = 1);
        assert!(!rests(&[unread, connection(0, 55, 200)]), "a request that the pod has not read");
        let late = changed(60, 5, 100, |socket| socket.unacknowledged = 141);
        assert!(rests(&[late, connection(0, 55, 200)]), "the client acknowledges with its next request");
    }

    #[test]
    fn an_answer_that_nothing_follows_has_ended() {
        assert!(rests(&[connection(600, 500, 100)]));
        assert!(!rests(&[connection(600, 499, 100)]));
        assert!(!rests(&[connection(500, 600, 100)]), "the pod has not answered");
        assert!(rests(&[connection(9, 9, 0)]), "there was no request");
        assert!(!rests(&[connection(600, 600, 100)]), "it may be a request without an answer");
        let unreceived = changed(600, 500, 100, |socket| socket.unacknowledged = 1);
        assert!(!rests(&[unreceived]), "not all of the answer was received");
        assert!(rests(&[connection(2000, 5000, 100)]), "nothing for the quiet period");
    }

    #[test]
    fn what_the_kernel_counts_as_one_moment_is_newer_than_the_call() {
        let quick = || connection(40, 40, 100);
        assert!(!rests(&[quick(), connection(0, 90, 200)]), "older than the call");
        assert!(rests(&[connection(0, 0, 100), quick(), connection(0, 90, 200)]), "newer");
    }
}
