//! The lag between watches.

use std::time::Duration;

/// Upper bound for the lag between two watches of one API server. This long after the traffic-controller has observed a
/// change, kube-proxy has received it too.
pub(crate) const WATCH_LAG: Duration = Duration::from_millis(200);
