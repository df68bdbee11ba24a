//! The numbers of connections that a server accepts.

use std::time::Duration;

/// How many connections a server has at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// All connections.
    pub(crate) connections: usize,
    /// Connections whose clients have not proven themselves.
    pub(crate) unproven: usize,
    /// All connections of one peer.
    pub(crate) per_peer: usize,
    /// Unproven connections of one peer.
    pub(crate) unproven_per_peer: usize,
}

impl ConnectionLimits {
    /// Returns the limits of a server with `connections` places: half of them for connections that are not proven, and
    /// for each peer three quarters of both. All API servers may have one address, that of a proxy or of a network
    /// address translation, and clients in the same network share it.
    pub(crate) fn of(connections: usize) -> Self {
        let connections = connections.max(1);
        let unproven = connections.div_ceil(2);
        let share = |places: usize| (places * 3).div_ceil(4);
        Self { connections, unproven, per_peer: share(connections), unproven_per_peer: share(unproven) }
    }
}

/// How long a connection may be without a request in flight, how many requests it gets, and how long answers wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleLimits {
    /// The time of a proven connection.
    pub(crate) proven: Duration,
    /// The time of an unproven connection.
    pub(crate) unproven: Duration,
    /// The requests of an unproven connection.
    pub(crate) unproven_requests: u32,
    /// The time that an answer waits for its client to read on. On an unproven connection it is not longer than
    /// [`unproven`](Self::unproven).
    pub(crate) unread: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_one_place_still_serves() {
        let one = ConnectionLimits { connections: 1, unproven: 1, per_peer: 1, unproven_per_peer: 1 };
        assert_eq!(ConnectionLimits::of(1), one);
        assert_eq!(ConnectionLimits::of(0), one);
        let limits = ConnectionLimits::of(4096);
        assert_eq!((limits.unproven, limits.per_peer, limits.unproven_per_peer), (2048, 3072, 1536));
    }
}
