//! Limits of an HTTPS server.

use std::time::Duration;

/// Limits on what clients can hold.
///
/// A connection is *proven* by a request with the right path or valid credentials, or by a client certificate; see
/// [`ConnectionProof`](crate::tls::ConnectionProof).
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at the same time. Unproven connections have half of these places. One peer, which is an IPv4 address
    /// or an IPv6 network of 64 bits, has at most three quarters of both. A connection beyond a limit takes the place of
    /// the oldest unproven connection, or of the longest idle proven one.
    pub connections: usize,
    /// Timeout of a TLS handshake.
    pub handshake: Duration,
    /// Time that a proven connection may be without a request in flight.
    pub idle: Duration,
    /// Time that an unproven connection may be without a request in flight. A request is in flight once its head is
    /// complete, so this is also the timeout of the head.
    pub unproven_idle: Duration,
    /// Requests that an unproven connection gets before it is closed.
    pub unproven_requests: u32,
    /// Time that an answer waits for its client to read on. Then its request ends; over HTTP/1.1, its connection. On an
    /// unproven connection the time is that of `unproven_idle`, if that is shorter, and the connection ends.
    pub unread: Duration,
    /// Requests at the same time on one HTTP/2 connection.
    pub streams: u32,
    /// Timeout for requests in flight when the server stops.
    pub drain: Duration,
}

impl Default for ServerLimits {
    /// The idle timeout is longer than that of the API server, which is 90 s. If the server closed an idle connection,
    /// a review could be on its way at that moment, and would fail. A client proves its connection by its first request,
    /// which it sends at once: it has connected for it.
    fn default() -> Self {
        Self {
            connections: 4096,
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            unproven_idle: Duration::from_secs(10),
            unproven_requests: 32,
            unread: Duration::from_secs(60),
            streams: 250,
            drain: Duration::from_secs(10),
        }
    }
}
