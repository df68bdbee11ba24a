//! The state of one hook in the question table.

use std::sync::Arc;

use jiff::Timestamp;
use podward_core::hooks::FailurePolicy;
use tokio::sync::Notify;

use super::output::TableOutput;
use crate::metrics::HookMetrics;
use crate::questions::queue::QuestionQueue;
use crate::questions::stats::CallStats;
use crate::registration::registered::{HookConnection, RegisteredHook};

#[derive(Debug, Default)]
pub(super) struct HookState {
    /// `None` if the hook is not registered but has open questions.
    pub(super) registered: Option<Arc<RegisteredHook>>,
    pub(super) queue: QuestionQueue,
    pub(super) stats: CallStats,
    /// The number of questions without the answer DONE.
    pub(super) open: usize,
    /// True if a call or a probe has ended since the hook was registered.
    pub(super) tried: bool,
    /// Notified when the driver may have something to do.
    pub(super) wakeup: Arc<Notify>,
}

/// The health of a hook.
#[derive(Clone, Debug)]
pub(crate) struct HookHealth {
    /// `None` before the first call or probe has ended.
    pub(crate) reachable: Option<bool>,
    pub(crate) calls_in_flight: usize,
    pub(crate) last_answer: Option<Timestamp>,
    pub(crate) last_error: Option<String>,
    /// p50 and p99 in milliseconds.
    pub(crate) latencies: Option<(u32, u32)>,
}

impl HookState {
    /// Returns the reason why the hook is not called; `None` if it is called.
    pub(super) fn problem(&self) -> Option<&str> {
        match self.registered.as_ref().map(|registered| &registered.connection) {
            Some(HookConnection::Invalid(problem)) => Some(problem),
            Some(_) => self.queue.circuit.error(),
            None => Some("it is not registered"),
        }
    }

    /// True if the hook system connects to Podward.
    pub(super) fn connects(&self) -> bool {
        self.registered
            .as_ref()
            .is_some_and(|registered| matches!(registered.connection, HookConnection::Attachment))
    }

    pub(super) fn ignores_failures(&self) -> bool {
        self.registered
            .as_ref()
            .is_some_and(|registered| registered.hook.failure_policy == FailurePolicy::Ignore)
    }

    /// True if the hook is not registered and has no open questions.
    pub(super) fn is_unused(&self) -> bool {
        self.registered.is_none() && self.open == 0
    }

    pub(super) fn count(&self, metrics: &HookMetrics) {
        if let Some(registered) = &self.registered {
            metrics.open(&registered.hook.name, self.open);
        }
    }

    /// Publishes whether the hook is reachable.
    pub(super) fn tell(&self, out: &TableOutput) {
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

    pub(super) fn health(&self) -> HookHealth {
        HookHealth {
            reachable: self.reachable(),
            calls_in_flight: self.queue.in_flight(),
            last_answer: self.stats.last_answer,
            last_error: self.stats.last_error.clone(),
            latencies: self.stats.latencies(),
        }
    }
}
