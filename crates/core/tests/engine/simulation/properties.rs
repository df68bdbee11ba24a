//! What must hold for every stored version and every deletion, judged by what really is: the sides of hooks, the
//! node,
//! who asked for what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use podward_core::deletion::request::DeletionKind;
use podward_core::hooks::{DeadlinePolicy, GateTiming, Hook, HookPhase, hook_finalizer};
use podward_core::keys::{BREAK_GLASS, DELETE_OPERATION, DELETION_REQUEST, SERVICE_AVAILABLE, Stage};
use podward_core::{ConditionStatus, Operations, UnixNanos};

use super::controller::EXCLUSIVE;
use super::hooks::Hooks;
use super::object::Object;
use super::server::{NODE_LIMIT, Server};
use crate::hook_model::Side;
use crate::model::CONSUMER;
use crate::safety;

/// One run of an operation: pod, id, the time at which it was begun, and its type.
type Run = (String, String, String, String);

#[derive(Debug, Default)]
pub(crate) struct Properties {
    /// How many events were checked.
    seen: usize,
    last: BTreeMap<&'static str, Arc<Object>>,
    /// When each pod left service for the present round of operations.
    out_since: BTreeMap<String, i64>,
    granted: BTreeSet<Run>,
    /// Who has asked for the deletion of which pod.
    asked_for: BTreeSet<(String, String)>,
}

impl Properties {
    pub(crate) fn asked_for(&mut self, user: &str, uid: &str) {
        self.asked_for.insert((user.to_owned(), uid.to_owned()));
    }

    /// Checks all versions that were stored since the last call.
    pub(crate) fn check(&mut self, server: &Server, hooks: &Hooks) -> Result<(), String> {
        while let Some(event) = server.history.get(self.seen) {
            self.seen += 1;
            let Some(new) = &event.stored else {
                self.last.remove(event.name);
                continue;
            };
            if !new.view().is_controlled() {
                // Operations are checked again when the pod opts in.
                self.granted.retain(|(uid, ..)| *uid != new.uid);
                // The opt-out removes the finalizers of hooks, which may use the pod all the same.
                if let Some(last) = self.last.get_mut(event.name) {
                    Arc::make_mut(last).pod.finalizers.clone_from(&new.pod.finalizers);
                }
                continue;
            }
            let old = self.last.insert(event.name, new.clone());
            let found = match &old {
                Some(old) => self.check_write(old, new, server, hooks),
                None => check_new(new),
            };
            found.map_err(|violation| {
                let old = old.map(|old| old.words()).unwrap_or_default();
                format!("{violation}\n  from {old}\n  to   {}", new.words())
            })?;
        }
        Ok(())
    }

    fn check_write(
        &mut self,
        old: &Object,
        new: &Object,
        server: &Server,
        hooks: &Hooks,
    ) -> Result<(), String> {
        if old.uid != new.uid {
            return Err("a pod turns into another one".to_owned());
        }
        safety::check(&old.pod, &new.pod)?;
        self.leaves_service(old, new);
        let proceeds = |hook: &Hook| {
            let out_since = self.out_since.get(&new.uid).copied().unwrap_or(server.clock);
            hook.deadline_policy == DeadlinePolicy::Proceed
                && server.clock - out_since >= hook.deadline_nanoseconds
        };
        let undrained = || {
            let mut drained = hooks.all.iter().filter(|hook| hook.takes_part_in(HookPhase::Prepare));
            // The containers of a finished pod never run again. Hooks are asked to forget it, and nobody waits for
            // them.
            drained
                .find(|hook| hooks.side(&new.uid, &hook.name) != Side::Out && !proceeds(hook))
                .filter(|_| !new.pod.finished)
        };
        let value = |stage: Stage, id: &str| new.pod.labels.get(&stage.key(id)).cloned().unwrap_or_default();
        // A run ends with its label, and when it is begun again or gets another type.
        self.granted.retain(|(uid, id, begun, of_type)| {
            *uid != new.uid
                || (value(Stage::Operating, id) == *begun && value(Stage::OperationType, id) == *of_type)
        });
        for (id, operation) in Operations::parse(&new.pod.labels).iter() {
            if operation.has(Stage::Operate) && !old.pod.has(Stage::Operate, id) {
                if let Some(hook) = undrained() {
                    return Err(format!("operate/{id} while traffic comes through {}", hook.name));
                }
                if !operation.has(Stage::Operating) {
                    return Err(format!("operate/{id} without an operator"));
                }
                let (begun, of_type) = (value(Stage::Operating, id), value(Stage::OperationType, id));
                if !self.granted.insert((new.uid.clone(), id.to_owned(), begun, of_type)) {
                    return Err(format!("operate/{id} is granted twice"));
                }
            }
        }
        let turned_on = new.pod.gate == Some(ConditionStatus::True) && old.pod.gate != new.pod.gate;
        if turned_on && new.view().stays_offline() {
            return Err("put into service although it is to stay offline".to_owned());
        }
        check_exclusive(new)?;
        if new.pod.terminating && !old.pod.terminating {
            check_deletion(old, server)?;
            if let Some(hook) = undrained().filter(|_| !is_exempt(old, server)) {
                return Err(format!("deleted while traffic comes through {}", hook.name));
            }
        }
        check_room(old, new, server)?;
        check_sides(old, new, hooks, &proceeds)?;
        check_ready(old, new)?;
        self.check_evidence(old, new)?;
        if new.notes.get(DELETION_REQUEST) != old.notes.get(DELETION_REQUEST)
            && let Some(request) = new.request()
        {
            let before = request.replaced_eviction.iter().map(|eviction| &eviction.requested_by);
            for user in std::iter::once(&request.requested_by).chain(before) {
                if !self.asked_for.contains(&(user.clone(), new.uid.clone())) {
                    return Err(format!("{user} did not ask for the deletion of {}", new.uid));
                }
            }
        }
        Ok(())
    }

