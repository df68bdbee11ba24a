//! The comparison of a registry with the pods.

use podward_api::discovery_binding::BindingMode;
use podward_registries::ServiceKey;

use super::super::calls::OpenCall;
use super::super::comparison::compare;
use super::super::tracked::TrackedPod;
use super::steps::heartbeats;
use super::{BindingTask, UNREACHABLE_RETRY};
use crate::model::{Binding, Presence, found_again};
use crate::sync::RegistryAccess;

impl BindingTask {
    /// Compares the registry with the pods.
    pub(super) async fn compare(&mut self, binding: &Binding, access: &RegistryAccess) {
        let begin = self.shared.index.now();
        if !access.registry.can_read() {
            self.compared = Some(begin);
            self.comparison_due = begin + binding.interval;
            self.is_seen = true;
            return;
        }
        // This replica may not have seen these pods while the binding selected them.
        let of_call = |call: &OpenCall| self.service_of_untracked(binding, access, &call.pod.uid);
        let of_calls: Vec<ServiceKey> = self.calls.iter().filter_map(of_call).collect();
        self.services.extend(of_calls);
        // A registration may be stored after this comparison: its service is read again.
        let in_doubt = (begin < self.in_doubt_until).then(|| self.services.clone());
        let shown = self.shown_in_service();
        let mut heartbeats = heartbeats(&self.shared, binding, access);
        let (pods, services) = (&mut self.tracked, &mut self.services);
        let comparison = compare(access, binding, pods, services, begin, &mut heartbeats).await;
        self.services.extend(in_doubt.into_iter().flatten());
        self.report_missing(shown.saturating_sub(self.shown_in_service()), shown);
        self.record_heartbeats(heartbeats);
        let took = self.shared.index.now().saturating_sub(begin);
        self.shared.metrics.compared(took);
        self.unreachable = comparison.unreachable.first().cloned();
        self.is_seen |= comparison.unreachable.len() < access.addresses().len();
        if comparison.unreachable.is_empty() {
            if self.was_unreachable {
                self.tracked.values_mut().for_each(TrackedPod::retry_now);
            }
            self.was_unreachable = false;
            self.compared = Some(begin);
            self.comparison_due = begin + binding.interval;
        } else {
            self.was_unreachable = true;
            // The registry is compared soon after it answers again.
            self.comparison_due = self.shared.index.now() + UNREACHABLE_RETRY.min(binding.interval);
        }
        if binding.mode == BindingMode::Steer {
            // A list does not say which instance is that of a pod. An application that starts again may have registered itself as in
            // service.
            let out = self.tracked.values_mut().filter(|tracked| tracked.presence == Presence::OutOfService);
            out.for_each(TrackedPod::recheck);
        }
        let end = self.shared.index.now();
        for uid in comparison.settled {
            self.tracked.entry(uid).and_modify(|tracked| tracked.settle(end));
        }
        let moved = self.tracked.values().filter_map(|tracked| tracked.moved);
        if let Some(from) =
            moved.chain([self.finish_from, self.in_doubt_until]).filter(|from| *from > begin).min()
        {
            self.comparison_due = self.comparison_due.min(from);
        }
        self.orphans = found_again(&self.orphans, comparison.orphans);
        self.totals = comparison.totals;
        self.suspects = comparison.suspects;
        for problem in comparison.unreadable.difference(&self.unreadable) {
            tracing::warn!(binding = %self.key, problem, "an entry of the registry cannot be read");
        }
        self.unreadable = comparison.unreadable;
        tracing::debug!(binding = %self.key, took = ?took, orphans = self.orphans.len(), "compared");
    }
}
