//! Configured waits.

use std::time::Duration;

use crate::index::RETENTION;

/// The times to wait where nothing can be observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTimes {
    /// After this time a proxy that cannot be read counts as having applied a change.
    pub(crate) propagation: Duration,
    /// After this time requests in flight count as ended, if the pod does not report them.
    pub(crate) quiet: Duration,
    /// The maximum wait for requests in flight if the node-agent reports connections that still carry data.
    pub(crate) connections: Duration,
    /// After this time clients have dropped a cached DNS answer.
    pub(crate) dns_ttl: Duration,
    /// The maximum wait for a replacement of the last ready endpoint of a Service.
    pub(crate) surge: Duration,
}

impl WaitTimes {
    /// Returns how long the index remembers what a pod has left: twice as long as any wait that begins with it, so that
    /// the wait ends first.
    pub(crate) fn retention(&self) -> Duration {
        RETENTION.max(self.dns_ttl.max(self.propagation) * 2)
    }
}
