//! What can happen, and how.

use podward_core::deletion::request::DeletionKind;
use podward_core::keys::BREAK_GLASS;

use super::controller::Request;
use super::hooks::Say;
use super::world::{PODS, World};
use crate::model::Blockable;

pub(crate) const IDS: [&str; 3] = ["a", "b", "c"];
pub(crate) const TYPES: [&str; 3] = ["update", "restart", "replace"];

/// One step. Numbers of replicas, pods and so on are indexes. A step that makes no sense does nothing, so that any
/// steps
/// can be left out of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    // The watches.
    Follow {
        replica: usize,
        events: usize,
    },
    Lose {
        replica: usize,
        events: usize,
    },
    List {
        replica: usize,
        age: usize,
    },
    // The processes.
    Restart {
        replica: usize,
        age: usize,
    },
    Lead {
        replica: usize,
        leads: bool,
    },
    Reconcile {
        replica: usize,
        pod: usize,
    },
    /// As `Reconcile`, but the request is on its way.
    Decide {
        replica: usize,
        pod: usize,
    },
    Land {
        replica: usize,
        request: usize,
    },
    /// The request lands, and its response is lost.
    LandUnheard {
        replica: usize,
        request: usize,
    },
    LoseRequest {
        replica: usize,
        request: usize,
    },
    // Hooks.
    Work {
        call: usize,
        say: Say,
    },
    Hear {
        reply: usize,
    },
    LoseReply {
        reply: usize,
    },
    // Operators.
    Begin {
        pod: usize,
        id: usize,
        of_type: usize,
    },
    Finish {
        pod: usize,
        id: usize,
        both: bool,
    },
    Undo {
        pod: usize,
        id: usize,
    },
    // Deletions.
    Call {
        pod: usize,
        evicts: bool,
        names_uid: bool,
    },
    Repeat {
        caller: usize,
    },
    Record {
        record: usize,
    },
    LabelForDeletion {
        pod: usize,
    },
    CancelDeletion {
        pod: usize,
    },
    BreakGlass {
        pod: usize,
    },
    /// Somebody who may update pods opts the pod out, writes labels that no webhook sees, and opts it in.
    Forge {
        pod: usize,
        id: usize,
    },
    StayOffline {
        pod: usize,
        stays: bool,
    },
    Create {
        pod: usize,
        is_copy: bool,
    },
    /// A pod that is being deleted ends, and its workload creates another one.
    Replace {
        pod: usize,
        is_copy: bool,
    },
    // The rest of the cluster.
    Kubelet {
        pod: usize,
    },
    Containers {
        pod: usize,
        are_ready: bool,
    },
    End {
        pod: usize,
    },
    FollowTraffic {
        events: usize,
    },
    Traffic {
        pod: usize,
        names_version: bool,
    },
    Webhook {
        replica: usize,
        is_up: bool,
    },
    Node {
        is_ready: bool,
    },
    Room {
        is_there: bool,
    },
    Checks {
        pre: bool,
        post: bool,
        refuses: bool,
    },
    Sleep {
        seconds: i64,
    },
}

