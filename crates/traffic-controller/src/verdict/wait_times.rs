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
    /// Returns how long the index remembers what a pod has left: twice as long as the waits that begin with it, so that
    /// they end first. They are one for the data paths, and then one for the requests in flight.
    pub(crate) fn retention(&self) -> Duration {
        RETENTION.max((self.dns_ttl.max(self.propagation) + self.quiet.max(self.connections)) * 2)
    }

    /// Returns the time after which the traffic of a pod has ended that has left a Service of any kind unseen. Less than
    /// [`WaitTimes::retention`].
    pub(crate) fn unseen(&self) -> Duration {
        self.dns_ttl.max(self.propagation) + self.quiet
    }
}
