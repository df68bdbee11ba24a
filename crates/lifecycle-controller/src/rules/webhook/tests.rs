//! The webhooks of rules: the state machine by tables and properties, the client with real servers.

mod answers;
mod calls;
mod interleavings;
mod scene;
mod server;
mod steps;
mod told;

use podward_core::UnixNanos;

use super::asking::{Asking, Subject};
use super::machine::{Machine, PollTimes, Settings};

const SECOND: i64 = 1_000_000_000;

fn at(seconds: i64) -> UnixNanos {
    UnixNanos(1_700_000_000 * SECOND + seconds * SECOND)
}

/// `pod` asks for the `time`th time.
fn subject(pod: &str, time: i64) -> Subject {
    let asking =
        Asking { uid: format!("uid-of-{pod}"), operation: "update".to_owned(), asked_at: UnixNanos(time) };
    Subject::new(pod, &asking)
}

fn subjects(pods: &[&str]) -> Vec<Subject> {
    pods.iter().map(|pod| subject(pod, 1)).collect()
}

fn settings(ignores_failures: bool) -> Settings {
    let poll = PollTimes { interval: 5 * SECOND, timeout: 60 * SECOND };
    Settings { place: "here".to_owned(), ignores_failures, poll: Some(poll) }
}

fn machine(ignores_failures: bool) -> Machine {
    Machine::new("shop/rules/outside".to_owned(), settings(ignores_failures), None, at(0))
}
