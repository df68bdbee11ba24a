//! The end of a schedule: nothing is late or lost any more, and everybody does what there is to do. Then every
//! operation
//! and every deletion ends, and nobody writes any more.

use podward_core::keys::{Key, SERVICE_AVAILABLE, Stage};
use podward_core::{ConditionStatus, Operations, UnixNanos};

use super::hooks::Say;
use super::object::Object;
use super::steps::IDS;
use super::world::{PODS, World};
use crate::model::Blockable;

/// The most rounds until everything is at rest.
const ROUNDS: usize = 60;
const SECOND: i64 = 1_000_000_000;
/// More than a second, so that conditions of two rounds have different times.
const ROUND_TAKES: i64 = SECOND + SECOND / 20;

impl World {
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.end_perturbations()?;
        for _ in 0..ROUNDS {
            let before = self.server.history.len();
            let wake = self.round()?;
            let is_heard = self.answer();
            self.server.clock += ROUND_TAKES;
            if self.server.history.len() != before || is_heard || !self.records.is_empty() {
                continue;
            }
            if self.is_over() {
                return self.check_rest();
            }
            let Some(wake) = wake.filter(|wake| wake.0 > self.server.clock - 2 * SECOND) else {
                return Err(format!("stuck:{}", self.words()));
            };
            self.server.clock = self.server.clock.max(wake.0 + SECOND / 50);
        }
        Err(format!("does not come to rest:{}", self.words()))
    }

    fn end_perturbations(&mut self) -> Result<(), String> {
        self.server.replicas.iter_mut().for_each(|replica| replica.is_up = true);
        self.node(true);
        self.server.has_room = true;
        self.checks = Blockable::default();
        for replica in 0..2 {
            for request in std::mem::take(&mut self.controllers[replica].in_flight) {
                let _ = self.send(replica, request);
                self.check()?;
            }
        }
        PODS.iter().for_each(|name| self.stay_offline(name, false));
        self.lead(1, false);
        self.lead(0, true);
        if self.setup.restarts_at_end {
            self.restart(0, 0);
        }
        // What was lost is found with the next list.
        self.controllers[0].watch.list(&self.server.history, 0);
        self.traffic.list(&self.server.history, 0);
        self.hooks.drop_withdrawn();
        Ok(())
    }

    /// Everybody acts once. Returns when the controller looks again.
    fn round(&mut self) -> Result<Option<UnixNanos>, String> {
        for number in (0..self.callers.len()).rev() {
            let caller = &self.callers[number];
            match self.server.get(caller.name).filter(|pod| pod.uid == caller.uid) {
                Some(_) => self.repeat_call(number),
                None => drop(self.callers.remove(number)),
            }
            self.check()?;
        }
        for _ in 0..2 * self.records.len() {
            if !self.records.is_empty() {
                self.record(0);
                self.check()?;
            }
        }
        let mut wake = None;
        for name in PODS {
            self.server.clock += 1_000_000;
            self.create(name, false);
            self.operators(name);
            self.kubelet(name);
            self.remove_finished(name);
            self.traffic.follow(&self.server.history, usize::MAX);
            self.move_traffic(name, true);
            self.check()?;
            self.controllers[0].watch.follow(&self.server.history, usize::MAX);
            wake = [wake, self.reconcile(0, name)].into_iter().flatten().min();
            self.check()?;
        }
        Ok(wake)
    }

    /// Hooks answer all calls. Returns whether an answer has arrived.
    fn answer(&mut self) -> bool {
        for number in (0..self.hooks.calls()).rev() {
            self.hooks.work(number, Say::Done);
        }
        let is_heard = self.hooks.has_replies();
        while self.hooks.has_replies() {
            self.hear(0);
        }
        is_heard
    }

    /// Operators that have their permission do their work and finish.
    fn operators(&mut self, name: &'static str) {
        let Some(pod) = self.server.get(name).cloned() else { return };
        for id in IDS {
            if pod.pod.has(Stage::Operate, id) && pod.pod.has(Stage::Operating, id) {
                self.finish(name, id, false);
            }
        }
    }

    /// The garbage collector deletes pods that have finished; containers that do not run start again.
    fn remove_finished(&mut self, name: &'static str) {
        let Some(pod) = self.server.get(name).cloned() else { return };
        if pod.pod.finished && !pod.pod.terminating {
            let _ = self.server.delete("gc", name, &Default::default());
        } else if !pod.pod.containers_ready && !pod.pod.finished {
            self.change("system:node:n1", name, |object| {
                object.pod.containers_ready = !object.pod.terminating;
            });
        }
    }

    fn is_over(&self) -> bool {
        self.callers.is_empty() && self.server.pods().all(|pod| is_in_service(pod))
    }

    /// Nobody has anything to write, not even a process that has just started.
    fn check_rest(&mut self) -> Result<(), String> {
        self.restart(0, 0);
        self.server.clock += 5 * SECOND;
        let before = self.server.history.len();
        self.round()?;
        if self.server.history.len() != before {
            return Err(format!("writes at rest:{}", self.words()));
        }
        Ok(())
    }

    fn words(&self) -> String {
        let pods: Vec<String> = self.server.pods().map(|pod| format!("\n  {}", pod.words())).collect();
        format!("{}\n  {:?} {:?}", pods.concat(), self.callers, self.records)
    }
}

fn is_in_service(object: &Object) -> bool {
    let pod = &object.pod;
    // A type without an operation is not one, and stays.
    let is_type = |key: &&str| matches!(Key::parse(key), Key::Stage(Stage::OperationType, _));
    pod.protocol_labels().iter().filter(|key| !is_type(key)).eq([&SERVICE_AVAILABLE])
        && !pod.terminating
        && pod.refused.is_none()
        && object.request().is_none()
        && (!pod.has_gate || pod.gate == Some(ConditionStatus::True))
        && !Operations::parse(&pod.labels).any_live()
}