impl World {
    /// Carries out a step, and checks what must hold.
    pub(crate) fn perform(&mut self, step: &Step) -> Result<(), String> {
        self.server.clock += if self.setup.is_fast { 1_000_000 } else { 1_050_000_000 };
        match *step {
            Step::Follow { replica, events } => {
                self.controllers[replica].watch.follow(&self.server.history, events);
            }
            Step::Lose { replica, events } => {
                self.controllers[replica].watch.lose(&self.server.history, events);
            }
            Step::List { replica, age } => self.list(replica, age),
            Step::Restart { replica, age } => self.restart(replica, age),
            Step::Lead { replica, leads } => self.lead(replica, leads),
            Step::Reconcile { replica, pod } => drop(self.reconcile(replica, PODS[pod])),
            Step::Decide { replica, pod } => {
                if let Some((request, _)) = self.decide(replica, PODS[pod]) {
                    self.controllers[replica].in_flight.push(request);
                }
            }
            Step::Land { replica, request } => {
                if let Some(request) = self.take_request(replica, request) {
                    // Refused: the controller sees it with the next event.
                    let _ = self.send(replica, request);
                }
            }
            Step::LandUnheard { replica, request } => {
                if let Some(request) = self.take_request(replica, request) {
                    let _ = self.carry_out(request);
                }
            }
            Step::LoseRequest { replica, request } => drop(self.take_request(replica, request)),
            Step::Work { call, say } => drop(self.hooks.work(call, say)),
            Step::Hear { reply } => self.hear(reply),
            Step::LoseReply { reply } => drop(self.hooks.take_reply(reply)),
            Step::Begin { pod, id, of_type } => self.begin(PODS[pod], IDS[id], TYPES[of_type]),
            Step::Finish { pod, id, both } => self.finish(PODS[pod], IDS[id], both),
            Step::Undo { pod, id } => self.undo(PODS[pod], IDS[id]),
            Step::Call { pod, evicts, names_uid } => {
                let kind = if evicts { DeletionKind::Evict } else { DeletionKind::Delete };
                self.call(PODS[pod], kind, names_uid);
            }
            Step::Repeat { caller } if !self.callers.is_empty() => {
                self.repeat_call(caller % self.callers.len());
            }
            Step::Record { record } if !self.records.is_empty() => self.record(record % self.records.len()),
            Step::Repeat { .. } | Step::Record { .. } => {}
            Step::LabelForDeletion { pod } => self.label_for_deletion(PODS[pod]),
            Step::CancelDeletion { pod } => self.cancel_deletion(PODS[pod]),
            Step::BreakGlass { pod } => self.change("admin", PODS[pod], |object| {
                object.annotate(BREAK_GLASS, Some("INC-7".to_owned()));
            }),
            Step::Forge { pod, id } => self.forge(PODS[pod], IDS[id]),
            Step::StayOffline { pod, stays } => self.stay_offline(PODS[pod], stays),
            Step::Create { pod, is_copy } => self.create(PODS[pod], is_copy),
            Step::Replace { pod, is_copy } => {
                self.end_of_deletion(PODS[pod]);
                self.create(PODS[pod], is_copy);
            }
            Step::Kubelet { pod } => self.kubelet(PODS[pod]),
            Step::Containers { pod, are_ready } => self.containers(PODS[pod], are_ready),
            Step::End { pod } => self.end(PODS[pod]),
            Step::FollowTraffic { events } => self.traffic.follow(&self.server.history, events),
            Step::Traffic { pod, names_version } => self.move_traffic(PODS[pod], names_version),
            Step::Webhook { replica, is_up } => self.server.replicas[replica].is_up = is_up,
            Step::Node { is_ready } => self.node(is_ready),
            Step::Room { is_there } => self.server.has_room = is_there,
            Step::Checks { pre, post, refuses } => self.checks = Blockable { pre, post, refuses },
            Step::Sleep { seconds } => self.server.clock += seconds * 1_000_000_000,
        }
        self.check()
    }

    fn take_request(&mut self, replica: usize, number: usize) -> Option<Request> {
        let in_flight = &mut self.controllers[replica].in_flight;
        if in_flight.is_empty() { None } else { Some(in_flight.remove(number % in_flight.len())) }
    }

    /// A replica believes that it leads, or does not any more: then it drops what it knows.
    pub(crate) fn lead(&mut self, replica: usize, leads: bool) {
        if self.controllers[replica].is_leading && !leads {
            self.restart(replica, 0);
        }
        if leads && self.setup.is_fast {
            self.lead(1 - replica, false);
        }
        self.controllers[replica].is_leading = leads;
    }

    pub(crate) fn hear(&mut self, number: usize) {
        let Some(reply) = self.hooks.take_reply(number) else { return };
        let controller = &mut self.controllers[reply.to.replica];
        if controller.process == reply.to {
            controller.answers.heard(reply);
        }
    }
}
