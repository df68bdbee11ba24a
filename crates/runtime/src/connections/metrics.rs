//! Metrics of the connections of a TLS port.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why the server closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosedBy {
    /// A new connection took its place.
    Replaced,
    /// There was no place for it, and no connection that it could replace.
    Refused,
    /// It had no request in flight for too long.
    Idle,
    /// It sent too many requests without proving itself.
    Requests,
    /// Its client did not read an answer for too long.
    Unread,
}

/// The end of a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeOutcome {
    Success,
    Failure,
    Timeout,
}

impl ClosedBy {
    const ALL: [ClosedBy; 5] =
        [ClosedBy::Replaced, ClosedBy::Refused, ClosedBy::Idle, ClosedBy::Requests, ClosedBy::Unread];

    const fn as_str(self) -> &'static str {
        match self {
            ClosedBy::Replaced => "replaced",
            ClosedBy::Refused => "refused",
            ClosedBy::Idle => "idle",
            ClosedBy::Requests => "requests",
            ClosedBy::Unread => "unread",
        }
    }
}

impl HandshakeOutcome {
    const ALL: [HandshakeOutcome; 3] =
        [HandshakeOutcome::Success, HandshakeOutcome::Failure, HandshakeOutcome::Timeout];

    const fn as_str(self) -> &'static str {
        match self {
            HandshakeOutcome::Success => "success",
            HandshakeOutcome::Failure => "failure",
            HandshakeOutcome::Timeout => "timeout",
        }
    }
}

/// The number of connections, what closed them, and handshakes. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionMetrics {
    connections: Family<[(&'static str, &'static str); 1], Gauge>,
    limits: Family<[(&'static str, &'static str); 1], Gauge>,
    closed: Family<[(&'static str, &'static str); 1], Counter>,
    handshakes: Family<[(&'static str, &'static str); 1], Counter>,
}

impl ConnectionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        // From the start, so that an alert on a rate sees the first one too.
        for reason in ClosedBy::ALL {
            drop(self.closed.get_or_create(&[("reason", reason.as_str())]));
        }
        for outcome in HandshakeOutcome::ALL {
            drop(self.handshakes.get_or_create(&[("outcome", outcome.as_str())]));
        }
        self.counted(0, 0);
        registry.register(
            "tls_connections",
            "Connections: proven by a valid request or a client certificate, and unproven ones",
            self.connections.clone(),
        );
        registry.register(
            "tls_connections_limit",
            "Maximum number of all connections, and of unproven ones",
            self.limits.clone(),
        );
        registry.register(
            "tls_connections_closed",
            "Connections that the server closed, by reason",
            self.closed.clone(),
        );
        registry.register("tls_handshakes", "TLS handshakes, by outcome", self.handshakes.clone());
    }

    pub(super) fn limited(&self, all: usize, unproven: usize) {
        for (state, limit) in [("all", all), ("unproven", unproven)] {
            self.limits.get_or_create(&[("state", state)]).set(number(limit));
        }
    }

    pub(super) fn counted(&self, unproven: usize, proven: usize) {
        for (state, count) in [("unproven", unproven), ("proven", proven)] {
            self.connections.get_or_create(&[("state", state)]).set(number(count));
        }
    }

    pub(crate) fn closed(&self, reason: ClosedBy) {
        self.closed.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    pub(crate) fn handshake(&self, outcome: HandshakeOutcome) {
        self.handshakes.get_or_create(&[("outcome", outcome.as_str())]).inc();
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
