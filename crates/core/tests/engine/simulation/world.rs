//! Everything together: the API server, the controllers, the hooks, and the others who write.

use std::sync::Arc;

use podward_core::deletion::hold::REPEATED_WITHIN;
use podward_core::deletion::request::{DeletionIntent, DeletionKind, DeletionRequest, intent, join, record};
use podward_core::hooks::Hook;
use podward_core::keys::{self, CONTROL_LABEL, CONTROL_VALUE, Key};
use podward_core::{UnixNanos, with_next_steps};

use super::controller::{Controller, Request, What};
use super::fault::Fault;
use super::hooks::Hooks;
use super::object::Object;
use super::properties::Properties;
use super::server::{PODWARD, Precondition, Refusal, Server};
use super::watch::WatchCache;
use crate::model::{Blockable, EXPECTED, Model};

pub(crate) const PODS: [&str; 2] = ["web-0", "web-1"];

/// What differs from schedule to schedule besides the steps.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) hooks: Vec<Hook>,
    pub(crate) has_gate: bool,
    /// A traffic loop uses the pods.
    pub(crate) has_traffic: bool,
    /// Everything happens within seconds, which conditions cannot tell apart, and there is one leader: a hook would
    /// take
    /// the question of another one for a newer question. Otherwise every step takes longer than a second, leaders
    /// overlap, API servers are behind, and calls that were withdrawn arrive late.
    pub(crate) is_fast: bool,
    /// In the end, the leader starts again.
    pub(crate) restarts_at_end: bool,
}

/// Somebody who wants a pod to be deleted, and repeats the request until it is.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user: String,
    pub(crate) name: &'static str,
    pub(crate) uid: String,
    pub(crate) kind: DeletionKind,
    pub(crate) names_uid: bool,
    /// The API server has refused an eviction that the webhook allowed, because of a budget.
    is_refused: bool,
    /// The time of the last request.
    called_at: UnixNanos,
}

/// A deletion request that is being recorded.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    name: &'static str,
    uid: String,
    wanted: DeletionRequest,
    /// The version that was read.
    read: Option<Arc<Object>>,
}

pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) server: Server,
    pub(crate) hooks: Hooks,
    pub(crate) controllers: [Controller; 2],
    pub(crate) traffic: WatchCache,
    pub(crate) checks: Blockable,
    pub(crate) callers: Vec<Caller>,
    pub(crate) records: Vec<Record>,
    pub(crate) properties: Properties,
    /// How many processes and callers there were.
    pub(crate) count: usize,
}

impl World {
    pub(crate) fn new(setup: Setup, fault: Option<Fault>) -> Self {
        let mut world = World {
            server: Server::new(fault),
            hooks: Hooks::new(&setup.hooks, setup.is_fast),
            controllers: [Controller::new(0, 0), Controller::new(1, 0)],
            traffic: WatchCache::default(),
            checks: Blockable::default(),
            callers: Vec::new(),
            records: Vec::new(),
            properties: Properties::default(),
            count: 0,
            setup,
        };
        world.controllers[0].is_leading = true;
        PODS.into_iter().for_each(|name| world.create(name, false));
        world
    }

