//! The connections to a pod, derived from the sockets of its network namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The state of a TCP socket, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpState {
    /// The socket accepts connections.
    Listening,
    /// A request may arrive, or an answer may be sent.
    Open,
    /// The pod has closed the connection, or both sides have. No request is read any more.
    Closed,
}

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpSocket {
    pub(crate) local: SocketAddr,
    /// The other side. Its meaning is undefined for a listening socket.
    pub(crate) remote: SocketAddr,
    pub(crate) state: TcpState,
    /// The number of bytes that the pod has not read. For a listening socket the number of connections that the pod has not
    /// accepted.
    pub(crate) unread: u32,
    /// The number of bytes that were sent and not acknowledged.
    pub(crate) unacknowledged: u32,
    /// The last data. `None` if the kernel does not report it.
    pub(crate) data: Option<LastData>,
}

impl TcpSocket {
    /// Returns true if something waits to be read or acknowledged.
    pub(crate) fn is_busy(&self) -> bool {
        self.unread > 0 || self.unacknowledged > 0
    }
}

/// When a connection carried data for the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastData {
    /// The time since data was received, or since the connection was opened.
    pub(crate) received: Duration,
    /// The time since data was sent, or since the connection was opened.
    pub(crate) sent: Duration,
    /// The number of bytes that were received.
    pub(crate) received_bytes: u64,
}

impl LastData {
    /// Returns the time since data was received or sent.
    pub(crate) fn silent_for(self) -> Duration {
        self.received.min(self.sent)
    }
}

/// All sockets of a network namespace that can receive requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sockets {
    pub(crate) tcp: Vec<TcpSocket>,
    /// True if others can send packets over UDP or SCTP. Nothing is known of requests over them.
    pub(crate) has_other_protocols: bool,
    /// The local ports that the kernel chooses for outbound connections.
    pub(crate) outbound_ports: RangeInclusive<u16>,
}

/// The connections that others have opened to the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodConnections {
    /// The ports on which the pod accepts connections.
    pub(crate) ports: BTreeSet<u16>,
    /// The number of connections that can still carry a request or an answer.
    pub(crate) open: usize,
    /// The shortest time since data was received or sent on one of them: all are silent for at least this long. `None`
    /// if there is no connection.
    pub(crate) silent_for: Option<Duration>,
    /// True if others can send packets over UDP or SCTP.
    pub(crate) has_other_protocols: bool,
    connections: BTreeMap<Connection, TcpSocket>,
}

/// The address of the pod, and of the other side.
pub(crate) type Connection = (SocketAddr, SocketAddr);

