//! The progress messages of the demo.

use std::time::Instant;

use super::{clients::DemoClients, entry::DemoEntry};

/// Prints what is being done, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemoClock(pub(super) Instant);

impl DemoClock {
    pub(super) fn say(&self, what: &str) {
        println!("[{:6.1} s] {what}", self.0.elapsed().as_secs_f64());
    }

    /// Prints a result. With Podward, every failed request is one too many, and is printed too.
    pub(super) fn announce(&self, entry: &DemoEntry) {
        let DemoEntry { act, server, connections, failed, requests, seconds, .. } = entry;
        let side = if entry.podward { "podward" } else { "stock" };
        let through = match entry.clients {
            DemoClients::InCluster => String::new(),
            DemoClients::LoadBalancer => " through node ports".to_owned(),
            DemoClients::Registry(kind) => format!(", discovered through {kind}"),
        };
        self.say(&format!(
            "{act}, {side}, server {server}, {connections} connections{through}: lost {failed} of {requests} in {seconds:.1} s"
        ));
        for failure in entry.failures.iter().filter(|_| entry.podward) {
            let (reason, after) = (&failure.reason, failure.took_ms);
            self.say(&format!("lost, {after:.0} ms after it was due, at {}: {reason}", failure.at_ms));
        }
    }
}