    pub(crate) fn now(&self) -> UnixNanos {
        self.server.now()
    }

    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.properties.check(&self.server, &self.hooks)
    }

    /// The workload's controller creates a pod, perhaps from the manifest of the one before.
    pub(crate) fn create(&mut self, name: &'static str, is_copy: bool) {
        if self.server.get(name).is_some() {
            return;
        }
        let mut pod = Model::created(self.setup.has_gate, self.setup.has_traffic).pod;
        pod.labels = [(CONTROL_LABEL, CONTROL_VALUE), ("app", "web")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        pod.finalizers.clear();
        pod.expected = self.setup.has_traffic.then(|| EXPECTED.to_owned());
        let mut earlier = self
            .server
            .history
            .iter()
            .rev()
            .filter(|event| event.name == name)
            .filter_map(|event| event.stored.as_ref());
        if let Some(earlier) = earlier.next().filter(|_| is_copy) {
            // An operation `pod-delete` without a request belongs to an operator that this simulation does not have.
            let ours = |key: &String| match Key::parse(key) {
                Key::Other => false,
                Key::Stage(_, id) => id != keys::DELETE_OPERATION,
                _ => true,
            };
            pod.labels.extend(earlier.pod.labels.clone().into_iter().filter(|(key, _)| ours(key)));
        }
        let (uid, notes) = (String::new(), Default::default());
        // Denied or without a webhook: tried again.
        let _ = self.server.create(Object { name, uid, pod, notes, is_stopped: false });
    }

    /// The process of a replica ends, and another one starts, at an API server that is `age` events behind.
    pub(crate) fn restart(&mut self, replica: usize, age: usize) {
        self.count += 1;
        let old = std::mem::replace(&mut self.controllers[replica], Controller::new(replica, self.count));
        self.hooks.ended(old.process);
        self.controllers[replica].is_leading = old.is_leading;
        self.list(replica, age);
    }

    /// A replica lists the pods anew, at an API server that is `age` events behind.
    pub(crate) fn list(&mut self, replica: usize, age: usize) {
        let age = if self.setup.is_fast { 0 } else { age };
        self.controllers[replica].watch.list(&self.server.history, age);
    }

    /// One reconciliation of a leader. After a conflict, the pod is read and reconciled once more. Returns when to
    /// look
    /// again.
    pub(crate) fn reconcile(&mut self, replica: usize, name: &'static str) -> Option<UnixNanos> {
        let (request, wake) = self.decide(replica, name)?;
        let seen = request.seen.clone();
        if self.send(replica, request) != Err(Refusal::Conflict) {
            return wake;
        }
        let newer = self.server.get(name).filter(|newer| newer.uid == seen.uid)?.clone();
        let controller = &mut self.controllers[replica];
        controller.observed(newer.clone());
        let (request, wake) = controller.decide(&newer, &self.server, &self.hooks, self.checks);
        let _ = self.send(replica, request);
        wake
    }

    /// The decision of a leader about a pod, which is not sent yet.
    pub(crate) fn decide(
        &mut self,
        replica: usize,
        name: &'static str,
    ) -> Option<(Request, Option<UnixNanos>)> {
        let controller = &mut self.controllers[replica];
        if !controller.is_leading {
            return None;
        }
        let pod = controller.newest(name, self.server.fault)?;
        Some(controller.decide(&pod, &self.server, &self.hooks, self.checks))
    }

    /// Sends a request of a controller, and follows up the response.
    pub(crate) fn send(&mut self, replica: usize, request: Request) -> Result<(), Refusal> {
        let questions = match &request.what {
            What::Delete(_) => None,
            What::Write(plan) => Some(plan.questions()),
        };
        let Some(stored) = self.carry_out(request)? else { return Ok(()) };
        let controller = &mut self.controllers[replica];
        controller.observed(stored.clone());
        let is_gone = stored.pod.terminating && stored.pod.finalizers.is_empty();
        if let Some(questions) = questions.filter(|_| !is_gone) {
            controller.answers.ask(&stored.uid, &questions);
            self.hooks.ask(controller.process, &stored.uid, &questions);
        }
        Ok(())
    }

    /// Carries out a request of a controller, without a follow-up. Returns the stored pod of a write.
    pub(crate) fn carry_out(&mut self, request: Request) -> Result<Option<Arc<Object>>, Refusal> {
        let Request { seen, what } = request;
        let mut precondition = Precondition::exactly(&seen);
        match what {
            What::Delete(kind) => {
                if self.server.fault == Some(Fault::DeletesByName) {
                    precondition = Precondition::default();
                }
                match kind {
                    DeletionKind::Delete => self.server.delete(PODWARD, seen.name, &precondition)?,
                    DeletionKind::Evict => self.server.evict(PODWARD, seen.name, &precondition)?,
                }
                Ok(None)
            }
            What::Write(plan) if plan.is_empty() => Ok(Some(seen)),
            What::Write(plan) => {
                if self.server.fault == Some(Fault::NoVersionPrecondition) {
                    precondition.version = None;
                }
                let stored = self.server.patch(PODWARD, seen.name, &precondition, |object| {
                    object.pod.carry(&plan);
                    object.pod.finalizers.sort();
                    object.pod.finalizers.dedup();
                    let known = |key: &str| object.pod.clone().annotate(key, None);
                    let notes: Vec<_> =
                        plan.annotations.iter().filter(|(key, _)| !known(key)).cloned().collect();
                    notes.into_iter().for_each(|(key, text)| object.annotate(key, text));
                })?;
                Ok(Some(stored))
            }
        }
    }

    /// A caller begins to ask for the deletion of the pod that is there now.
    pub(crate) fn call(&mut self, name: &'static str, kind: DeletionKind, names_uid: bool) {
        let Some(pod) = self.server.get(name) else { return };
        self.count += 1;
        let (user, uid) = (format!("user-{}", self.count), pod.uid.clone());
        self.properties.asked_for(&user, &uid);
        let called_at = self.now();
        self.callers.push(Caller { user, name, uid, kind, names_uid, is_refused: false, called_at });
        self.repeat_call(self.callers.len() - 1);
    }

    /// A caller asks once more, until the answer is success or that there is no such pod.
    pub(crate) fn repeat_call(&mut self, number: usize) {
        let caller = self.callers[number].clone();
        let Caller { user, name, kind, names_uid, is_refused, called_at, .. } = &caller;
        let now = self.now();
        self.callers[number].called_at = now;
        let uid = names_uid.then(|| caller.uid.clone());
        let precondition = Precondition { uid, version: None };
        let stored = self.server.get(name).map(|pod| pod.uid.clone());
        let is_new = *kind == DeletionKind::Delete || *is_refused || now.since(*called_at) >= REPEATED_WITHIN;
        if is_new
            && !names_uid
            && let Some(stored) = &stored
        {
            // A delete by name means whatever pod has the name. So does, as without Podward, an eviction that only
            // the
            // API server has refused, or that is not repeated in time: the webhook remembers those that it holds
            // itself,
            // for a while.
            self.properties.asked_for(user, stored);
        }
        let answer = match kind {
            DeletionKind::Delete => self.server.delete(user, name, &precondition),
            DeletionKind::Evict => self.server.evict(user, name, &precondition),
        };
        match (answer, stored) {
            (Err(Refusal::Held), Some(uid)) => {
                let wanted = DeletionRequest::new(*kind, user, self.now());
                self.records.push(Record { name, uid, wanted, read: None });
            }
            (Err(Refusal::NoRoom), _) => self.callers[number].is_refused = true,
            (Err(Refusal::Down), _) => {}
            _ => drop(self.callers.remove(number)),
        }
    }

    /// The next half of recording a request: the pod is read, or written.
    pub(crate) fn record(&mut self, number: usize) {
        let mut record = self.records.remove(number);
        let by_name = self.server.fault == Some(Fault::RecordsByName);
        let Some(pod) = record.read.take() else {
            let found = self.server.get(record.name);
            let found = found.filter(|pod| (by_name || pod.uid == record.uid) && !pod.pod.terminating);
            if let Some(pod) = found {
                record.read = Some(pod.clone());
                self.records.push(record);
            }
            return;
        };
        if self.write_record(&pod, &record.wanted) == Err(Refusal::Conflict) {
            self.records.push(record);
        }
    }

    fn write_record(&mut self, pod: &Arc<Object>, wanted: &DeletionRequest) -> Result<(), Refusal> {
        let now = self.now();
        let present = pod.request();
        let marks = pod.marks(present.as_ref());
        let changes = match (intent(&marks), &present) {
            (DeletionIntent::Underway | DeletionIntent::Postponed(_), Some(present)) => {
                match present.joined_by(wanted, false) {
                    Some(joined) => join(&marks, &joined, now),
                    None => return Ok(()),
                }
            }
            (DeletionIntent::Cancelled(_), _) => return Err(Refusal::NoRoom),
            _ => {
                let mut request = DeletionRequest { requested_at: now.0, ..wanted.clone() };
                if request.kind == DeletionKind::Evict {
                    request.reserved_at = self.server.reserve(pod)?.map(|since| since.0);
                }
                record(&pod.marks(None), request, false)
            }
        };
        let labels = with_next_steps(&pod.view(), &changes.labels, now);
        let written = self.server.patch(PODWARD, pod.name, &Precondition::exactly(pod), |object| {
            labels.apply(&mut object.pod.labels);
            changes.annotations.into_iter().for_each(|(key, text)| object.annotate(key, text));
        });
        written.map(drop)
    }

    /// Somebody changes the pod that is there now.
    pub(crate) fn change(&mut self, user: &str, name: &str, change: impl FnOnce(&mut Object)) {
        // Denied, or gone: the user sees it.
        let _ = self.server.patch(user, name, &Precondition::default(), change);
    }

    /// A user withdraws the deletion request.
    pub(crate) fn cancel_deletion(&mut self, name: &'static str) {
        self.change("user", name, |object| drop(object.pod.labels.remove(keys::TO_DELETE)));
        self.callers.retain(|caller| caller.name != name);
    }
}