impl PodConnections {
    /// Derives the connections from the sockets of all network namespaces of the pod. A connection is inbound if the pod
    /// listens on its local port, or may have listened on it before: the port is one of `served`, or the kernel would not
    /// choose it for an outbound connection. Connections of a namespace to itself do not count. A connection of which the
    /// kernel reports no time, or with data that waits to be read or sent, is not silent.
    pub(crate) fn of<'a>(namespaces: impl IntoIterator<Item = &'a Sockets>, served: &BTreeSet<u16>) -> Self {
        let mut found = Self {
            ports: BTreeSet::new(),
            open: 0,
            silent_for: None,
            has_other_protocols: false,
            connections: BTreeMap::new(),
        };
        for sockets in namespaces {
            found.add(sockets, served);
        }
        found
    }

    fn add(&mut self, sockets: &Sockets, served: &BTreeSet<u16>) {
        let is_listening = |socket: &&TcpSocket| socket.state == TcpState::Listening;
        // Only the namespace itself reaches what listens on loopback.
        let for_others = |socket: &&TcpSocket| !socket.local.ip().to_canonical().is_loopback();
        let ports: BTreeSet<u16> = sockets
            .tcp
            .iter()
            .filter(is_listening)
            .filter(for_others)
            .map(|socket| socket.local.port())
            .collect();
        let locals: BTreeSet<SocketAddr> = sockets.tcp.iter().map(|socket| canonical(socket.local)).collect();
        let is_inbound = |socket: &&TcpSocket| {
            let (local, remote) = (canonical(socket.local), canonical(socket.remote));
            let port = local.port();
            let may_have_listened = ports.contains(&port)
                || served.contains(&port)
                || local.ip().is_loopback()
                || !sockets.outbound_ports.contains(&port);
            // The kernel redirects outbound connections to the proxy of a sidecar at a loopback address. Their other half is
            // here, too. That of a connection which the kernel redirects from outside is not.
            let is_redirected_outbound = local.ip().is_loopback() && locals.contains(&remote);
            let is_of_itself = remote.ip().is_loopback() || remote.ip() == local.ip();
            may_have_listened && !is_redirected_outbound && !is_of_itself
        };
        // The pod has closed a connection before its last bytes are acknowledged.
        let is_open = |socket: &&TcpSocket| match socket.state {
            TcpState::Open => true,
            TcpState::Closed => socket.is_busy(),
            TcpState::Listening => false,
        };
        // A connection that the pod has not accepted yet is a socket of its own, too.
        for socket in sockets.tcp.iter().filter(is_open).filter(is_inbound) {
            let data = socket.data.filter(|_| !socket.is_busy());
            let silence = data.map(LastData::silent_for).unwrap_or_default();
            self.open += 1;
            self.connections.insert((socket.local, socket.remote), *socket);
            self.silent_for = Some(self.silent_for.map_or(silence, |other| other.min(silence)));
        }
        self.ports.extend(ports);
        self.has_other_protocols |= sockets.has_other_protocols;
    }

    /// Returns each connection and its socket.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Connection, &TcpSocket)> {
        self.connections.iter()
    }

    /// Returns true if nothing is in flight: there is no connection, or all are silent for `quiet`.
    pub(crate) fn is_quiet(&self, quiet: Duration) -> bool {
        self.silent_for.is_none_or(|silent| silent >= quiet)
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(local: &str, remote: &str, state: TcpState, millis: Option<u64>) -> TcpSocket {
        TcpSocket {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            state,
            unread: 0,
            unacknowledged: 0,
            data: millis.map(|millis| {
                let silent = Duration::from_millis(millis);
                LastData { received: silent, sent: silent, received_bytes: 1 }
            }),
        }
    }

    fn sockets(tcp: &[TcpSocket]) -> Sockets {
        Sockets { tcp: tcp.to_vec(), has_other_protocols: false, outbound_ports: 32_768..=60_999 }
    }

    fn connections(tcp: &[TcpSocket]) -> (usize, Option<u128>) {
        let found = PodConnections::of([&sockets(tcp)], &BTreeSet::new());
        (found.open, found.silent_for.map(|silent| silent.as_millis()))
    }

    #[test]
    fn connections_from_outside_to_a_listening_port_count() {
        use TcpState::{Closed, Listening, Open};
        let listening = socket("[::]:8080", "[::]:0", Listening, None);
        let client = socket("[::ffff:10.244.0.7]:8080", "[::ffff:10.244.1.9]:40000", Open, Some(700));
        let other = socket("10.244.0.7:8080", "10.244.2.2:51000", Open, Some(300));
        assert_eq!(connections(&[listening, client]), (1, Some(700)));
        assert_eq!(connections(&[listening, client, other]), (2, Some(300)));
        let outbound = socket("10.244.0.7:40001", "10.244.1.9:8080", Open, Some(1));
        assert_eq!(connections(&[listening, outbound]), (0, None));
        assert_eq!(
            connections(&[client]),
            (1, Some(700)),
            "the pod has stopped listening, and still answers"
        );
        let of_itself = [
            socket("127.0.0.1:8080", "127.0.0.1:40000", Open, Some(1)),
            socket("[::ffff:127.0.0.1]:8080", "[::ffff:127.0.0.1]:40000", Open, Some(1)),
            socket("10.244.0.7:8080", "10.244.0.7:40000", Open, Some(1)),
        ];
        for socket in of_itself {
            assert_eq!(connections(&[listening, socket]), (0, None), "{socket:?}");
        }
        let closed = socket("10.244.0.7:8080", "10.244.2.2:51000", Closed, Some(5));
        assert_eq!(connections(&[listening, closed]), (0, None));
        let sending = TcpSocket { unacknowledged: 9, ..closed };
        assert_eq!(connections(&[listening, sending]), (1, Some(0)), "its last bytes are on their way");
    }

    /// The kernel translates the destination of connections in both directions.
    #[test]
    fn outbound_connections_to_the_proxy_of_a_sidecar_do_not_count_and_inbound_ones_to_loopback_do() {
        use TcpState::Open;
        for (proxy, client, client_in_socket) in [
            ("127.0.0.1:15001", "10.244.0.7:41000", "10.244.0.7:41000"),
            ("[::ffff:127.0.0.1]:15001", "[::ffff:10.244.0.7]:41000", "10.244.0.7:41000"),
            ("[::1]:15001", "[fd00::7]:41000", "[fd00::7]:41000"),
            // The kernel may choose this port for an outbound connection, but not with this address.
            ("127.0.0.1:50051", "10.244.0.7:41000", "10.244.0.7:41000"),
        ] {
            let proxied = socket(proxy, client, Open, Some(1));
            let outbound = socket(client_in_socket, "10.96.0.9:80", Open, Some(1));
            assert_eq!(connections(&[proxied, outbound]), (0, None), "{proxied:?}");
            assert_eq!(connections(&[proxied]), (1, Some(1)), "the client is outside: {proxied:?}");
        }
    }

    /// gRPC's 50051 is a port that the kernel may choose for an outbound connection, too.
    #[test]
    fn connections_to_a_port_that_was_served_count_when_nothing_listens_there() {
        use TcpState::{Listening, Open};
        let metrics = socket("0.0.0.0:9090", "0.0.0.0:0", Listening, None);
        let client = socket("10.244.0.7:50051", "10.244.1.9:40000", Open, Some(3));
        let open = |served: &[u16]| {
            PodConnections::of([&sockets(&[metrics, client])], &served.iter().copied().collect()).open
        };
        assert_eq!(open(&[50_051]), 1);
        assert_eq!(open(&[8080]), 0, "the kernel chose the port for a connection of the pod");
    }

    #[test]
    fn what_is_unknown_or_unread_is_not_silent() {
        let listening = socket("0.0.0.0:80", "0.0.0.0:0", TcpState::Listening, None);
        let unknown = socket("10.0.0.7:80", "10.0.0.9:40000", TcpState::Open, None);
        assert_eq!(connections(&[listening, unknown]), (1, Some(0)));
        let unread =
            TcpSocket { unread: 1, ..socket("10.0.0.7:80", "10.0.0.9:40000", TcpState::Open, Some(9000)) };
        assert_eq!(connections(&[listening, unread]), (1, Some(0)));
        let quiet = Duration::from_secs(2);
        let of = |tcp: TcpSocket| PodConnections::of([&sockets(&[listening, tcp])], &BTreeSet::new());
        assert!(!of(unread).is_quiet(quiet));
        assert!(of(TcpSocket { unread: 0, ..unread }).is_quiet(quiet));
        assert!(PodConnections::of([&sockets(&[listening])], &BTreeSet::new()).is_quiet(quiet));
    }

    #[test]
    fn all_namespaces_of_a_pod_count() {
        use TcpState::{Listening, Open};
        let pod = sockets(&[socket("0.0.0.0:80", "0.0.0.0:0", Listening, None)]);
        let nested = sockets(&[
            socket("0.0.0.0:8080", "0.0.0.0:0", Listening, None),
            socket("172.17.0.2:8080", "10.244.1.9:40000", Open, Some(10)),
        ]);
        let udp = Sockets { has_other_protocols: true, ..sockets(&[]) };
        let found = PodConnections::of([&pod, &nested, &udp], &BTreeSet::new());
        assert_eq!((found.open, found.ports), (1, BTreeSet::from([80, 8080])));
        assert!(found.has_other_protocols);
    }

    /// A sandbox with a kernel of its own has no sockets here, even if a helper of it listens on loopback.
    #[test]
    fn what_listens_on_loopback_is_not_a_port_of_the_pod() {
        let helper = ["127.0.0.1:15000", "[::1]:15000", "[::ffff:127.0.0.1]:15000"];
        let helper = helper.map(|local| socket(local, "0.0.0.0:0", TcpState::Listening, None));
        assert!(PodConnections::of([&sockets(&helper)], &BTreeSet::new()).ports.is_empty());
    }
}
