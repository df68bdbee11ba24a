//! What came out.

use std::{collections::BTreeMap, fmt};

use demo_client::{Connections, Failure, LoadReport};
use serde::Serialize;

use super::act::Act;

/// What the demo's server does on SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// It ends at once.
    ExitsAtOnce,
    /// It finishes the requests in flight and closes each connection after its answer.
    Graceful,
}

impl Server {
    /// The demo server's name for it.
    pub(super) const fn mode(self) -> &'static str {
        match self {
            Server::ExitsAtOnce => "immediate",
            Server::Graceful => "graceful",
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Server::ExitsAtOnce => "exits at once",
            Server::Graceful => "graceful",
        })
    }
}

/// What clients of one kind saw of one act.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// What was done.
    pub act: Act,
    /// Whether the pods had opted in to Podward.
    pub podward: bool,
    /// Which time it was, from 1.
    pub run: usize,
    /// What the server does on SIGTERM.
    pub server: Server,
    /// How the clients use connections.
    pub connections: Connections,
    /// Requests that they sent, from a second before the act until two seconds after it.
    pub requests: u64,
    /// Requests that got no good answer.
    pub failed: u64,
    /// How many failed for which reason.
    pub reasons: BTreeMap<String, u64>,
    /// The first of them, one by one.
    pub failures: Vec<Failure>,
    /// How many failed in which second of the load.
    pub failed_by_second: BTreeMap<usize, u64>,
    /// Requests that were sent again on a fresh connection, since a used one ended before the first byte of the answer.
    pub sent_again: u64,
    /// The longest time without a good answer, in milliseconds.
    pub longest_pause_ms: f64,
    /// How long the act took, in seconds.
    pub seconds: f64,
}

impl Entry {
    pub(super) fn of(
        (act, podward, run): (Act, bool, usize),
        server: Server,
        seconds: f64,
        load: LoadReport,
    ) -> Self {
        Self {
            act,
            podward,
            run,
            server,
            connections: load.connections,
            requests: load.requests,
            failed: load.failed,
            reasons: load.reasons,
            failures: load.failures,
            failed_by_second: (load.series.iter().map(|second| second.failed).enumerate())
                .filter(|(_, failed)| *failed > 0)
                .collect(),
            sent_again: load.sent_again,
            longest_pause_ms: load.longest_pause_ms,
            seconds,
        }
    }
}
