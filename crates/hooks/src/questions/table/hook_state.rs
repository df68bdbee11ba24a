//! The state of one hook in the question table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use podward_core::hooks::FailurePolicy;
use tokio::sync::Notify;

use super::output::TableOutput;
use crate::metrics::HookMetrics;
use crate::questions::failure::{CallFailure, CallFailureKind};
use crate::questions::queue::QuestionQueue;
use crate::questions::stats::CallStats;
use crate::registration::registered::{HookConnection, RegisteredHook};

/// The time that a hook system has to attach after Podward has begun to call it, for example because another replica
/// leads now. Until then its absence does not count as a failed attempt.
pub(super) const TIME_TO_ATTACH: Duration = Duration::from_secs(30);

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
    /// When the time to attach ends. `None` before the first call or probe has ended.
    attach_by: Option<Instant>,
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

    /// Begins anew with another registration.
    pub(super) fn restart(&mut self, registered: Arc<RegisteredHook>) {
        self.queue.restart(registered.max_concurrent_calls);
        self.registered = Some(registered);
        (self.tried, self.attach_by) = (false, None);
    }

    /// Notes the end of a call or a probe, and returns its result. That a hook system is not attached is another failure
    /// while it has time left to attach.
    pub(super) fn noted<T>(
        &mut self,
        result: Result<T, CallFailure>,
        now: Instant,
    ) -> Result<T, CallFailure> {
        let attach_by = *self.attach_by.get_or_insert(now + TIME_TO_ATTACH);
        let connects = self
            .registered
            .as_ref()
            .is_some_and(|registered| matches!(registered.connection, HookConnection::Attachment));
        result.map_err(|failure| match failure.kind {
            CallFailureKind::Connection if connects && now < attach_by => {
                CallFailure { kind: CallFailureKind::Attaching, ..failure }
            }
            _ => failure,
        })
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
