//! The webhooks of rules: the state machine with tables and properties, the client with real servers.

mod answers;
mod attacks;
mod batches;
mod calls;
mod fixture;
mod interleavings;
mod machine_fixture;
mod reporting;
mod slots;
mod stored_status;
mod tasks;
mod webhook_server;

use std::time::Duration;

use podward_core::UnixNanos;

use super::machine::{TaskPolling, WaitingPod, WebhookMachine, WebhookSettings};

const SECOND: i64 = 1_000_000_000;

fn at(seconds: i64) -> UnixNanos {
    UnixNanos(1_700_000_000 * SECOND + seconds * SECOND)
}

/// Returns `pod` with its check request number `time`.
fn waiting_pod(pod: &str, time: i64) -> WaitingPod {
    WaitingPod::new(pod, format!("uid-of-{pod}"), "update", UnixNanos(time))
}

fn waiting(pods: &[&str]) -> Vec<WaitingPod> {
    pods.iter().map(|pod| waiting_pod(pod, 1)).collect()
}

fn settings(ignores_failures: bool) -> WebhookSettings {
    let polling = TaskPolling { interval: 5 * SECOND, timeout: 60 * SECOND };
    WebhookSettings { address: "here".to_owned(), ignores_failures, polling: Some(polling) }
}

fn machine(ignores_failures: bool) -> WebhookMachine {
    WebhookMachine::new("shop/rules/outside".to_owned(), settings(ignores_failures), None, at(0))
}

/// The longest delay after so many failures in a row.
fn nominal_delay(failures: u32) -> Duration {
    Duration::from_secs(1 << (failures - 1).min(5)).min(Duration::from_secs(30))
}
