//! What a load tells of itself.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Connections {
    /// A connection of its own for each request.
    New,
    /// A pool of connections that stay open. A request is sent again, once and on a fresh connection, when a connection that was used
    /// before ends before the first byte of the answer: it can't have been answered, and clients such as Go's and Java's do so with
    /// idempotent requests.
    KeepAlive,
}

impl Connections {
    /// As on the command line and in reports.
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

/// All loads of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// One for each way to use connections.
    pub loads: Vec<LoadReport>,
}

/// What became of the requests of one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// How connections are used.
    pub connections: Connections,
    /// How long it has gone on, in seconds.
    pub seconds: f64,
    /// Requests that have come to an end, good or bad.
    pub requests: u64,
    /// Those of them that got no good answer.
    pub failed: u64,
    /// How many failed for which reason.
    pub reasons: BTreeMap<String, u64>,
    /// The first of them, one by one.
    pub failures: Vec<Failure>,
    /// Requests that were sent a second time, on a fresh connection.
    pub sent_again: u64,
    /// Connections that were opened.
    pub opened: u64,
    /// The longest time without a good answer, in milliseconds.
    pub longest_pause_ms: f64,
    /// The time within which half of the good answers came, in milliseconds.
    pub median_ms: f64,
    /// The time within which 99 % of the good answers came, in milliseconds.
    pub p99_ms: f64,
    /// What came to an end in each second.
    pub series: Vec<Second>,
}

/// A request that got no good answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Why.
    pub reason: String,
    /// When that was known, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// How long after it was due, in milliseconds. A connection whose first packet was lost tries again after 1,000, and after 3,000.
    pub took_ms: f64,
}

/// One second of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Requests that came to an end.
    pub requests: u64,
    /// Those of them that failed.
    pub failed: u64,
}
