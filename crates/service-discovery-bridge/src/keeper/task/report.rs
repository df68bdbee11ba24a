//! The status and the metrics of a binding.

use std::time::Duration;

use podward_api::discovery_binding::BindingMode;

use super::super::hook::HookState;
use super::super::status::{self, BindingReport};
use super::super::tracked::{SyncState, TrackedPod};
use super::{BindingTask, STATUS_INTERVAL};
use crate::index::BindingEntry;
use crate::metrics::BindingNumbers;
use crate::model::{Binding, Orphan, OrphanState, Presence};

impl BindingTask {
    /// Returns the number of pods that the registry shows in service, as it should.
    pub(super) fn shown_in_service(&self) -> usize {
        let is_shown = |tracked: &&TrackedPod| {
            tracked.presence == Presence::InService && matches!(tracked.state, SyncState::Shown { .. })
        };
        self.tracked.values().filter(is_shown).count()
    }

    /// Writes the status if it has changed, and sets the metrics.
    pub(super) async fn report(&mut self, entry: &BindingEntry, binding: Option<&Binding>, hook: &HookState) {
        let in_service = |presence: Presence| presence == Presence::InService;
        let wanted = self.tracked.values().filter(|tracked| in_service(tracked.presence)).count();
        let shown = self.tracked.values().filter_map(|tracked| match &tracked.state {
            SyncState::Shown { drifted, .. } if in_service(tracked.presence) => Some(*drifted),
            _ => None,
        });
        let is_open = |orphan: &Orphan| orphan.state != OrphanState::Removed;
        let foreign =
            self.orphans.iter().filter(|orphan| is_open(orphan) && !self.tracked.contains_key(&orphan.uid));
        let (mut present, mut drifted) = (0, foreign.count());
        for is_drifted in shown {
            present += 1;
            drifted += usize::from(is_drifted);
        }
        self.send_events(entry, wanted, present);
        let problem = self.tracked.values().filter_map(|tracked| {
            let problem = tracked.problem().filter(|_| tracked.presence != Presence::Unchanged)?;
            Some((tracked.pod.name.as_str(), problem))
        });
        // The first by name, so that the message does not change without a reason.
        let problem = problem.min().map(|(pod, problem)| format!("pod {pod}: {problem}"));
        // Nobody adds finalizers to a binding that is being deleted.
        let is_deleted = entry.object.metadata.deletion_timestamp.is_some();
        let guard_problem = || self.guard_problem.clone().filter(|_| !is_deleted);
        // The remainder says which pods a deleted binding waits for, and names the problem of the first.
        let puts_back = binding.is_some_and(|it| it.deleting && it.mode == BindingMode::Steer);
        let problem =
            problem.filter(|_| !puts_back).or_else(|| self.remainder(binding?)).or_else(guard_problem);
        let held = self.held.clone();
        self.shared.metrics.set(
            &self.key,
            BindingNumbers {
                wanted,
                present,
                drifted,
                held: held.as_ref().map_or(0, |held| held.count as usize),
                unreachable: self.unreachable.is_some(),
                rejected: self.rejected.is_some(),
            },
        );
        let now = self.shared.index.now();
        if now < self.status_due {
            return;
        }
        let report = BindingReport {
            generation: binding.and_then(|binding| binding.generation).or(entry.object.metadata.generation),
            rejected: self.rejected.clone(),
            unreachable: self.unreachable.clone(),
            detached: match hook {
                HookState::Attached => None,
                HookState::Detached(why) => Some(why.clone()),
            },
            problem,
            wanted,
            present,
            drifted,
            held,
            replica: self.shared.replica.to_string(),
        };
        let before = self.written.as_ref().or(entry.object.status.as_ref());
        let status = report.status(before);
        if before == Some(&status) {
            return;
        }
        self.status_due = now + STATUS_INTERVAL;
        match status::write(&self.shared.client, &entry.object, &status).await {
            Ok(()) => self.written = Some(status),
            // It was deleted meanwhile.
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(binding = %self.key, %error, "could not write the status; trying again");
                self.status_due = now + Duration::from_secs(5);
            }
        }
    }
}
