//! The faults to cause, and what was counted.

use std::time::Duration;

use serde_json::Value;

use super::{ApiServer, Kind};

impl ApiServer {
    /// Removes the resource of PodTransitionRules.
    pub(in super::super) fn without_rules(self) -> Self {
        self.inner.lock().has_no_rules = true;
        self
    }

    pub(in super::super) fn fail_lists(&self, fails: bool) {
        self.inner.lock().fails_to_list = fails;
    }

    /// Makes the watch of PodTransitionRules deliver nothing.
    pub(in super::super) fn hold_watch(&self, holds: bool) {
        self.inner.lock().holds_watch = holds;
        self.changed.send_modify(|count| *count += 1);
    }

    pub(in super::super) fn status_writes(&self) -> Vec<Value> {
        self.inner.lock().status_writes.clone()
    }

    /// Returns the objects whose status a controller has written twice within a second.
    pub(in super::super) fn hasty_writes(&self) -> Vec<String> {
        self.inner.lock().hasty.clone()
    }

    /// Makes another writer change the rule object `name` just before a controller does, so many times.
    pub(in super::super) fn disturb(&self, name: &str, times: usize) {
        self.inner.lock().disturbed = (name.to_owned(), times);
    }

    /// Returns how many of these times are left.
    pub(in super::super) fn disturbances(&self) -> usize {
        self.inner.lock().disturbed.1
    }

    /// Denies the writes of the status of this rule object.
    pub(in super::super) fn deny_status(&self, name: Option<&str>) {
        self.inner.lock().denied = name.map(ToOwned::to_owned);
    }

    /// Returns how often such a write was denied.
    pub(in super::super) fn denials(&self) -> usize {
        self.inner.lock().denials
    }

    /// Deletes this rule object while its status is written next. The watch delivers that before the answer.
    pub(in super::super) fn delete_at_write(&self, name: &str) {
        self.inner.lock().vanishing = Some(name.to_owned());
    }

    /// Makes a list of pods that are not opted in take this long.
    pub(in super::super) fn delay_outside_lists(&self, delay: Duration) {
        self.inner.lock().outside_delay = delay;
    }

    /// Makes lists of pods that are not opted in fail.
    pub(in super::super) fn fail_outside_lists(&self, fails: bool) {
        self.inner.lock().fails_to_list_outside = fails;
    }

    /// Makes lists of pods that are not opted in wait for the end of this.
    pub(in super::super) fn hold_outside_lists(&self, holds: bool) {
        self.inner.lock().holds_outside_lists = holds;
        self.changed.send_modify(|count| *count += 1);
    }

    /// Makes a list of pods that are opted in take this long.
    pub(in super::super) fn delay_pod_lists(&self, delay: Duration) {
        self.inner.lock().pods_delay = delay;
    }

    /// Makes reads of owners fail.
    pub(in super::super) fn fail_owner_reads(&self, fails: bool) {
        self.inner.lock().fails_to_read_owners = fails;
    }

    /// Returns how many such reads have failed.
    pub(in super::super) fn failed_owner_reads(&self) -> usize {
        self.inner.lock().failed_owner_reads
    }

    /// Makes a write of a status take this long.
    pub(in super::super) fn delay_status_writes(&self, delay: Duration) {
        self.inner.lock().status_delay = delay;
    }

    /// Returns how many lists of pods that are not opted in have been requested.
    pub(in super::super) fn outside_lists(&self) -> usize {
        self.inner.lock().outside_lists
    }

    /// Returns how many lists of pods that are opted in have been requested.
    pub(in super::super) fn pod_lists(&self) -> usize {
        self.inner.lock().pod_lists
    }

    /// Returns how many lists of the PodTransitionRules of a namespace have been requested.
    pub(in super::super) fn rule_lists(&self) -> usize {
        self.inner.lock().rule_lists
    }

    /// Returns how many watches of PodTransitionRules have begun.
    pub(in super::super) fn rule_watches(&self) -> usize {
        self.inner.lock().rule_watches
    }

    /// Waits until the watch of rule objects has processed all of their events.
    pub(in super::super) async fn rules_followed(&self) {
        let is_behind = || {
            let inner = self.inner.lock();
            inner.log.iter().any(|(version, kind, ..)| *kind == Kind::Rules && *version > inner.rules_seen)
        };
        while is_behind() {
            tokio::task::yield_now().await;
        }
    }
}
