//! The results of the demo.

use std::collections::BTreeMap;

use demo_client::{Connections, LoadReport, RequestFailure};
use serde::Serialize;

use super::{act::Act, clients::DemoClients, server::DemoServer};

/// The result of one act for one kind of connection.
#[derive(Clone, Debug, Serialize)]
pub struct DemoEntry {
    /// The act.
    pub act: Act,
    /// True if the pods had opted in to Podward.
    pub podward: bool,
    /// The number of the run, from 1.
    pub run: usize,
    /// The way of the requests to the pods.
    pub clients: DemoClients,
    /// The behaviour of the server on SIGTERM.
    pub server: DemoServer,
    /// How the clients use connections.
    pub connections: Connections,
    /// The number of requests, from a second before the act until two seconds after it.
    pub requests: u64,
    /// The number of requests without a good response.
    pub failed: u64,
    /// The number of failed requests by reason.
    pub reasons: BTreeMap<String, u64>,
    /// The first failed requests.
    pub failures: Vec<RequestFailure>,
    /// The number of failed requests by second of the load.
    pub failed_by_second: BTreeMap<usize, u64>,
    /// The number of requests that were sent again on a new connection, because a reused one closed before the first
    /// byte of the response.
    pub sent_again: u64,
    /// The longest time without a good response, in milliseconds.
    pub longest_pause_ms: f64,
    /// The duration of the act, in seconds.
    pub seconds: f64,
}

impl DemoEntry {
    pub(super) fn of(
        (act, podward, run): (Act, bool, usize),
        clients: DemoClients,
        server: DemoServer,
        seconds: f64,
        load: LoadReport,
    ) -> Self {
        Self {
            act,
            podward,
            run,
            clients,
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