    /// Notes when a round begins: the time of the first label that takes the pod out of service.
    fn leaves_service(&mut self, old: &Object, new: &Object) {
        if is_out(new) && !is_out(old) {
            let operations = Operations::parse(&new.pod.labels);
            let times = operations.iter().flat_map(|(id, _)| {
                [Stage::Preparing, Stage::Operate].map(|stage| new.pod.labels.get(&stage.key(id)))
            });
            let first = times.flatten().filter_map(|value| value.parse::<i64>().ok()).min();
            self.out_since.insert(new.uid.clone(), first.unwrap_or_default());
        }
    }

    /// The evidence on a pod out of service is of this pod and of this round.
    fn check_evidence(&self, old: &Object, new: &Object) -> Result<(), String> {
        if new.pod.evidence == old.pod.evidence && is_out(new) == is_out(old) {
            return Ok(());
        }
        let Some(text) = new.pod.evidence.as_deref().filter(|_| is_out(new)) else { return Ok(()) };
        let found: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let round = self.out_since.get(&new.uid).copied().unwrap_or_default();
        for (hook, entry) in found.as_object().into_iter().flatten() {
            let Some(detail) = entry["detail"].as_str().filter(|detail| detail.contains('#')) else {
                continue;
            };
            let (uid, since) = detail.split_once(' ').unwrap_or_default();
            if uid != new.uid || since.parse::<i64>().is_ok_and(|since| since < round) {
                return Err(format!("evidence of {hook} is of another round: {detail}, since {round}"));
            }
        }
        Ok(())
    }
}

fn is_out(object: &Object) -> bool {
    Operations::parse(&object.pod.labels).iter().any(|(_, operation)| {
        operation.has_any(&[Stage::Preparing, Stage::Operate])
            || (operation.has(Stage::Operated) && !operation.has(Stage::Completing))
    })
}

/// A new pod has nothing of an earlier one.
fn check_new(new: &Object) -> Result<(), String> {
    let pod = &new.pod;
    let operations = Operations::parse(&pod.labels);
    let is_clean = [&pod.evidence, &pod.asked, &pod.refused].into_iter().all(Option::is_none)
        && !new.notes.contains_key(DELETION_REQUEST)
        && !pod.labels.contains_key(SERVICE_AVAILABLE)
        && operations.iter().all(|(_, operation)| {
            Stage::OURS.iter().all(|stage| *stage == Stage::PreCheck || !operation.has(*stage))
        });
    if is_clean { Ok(()) } else { Err("a new pod has something of an earlier one".to_owned()) }
}

