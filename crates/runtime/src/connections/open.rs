//! One connection: whether it is proven, and whether it is in use.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::IdleLimits;
use super::metrics::ClosedBy;
use super::peer::Peer;
use super::shared::Connections;
use super::table::Admission;

/// Shows the server that the client of a connection may use it. It is in the extensions of each request.
///
/// A service calls [`prove`](Self::prove) as soon as it knows that a request has the right path or valid credentials,
/// before it reads the body. A connection that is never proven has a short idle timeout, answers a few requests only, and
/// is closed when its place is needed for a new one.
#[derive(Clone, Debug)]
pub struct ConnectionProof(Arc<ConnectionState>);

/// A connection that has a place. Its drop frees the place.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<ConnectionState>);

/// A request in flight on a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct RequestOnConnection {
    connection: Arc<ConnectionState>,
    /// True once it counts as one of the requests that an unproven connection gets.
    is_counted: bool,
}

/// Whether a connection has been idle for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleCheck {
    /// It has not; check again at that time.
    Again(Instant),
    /// It has.
    Expired,
}

#[derive(Debug)]
struct ConnectionState {
    connections: Connections,
    number: u64,
    peer: Peer,
    replaced: CancellationToken,
    exhausted: CancellationToken,
    limits: IdleLimits,
    activity: Mutex<Activity>,
}

#[derive(Debug)]
struct Activity {
    in_flight: usize,
    proven: bool,
    /// Requests that were answered or cancelled while the connection was not proven.
    unproven_requests: u32,
    /// Why the connection is closed, unless it is proven after all.
    exhausted_by: Option<ClosedBy>,
    idle_since: Instant,
}

impl Connections {
    /// Takes a place for a connection from `address`, if need be that of another connection, which is then closed.
    /// Returns `None` if all connections that could be replaced have requests in flight.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<OpenConnection> {
        let peer = Peer::from(address);
        let closed = CancellationToken::new();
        let number = self.change(|table| match table.admit(peer, |_| closed.clone()) {
            Admission::Accepted(number) => Some(number),
            Admission::Replaces(number, replaced) => {
                replaced.cancel();
                self.shared.metrics.closed(ClosedBy::Replaced);
                Some(number)
            }
            Admission::Refused => {
                self.shared.metrics.closed(ClosedBy::Refused);
                None
            }
        })?;
        Some(OpenConnection::new(self.clone(), number, peer, closed, self.shared.idle))
    }
}

impl OpenConnection {
    fn new(
        connections: Connections,
        number: u64,
        peer: Peer,
        replaced: CancellationToken,
        limits: IdleLimits,
    ) -> Self {
        let activity = Activity {
            in_flight: 0,
            proven: false,
            unproven_requests: 0,
            exhausted_by: None,
            idle_since: Instant::now(),
        };
        let exhausted = CancellationToken::new();
        let activity = Mutex::new(activity);
        Self(Arc::new(ConnectionState { connections, number, peer, replaced, exhausted, limits, activity }))
    }

    pub(crate) fn peer(&self) -> Peer {
        self.0.peer
    }

    pub(crate) fn proof(&self) -> ConnectionProof {
        ConnectionProof(Arc::clone(&self.0))
    }

    /// Waits until another connection takes its place.
    pub(crate) async fn replaced(&self) {
        self.0.replaced.cancelled().await;
    }

    /// Waits until it has had all requests or all time that an unproven connection gets, and returns which. Never
    /// returns if it is proven.
    pub(crate) async fn exhausted(&self) -> ClosedBy {
        self.0.exhausted.cancelled().await;
        let reason = {
            let activity = self.0.activity.lock();
            activity.exhausted_by.filter(|_| !activity.proven)
        };
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn check_idle(&self) -> IdleCheck {
        let (activity, now) = (self.0.activity.lock(), Instant::now());
        let limit = if activity.proven { self.0.limits.proven } else { self.0.limits.unproven };
        let due = if activity.in_flight > 0 { now } else { activity.idle_since } + limit;
        if due <= now { IdleCheck::Expired } else { IdleCheck::Again(due) }
    }

    /// True if it has no request in flight that is worth waiting for.
    pub(crate) fn may_close(&self) -> bool {
        let activity = self.0.activity.lock();
        activity.in_flight == 0 || !activity.proven
    }

    /// True if it is not proven and has no request in flight.
    pub(crate) fn is_idle_and_unproven(&self) -> bool {
        let activity = self.0.activity.lock();
        activity.in_flight == 0 && !activity.proven
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.change(|table| table.remove(self.0.number));
    }
}

impl ConnectionProof {
    /// The client may use the server.
    pub fn prove(&self) {
        let mut activity = self.0.activity.lock();
        if !activity.proven {
            activity.proven = true;
            self.0.note_use(&activity);
        }
    }

    /// True if the connection is proven.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.0.activity.lock().proven
    }

    pub(crate) fn peer(&self) -> Peer {
        self.0.peer
    }

    /// Begins a request.
    pub(crate) fn begin(&self) -> RequestOnConnection {
        let mut activity = self.0.activity.lock();
        activity.in_flight += 1;
        if activity.proven && activity.in_flight == 1 {
            self.0.note_use(&activity);
        }
        RequestOnConnection { connection: Arc::clone(&self.0), is_counted: false }
    }

    /// Returns the time that an answer may wait for its client to read on.
    pub(super) fn unread_limit(&self) -> Duration {
        let IdleLimits { unproven, unread, .. } = self.0.limits;
        if self.is_proven() { unread } else { unread.min(unproven) }
    }

    /// An answer has waited too long for its client: an unproven connection is closed.
    pub(super) fn not_read(&self) {
        self.0.exhaust(&mut self.0.activity.lock(), ClosedBy::Unread);
    }
}

impl RequestOnConnection {
    /// The answer is known, and is sent as fast as the client reads. From now on the request counts, because an unproven
    /// client must not delay that by not reading. It does not count before, because a client with valid credentials may
    /// send many requests before they are checked.
    pub(crate) fn answered(&mut self) {
        self.connection.count_request(&mut self.connection.activity.lock());
        self.is_counted = true;
    }
}

impl Drop for RequestOnConnection {
    fn drop(&mut self) {
        let mut activity = self.connection.activity.lock();
        activity.in_flight -= 1;
        if activity.in_flight == 0 {
            activity.idle_since = Instant::now();
        }
        if !self.is_counted {
            self.connection.count_request(&mut activity);
        }
        if activity.proven && activity.in_flight == 0 {
            self.connection.note_use(&activity);
        }
    }
}

impl ConnectionState {
    /// Counts a request, unless the connection is proven.
    fn count_request(&self, activity: &mut Activity) {
        if activity.proven {
            return;
        }
        activity.unproven_requests += 1;
        if activity.unproven_requests >= self.limits.unproven_requests {
            self.exhaust(activity, ClosedBy::Requests);
        }
    }

    /// Has an unproven connection closed for `reason`. The first reason counts.
    fn exhaust(&self, activity: &mut Activity, reason: ClosedBy) {
        if !activity.proven {
            activity.exhausted_by.get_or_insert(reason);
            self.exhausted.cancel();
        }
    }

    /// Takes the activity of a proven connection over into the table.
    fn note_use(&self, activity: &Activity) {
        self.connections.change(|table| table.prove(self.number, activity.in_flight > 0));
    }
}
