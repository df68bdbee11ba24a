//! Limits on requests.

use std::time::Duration;

/// Limits on one request, and on the decisions that wait.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Timeout for a body to arrive.
    pub body_timeout: Duration,
    /// Bytes of a body that must arrive in each second, on average, after [`body_grace`](Self::body_grace).
    pub body_bytes_per_second: u32,
    /// Time that a body may take however slowly it arrives.
    pub body_grace: Duration,
    /// Deferred decisions that may wait at the same time.
    pub deferred: usize,
    /// Timeout of a deferred decision, from the head of the request, if the API server does not send its own timeout.
    pub decision_timeout: Duration,
}

impl Default for AdmissionLimits {
    /// 6 MiB: an object has at most 1.5 MiB in etcd, a review has two, and JSON may need twice the space. 10 s: the API
    /// server itself gives up sooner. 16 KiB/s: it sends a review at once, over the cluster's network. 512 decisions: a review of usual size needs 30 kB while it waits.
    fn default() -> Self {
        Self {
            body_bytes: 6 << 20,
            body_timeout: Duration::from_secs(10),
            body_bytes_per_second: 16 << 10,
            body_grace: Duration::from_secs(2),
            deferred: 512,
            decision_timeout: Duration::from_secs(8),
        }
    }
}
