//! The lease of the keys, if they have one: they vanish when no bridge has kept it alive for its time.
//!
//! Each client has a lease of its own. A client that takes over instances attaches their keys to its lease when it renews
//! them, within a third of the time.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// The lease of a client.
#[derive(Debug)]
pub(super) struct Lease {
    /// After this time without a sign of life, etcd deletes the keys.
    pub(super) time: Duration,
    pub(super) granted: Mutex<Option<Granted>>,
}

/// A lease that etcd has granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) id: i64,
    /// When it was kept alive last.
    pub(super) kept: Instant,
}

impl Lease {
    pub(super) fn new(time: Duration) -> Self {
        Self { time, granted: Mutex::default() }
    }

    /// The interval at which it is kept alive, and at which each instance is renewed.
    pub(super) fn interval(&self) -> Duration {
        self.time / 3
    }

    /// Forgets the lease that etcd does not know any more.
    pub(super) async fn forget(&self) {
        *self.granted.lock().await = None;
    }
}
