//! The report of a load.

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use serde::{Deserialize, Serialize};

/// The use of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Connections {
    /// A new connection for each request.
    New,
    /// A pool of connections that stay open. If a reused connection closes before the first byte of the response, the
    /// request is sent once more on a new connection. It cannot have been answered, and clients such as those of Go
    /// and Java do the same for idempotent requests.
    KeepAlive,
}

impl Connections {
    /// Returns the name on the command line and in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Connections::New => "new",
            Connections::KeepAlive => "keep-alive",
        }
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The loads of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientReport {
    /// The report of each kind of connections.
    pub loads: Vec<LoadReport>,
}

/// The results of one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// The kind of connections.
    pub connections: Connections,
    /// The duration, in seconds.
    pub seconds: f64,
    /// The number of finished requests, good or bad.
    pub requests: u64,
    /// The number of requests without a good response.
    pub failed: u64,
    /// The number of failed requests by reason.
    pub reasons: BTreeMap<String, u64>,
    /// The first failed requests.
    pub failures: Vec<RequestFailure>,
    /// The number of requests that were sent again on a new connection.
    pub sent_again: u64,
    /// The number of opened connections.
    pub opened: u64,
    /// The longest time without a good response, in milliseconds.
    pub longest_pause_ms: f64,
    /// The median time to a good response, in milliseconds.
    pub median_ms: f64,
    /// The 99th percentile of the time to a good response, in milliseconds.
    pub p99_ms: f64,
    /// The requests that finished in each second.
    pub series: Vec<LoadSecond>,
    /// The number of good responses by the address that they came from.
    pub answered_by: BTreeMap<SocketAddr, u64>,
    /// The reads of the registry, if the client discovers its targets.
    pub discovery: Option<DiscoveryReport>,
}

/// The reads of a registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiscoveryReport {
    /// The number of reads that returned a list.
    pub reads: u64,
    /// The number of reads that failed, and left the list as it was.
    pub failed_reads: u64,
    /// The reason of the last failure.
    pub last_problem: Option<String>,
    /// The duration of the longest read, in milliseconds.
    pub longest_read_ms: f64,
    /// The number of requests that waited, because the last list was too old.
    pub waited: u64,
}

/// A request without a good response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestFailure {
    /// The reason.
    pub reason: String,
    /// The time of the failure, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The time since it was due, in milliseconds. TCP repeats a lost first packet after 1,000 and after 3,000
    /// milliseconds.
    pub took_ms: f64,
}

/// One second of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSecond {
    /// The number of finished requests.
    pub requests: u64,
    /// The number of failed ones among them.
    pub failed: u64,
}