fn check_exclusive(new: &Object) -> Result<(), String> {
    let operations = Operations::parse(&new.pod.labels);
    // An operation whose type has changed has no permission until it is checked anew.
    let is_permitted = |known: &str| EXCLUSIVE.contains(&known) && operations.permits(known);
    let granted = operations.iter().filter(|(_, operation)| {
        operation.known_type().is_some_and(is_permitted)
            && operation.has(Stage::Operating)
            && operation.has_any(&[Stage::PreChecked, Stage::Operate])
    });
    if granted.count() > 1 { Err("two exclusive operations may start".to_owned()) } else { Ok(()) }
}

/// Returns whether a delete is let through as documented, although consumers use the pod.
fn is_exempt(pod: &Object, server: &Server) -> bool {
    pod.pod.finished
        || !pod.pod.has_gate
        || pod.notes.contains_key(BREAK_GLASS)
        || server.node.lost_in(NODE_LIMIT, server.now()).is_some_and(|left| left.is_zero())
}

/// Only a pod whose deletion has its permission, and that nobody uses, is deleted.
fn check_deletion(pod: &Object, server: &Server) -> Result<(), String> {
    if is_exempt(pod, server) {
        return Ok(());
    }
    if !pod.has_permission_to_delete() {
        return Err("deleted without a permission".to_owned());
    }
    if pod.pod.gate != Some(ConditionStatus::False) {
        return Err("deleted with the gate on".to_owned());
    }
    if pod.view().protection_finalizers().next().is_some() {
        return Err("deleted while a consumer holds it".to_owned());
    }
    Ok(())
}

/// A reservation that is noted in the request was made, and an evicted pod leaves service only with one.
fn check_room(old: &Object, new: &Object, server: &Server) -> Result<(), String> {
    let passes = |object: &Object| object.pod.has(Stage::PreChecked, DELETE_OPERATION);
    let leaves = passes(new) && !passes(old) && old.pod.ready;
    if !leaves && new.notes.get(DELETION_REQUEST) == old.notes.get(DELETION_REQUEST) {
        return Ok(());
    }
    let Some(request) = new.request().filter(|request| request.kind == DeletionKind::Evict) else {
        return Ok(());
    };
    match request.reserved_at {
        Some(at) if !server.has_reserved(new.name, UnixNanos(at)) => {
            Err(format!("{at} is noted as the time of a reservation"))
        }
        None if leaves => Err("evicted without room in the budget".to_owned()),
        _ => Ok(()),
    }
}

/// The write of a consumer puts the pod into service only if the kubelet has set Ready since the gate changed.
fn check_ready(old: &Object, new: &Object) -> Result<(), String> {
    let appears = |is_there: fn(&Object) -> bool| is_there(new) && !is_there(old);
    let is_available = appears(|object| object.pod.labels.contains_key(SERVICE_AVAILABLE));
    let is_by_consumer = appears(|object| object.pod.finalizers.iter().any(|name| name == CONSUMER));
    let is_old = new.pod.has_gate && new.pod.times.ready < new.pod.times.gate;
    if is_available && is_by_consumer && is_old {
        return Err("in service with a Ready that is older than the gate".to_owned());
    }
    Ok(())
}

/// The finalizer of a hook is removed only after the hook has released the pod, and the pod is in service only after all
/// hooks have added it.
fn check_sides(
    old: &Object,
    new: &Object,
    hooks: &Hooks,
    proceeds: &dyn Fn(&Hook) -> bool,
) -> Result<(), String> {
    let has_ended = new.pod.terminating || new.pod.finished;
    let available = |object: &Object| object.pod.labels.contains_key(SERVICE_AVAILABLE);
    let turned_on = new.pod.gate == Some(ConditionStatus::True) && old.pod.gate != new.pod.gate;
    for hook in &hooks.all {
        let side = hooks.side(&new.uid, &hook.name);
        let finalizer = hook_finalizer(&hook.name);
        let is_removed = old.pod.finalizers.contains(&finalizer) && !new.pod.finalizers.contains(&finalizer);
        let may_proceed = hook.deadline_policy == DeadlinePolicy::Proceed;
        let is_released = side == Side::Out
            || proceeds(hook)
            || (has_ended && (may_proceed || !hook.takes_part_in(HookPhase::Release)));
        if is_removed && !is_released {
            return Err(format!("the finalizer of {} was removed before it released the pod", hook.name));
        }
        let is_before = hook.complete_timing == GateTiming::BeforeGate;
        let is_needed = (turned_on && is_before) || (available(new) && !available(old));
        if is_needed && side != Side::In && !may_proceed {
            return Err(format!("in service without {}", hook.name));
        }
    }
    Ok(())
}
