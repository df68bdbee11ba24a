//! Limits on requests.

use std::time::Duration;

/// Limits on one request, and on the decisions that wait.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Timeout for a body to arrive.
    pub body_timeout: Duration,
    /// Deferred decisions that may wait at the same time.
    pub deferred: usize,
    /// Timeout of a deferred decision, from the head of the request, if the API server does not send its own timeout.
    pub decision_timeout: Duration,
}

impl Default for AdmissionLimits {
    /// 6 MiB: an object has at most 1.5 MiB in etcd, a review has two, and JSON may need twice the space. 10 s: the API
    /// server itself gives up sooner. 512 decisions: a review of usual size needs 30 kB while it waits.
    fn default() -> Self {
        Self {
            body_bytes: 6 << 20,
            body_timeout: Duration::from_secs(10),
            deferred: 512,
            decision_timeout: Duration::from_secs(8),
        }
    }
}
