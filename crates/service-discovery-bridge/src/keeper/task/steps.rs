//! The steps that bring the pods into their wanted state, the heartbeats, and the pause until something is due.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use podward_api::discovery_binding::BindingMode;

use super::super::renewal::{self, Heartbeats};
use super::super::shared::Shared;
use super::super::tracked::TrackedPod;
use super::{BindingTask, MAX_PAUSE};
use crate::model::Binding;
use crate::sync::{Outcome, RegistryAccess, settle};

/// The largest number of pods that are brought into their wanted state in one step, so that questions about other pods do
/// not wait for all of them.
const MAX_STEP: usize = 200;
/// The shortest time between two steps of this size: at most 1,000 changes a second after a loss of the registry's data.
const STEP_INTERVAL: Duration = Duration::from_millis(200);
/// The pause before removals that the limit holds are looked at again: it counts those within a minute.
const HELD_RETRY: Duration = Duration::from_secs(5);

impl BindingTask {
    /// Brings the pods into their wanted state whose next attempt is due. Returns a pause if there are more.
    pub(super) async fn step(&mut self, binding: &Binding, access: &RegistryAccess) -> Option<Duration> {
        let now = self.shared.index.now();
        self.held_pods = self.hold_removals(binding, now);
        let (due, more) = self.due(now);
        let mut uids = Vec::new();
        let mut tasks = Vec::new();
        for uid in due {
            match self
                .allowed(binding, &uid)
                .map(|()| self.tracked.get(&uid).and_then(|it| it.task(binding, access)))
            {
                Ok(Some(task)) => {
                    uids.push(uid);
                    tasks.push(task);
                }
                Ok(None) => {}
                Err(problem) => {
                    if let Some(tracked) = self.tracked.get_mut(&uid) {
                        tracked.record(Outcome::Waits(problem), now, now);
                    }
                }
            }
        }
        if tasks.is_empty() {
            return None;
        }
        let mut heartbeats = heartbeats(&self.shared, binding, access);
        let settled = settle(access, &tasks);
        let (outcomes, unknown) = heartbeats.during(settled, &self.tracked).await;
        self.record_heartbeats(heartbeats);
        let end = self.shared.index.now();
        let mut first = None;
        for ((index, uid), outcome) in uids.iter().enumerate().zip(outcomes) {
            let result = match &outcome {
                Outcome::Shown { .. } => Some("shown"),
                Outcome::Written(..) => None,
                Outcome::Waits(_) | Outcome::InStaleList(_) => Some("waits"),
                Outcome::Failed(problem) => {
                    first.get_or_insert_with(|| problem.clone());
                    Some("failed")
                }
            };
            if let Some(result) = result {
                self.shared.metrics.changed(result, 1);
            }
            if let Some(tracked) = self.tracked.get_mut(uid) {
                if unknown.contains(&index) {
                    tracked.in_doubt_until = end + access.in_doubt;
                }
                tracked.record(outcome, now, end);
            }
        }
        if let Some(problem) = first {
            tracing::warn!(binding = %self.key, problem, "the registry does not show what it should; trying again");
        }
        more.then(|| STEP_INTERVAL.saturating_sub(end.saturating_sub(now)))
    }

    /// Returns the pods that are brought into their wanted state in this step, and whether there are more. Pods that questions
    /// are about come first. The others are sorted by service, because services are read as a whole.
    fn due(&self, now: Duration) -> (Vec<String>, bool) {
        let asked: HashSet<&str> = self.calls.iter().map(|call| call.pod.uid.as_str()).collect();
        let is_due =
            |(uid, tracked): &(&String, &TrackedPod)| tracked.is_due(now) && !self.held_pods.contains(*uid);
        let mut due: Vec<_> = self
            .tracked
            .iter()
            .filter(is_due)
            .map(|(uid, tracked)| {
                let service = tracked.service.as_ref().ok();
                (!asked.contains(uid.as_str()), service, uid)
            })
            .collect();
        let more = due.len() > MAX_STEP;
        if more {
            due.select_nth_unstable(MAX_STEP);
            due.truncate(MAX_STEP);
        }
        (due.into_iter().map(|(_, _, uid)| uid.clone()).collect(), more)
    }

    pub(super) async fn renew(&mut self, binding: &Binding, access: &RegistryAccess) {
        let now = self.shared.index.now();
        let Some(interval) = heartbeat_interval(binding, access).filter(|_| now >= self.renewal_due) else {
            return;
        };
        self.renewal_due = now + renewal::TICK;
        renewal::spread(&mut self.tracked, interval, now);
        let mut heartbeats = heartbeats(&self.shared, binding, access);
        heartbeats.renew(&self.tracked).await;
        self.record_heartbeats(heartbeats);
    }

    /// Records the heartbeats that were sent.
    pub(super) fn record_heartbeats(&mut self, heartbeats: Heartbeats<'_>) {
        let count = |number: usize| u64::try_from(number).unwrap_or_default();
        self.shared.metrics.renewed("sent", count(heartbeats.sent));
        self.shared.metrics.renewed("failed", count(heartbeats.failed));
        heartbeats.record(&mut self.tracked);
    }

    /// Returns the time until something is due.
    pub(super) fn pause(&self, binding: &Binding, access: &RegistryAccess) -> Duration {
        let now = self.shared.index.now();
        let open = self.tracked.iter().filter(|(uid, _)| !self.held_pods.contains(*uid));
        let attempts = open.filter_map(|(_, tracked)| tracked.next_attempt());
        let held = (!self.held_pods.is_empty()).then(|| now + HELD_RETRY);
        let calls = self.calls.iter().map(|call| call.until);
        let renewal = heartbeat_interval(binding, access).map(|_| self.renewal_due);
        let due = attempts
            .chain(held)
            .chain(calls)
            .chain(renewal)
            .chain(self.kruise.due)
            .chain((self.guard_due > now).then_some(self.guard_due))
            .chain([self.comparison_due])
            .min();
        due.map_or(MAX_PAUSE, |due| due.saturating_sub(now)).clamp(Duration::from_millis(10), MAX_PAUSE)
    }
}

/// Returns the heartbeats of a binding, of which none is sent yet.
pub(super) fn heartbeats<'a>(
    shared: &Shared,
    binding: &'a Binding,
    access: &'a RegistryAccess,
) -> Heartbeats<'a> {
    let (interval, index) = (heartbeat_interval(binding, access), Arc::clone(&shared.index));
    Heartbeats { binding, access, interval, index, renewed: HashMap::new(), sent: 0, failed: 0 }
}

/// Returns the interval of heartbeats. Where the application registers itself, it sends them.
fn heartbeat_interval(binding: &Binding, access: &RegistryAccess) -> Option<Duration> {
    access.capabilities.renewal.filter(|_| binding.mode == BindingMode::Own)
}
