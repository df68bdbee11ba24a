//! What the board knows of one hook.

use std::sync::Arc;

use jiff::Timestamp;
use podward_core::hooks::FailurePolicy;
use tokio::sync::Notify;

use super::Outbox;
use crate::callbacks::metrics::HookMetrics;
use crate::callbacks::queue::Queue;
use crate::callbacks::registered::{Connection, Registered};
use crate::callbacks::stats::Stats;

#[derive(Debug, Default)]
pub(super) struct HookState {
    /// `None` when it is not registered (any more, or yet) and questions of it are open.
    pub(super) registered: Option<Arc<Registered>>,
    pub(super) queue: Queue,
    pub(super) stats: Stats,
    /// Questions without DONE.
    pub(super) open: usize,
    /// Whether anybody has tried to reach it, as it is registered now.
    pub(super) tried: bool,
    /// Rings when there may be something to do.
    pub(super) bell: Arc<Notify>,
}

/// How a hook stands.
#[derive(Clone, Debug)]
pub(in crate::callbacks) struct Standing {
    /// `None` when nobody has tried yet.
    pub(in crate::callbacks) reachable: Option<bool>,
    pub(in crate::callbacks) calls_in_flight: usize,
    pub(in crate::callbacks) last_answer: Option<Timestamp>,
    pub(in crate::callbacks) last_error: Option<String>,
    /// p50 and p99, in milliseconds.
    pub(in crate::callbacks) latencies: Option<(u32, u32)>,
}

impl HookState {
    /// Why it is not asked now, if it isn't.
    pub(super) fn problem(&self) -> Option<&str> {
        match self.registered.as_ref().map(|registered| &registered.connection) {
            Some(Connection::Invalid(problem)) => Some(problem),
            Some(_) => self.queue.circuit.error(),
            None => Some("it is not registered"),
        }
    }

    /// Whether it is the hook that connects.
    pub(super) fn connects(&self) -> bool {
        self.registered
            .as_ref()
            .is_some_and(|registered| matches!(registered.connection, Connection::Attachment))
    }

    pub(super) fn ignores_failures(&self) -> bool {
        self.registered
            .as_ref()
            .is_some_and(|registered| registered.hook.failure_policy == FailurePolicy::Ignore)
    }

    /// Whether nothing is left of it.
    pub(super) fn is_unused(&self) -> bool {
        self.registered.is_none() && self.open == 0
    }

    pub(super) fn count(&self, metrics: &HookMetrics) {
        if let Some(registered) = &self.registered {
            metrics.open(&registered.hook.name, self.open);
        }
    }

    /// Its reachability may have changed.
    pub(super) fn tell(&self, out: &Outbox) {
        if let Some(registered) = &self.registered {
            let name = &registered.hook.name;
            out.metrics.reachable(name, self.reachable() == Some(true));
            out.hooks.push(name.clone());
        }
    }

    fn reachable(&self) -> Option<bool> {
        match self.problem() {
            Some(_) => Some(false),
            None => self.tried.then_some(true),
        }
    }

    pub(super) fn standing(&self) -> Standing {
        Standing {
            reachable: self.reachable(),
            calls_in_flight: self.queue.in_flight(),
            last_answer: self.stats.last_answer,
            last_error: self.stats.last_error.clone(),
            latencies: self.stats.latencies(),
        }
    }
}
