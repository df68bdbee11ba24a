//! The API server of the simulation: stored pods, preconditions, admission, deletion with finalizers and grace, and
//! the
//! history that watches follow.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::deletion::hold::{DeletionAttempt, HoldFacts, HoldVerdict, NodeState, hold};
use podward_core::deletion::request::DeletionKind;
use podward_core::deletion::{DisruptionBudget, EvictionPod, EvictionRoom, eviction_room};

use super::fault::Fault;
use super::object::Object;
use super::webhooks::Replica;
use crate::model::whole_seconds;

/// The user of the lifecycle-controller.
pub(crate) const PODWARD: &str = "system:serviceaccount:podward-system:lifecycle-controller";
/// A node that has not been Ready for longer is lost.
pub(crate) const NODE_LIMIT: Duration = Duration::from_secs(60);

/// Why the API server does not carry out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 409: a precondition does not hold.
    Conflict,
    /// 404.
    NotFound,
    /// 403: a webhook denies the write.
    Denied,
    /// 429: the pod is held.
    Held,
    /// 429: the disruption budget has no room.
    NoRoom,
    /// 500: no replica of a webhook that fails closed is there.
    Down,
}

/// The preconditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Precondition {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<u64>,
}

impl Precondition {
    /// Exactly this version of this pod.
    pub(crate) fn exactly(seen: &Object) -> Self {
        Precondition { uid: Some(seen.uid.clone()), version: Some(seen.pod.version) }
    }

    fn holds_for(&self, stored: &Object) -> bool {
        self.uid.as_ref().is_none_or(|uid| *uid == stored.uid)
            && self.version.is_none_or(|version| version == stored.pod.version)
    }
}

/// One change of one pod. `None`: the pod is gone.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) stored: Option<Arc<Object>>,
}

#[derive(Debug)]
pub(crate) struct Server {
    pods: BTreeMap<&'static str, Arc<Object>>,
    pub(crate) history: Vec<Event>,
    pub(crate) replicas: Vec<Replica>,
    /// The state of the one node.
    pub(crate) node: NodeState,
    pub(crate) clock: i64,
    /// Whether the disruption budget has room.
    pub(crate) has_room: bool,
    /// All reservations in the disruption budget: the name of the pod, and the time. The last of each pod counts.
    reservations: RefCell<BTreeSet<(&'static str, UnixNanos)>>,
    pub(crate) fault: Option<Fault>,
    version: u64,
}

impl Server {
    pub(crate) fn new(fault: Option<Fault>) -> Self {
        Server {
            pods: BTreeMap::new(),
            history: Vec::new(),
            replicas: vec![Replica::default(), Replica::default()],
            node: NodeState::Ready,
            clock: 1_700_000_000_000_000_000,
            has_room: true,
            reservations: RefCell::default(),
            fault,
            version: 0,
        }
    }

    pub(crate) fn now(&self) -> UnixNanos {
        UnixNanos(self.clock)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Object>> {
        self.pods.get(name)
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.pods.values()
    }

    /// Creates a pod. Without a replica of the mutating webhook, creation fails: its policy is `Fail`.
    pub(crate) fn create(&mut self, mut object: Object) -> Result<(), Refusal> {
        if self.pods.contains_key(object.name) {
            return Err(Refusal::Conflict);
        }
        if !self.replicas.iter().any(|replica| replica.is_up) {
            return Err(Refusal::Down);
        }
        super::webhooks::admit_create(&mut object, self.now())?;
        self.version += 1;
        (object.uid, object.pod.version) = (format!("{}#{}", object.name, self.version), self.version);
        object.pod.times.created = Some(whole_seconds(self.now()));
        self.store(object);
        Ok(())
    }

    /// Changes a pod in the name of `user`, through the webhooks that concern the write.
    pub(crate) fn patch(
        &mut self,
        user: &str,
        name: &str,
        precondition: &Precondition,
        change: impl FnOnce(&mut Object),
    ) -> Result<Arc<Object>, Refusal> {
        let old = self.pods.get(name).ok_or(Refusal::NotFound)?.clone();
        if !precondition.holds_for(&old) {
            return Err(Refusal::Conflict);
        }
        let mut new = Object::clone(&old);
        change(&mut new);
        // The chart excludes the controller and kubelets. Updates fail open.
        let is_admitted = user != PODWARD && !user.starts_with("system:node:");
        if is_admitted && self.replicas.iter().any(|replica| replica.is_up) {
            super::webhooks::admit_update(&old, &mut new, user, self.now(), self.fault)?;
        }
        if new == *old {
            return Ok(old);
        }
        self.version += 1;
        new.pod.version = self.version;
        Ok(self.store(new))
    }

    /// Deletes a pod in the name of `user`. The chart excludes the controller from the webhook, which fails closed.
    pub(crate) fn delete(
        &mut self,
        user: &str,
        name: &str,
        precondition: &Precondition,
    ) -> Result<(), Refusal> {
        let pod = self.pods.get(name).ok_or(Refusal::NotFound)?.clone();
        if !precondition.holds_for(&pod) {
            return Err(Refusal::Conflict);
        }
        if user != PODWARD && !pod.pod.terminating && !pod.pod.finished {
            if !self.replicas.iter().any(|replica| replica.is_up) {
                return Err(Refusal::Down);
            }
            if self.is_held(&pod, DeletionKind::Delete, user) {
                return Err(Refusal::Held);
            }
        }
        self.begin_deletion(&pod);
        Ok(())
    }

    /// Evicts a pod. The review, the disruption budget and the delete are one step here; at a real API server, they
    /// are milliseconds apart, and no webhook can close that gap.
    pub(crate) fn evict(
        &mut self,
        user: &str,
        name: &'static str,
        precondition: &Precondition,
    ) -> Result<(), Refusal> {
        let pod = self.pods.get(name).ok_or(Refusal::NotFound)?.clone();
        if user != PODWARD {
            // The API server sends its reviews over one connection: callers that repeat reach the same replica.
            let now = self.now();
            let replica = &mut self.replicas[0];
            if !replica.is_up {
                return Err(Refusal::Down);
            }
            replica.target(&pod, user, precondition, now)?;
            if !pod.pod.terminating && self.is_held(&pod, DeletionKind::Evict, user) {
                self.replicas[0].remember(&pod, user, precondition, now);
                return Err(Refusal::Held);
            }
        }
        if !precondition.holds_for(&pod) {
            return Err(Refusal::Conflict);
        }
        if !self.has_room && !pod.pod.terminating {
            return Err(Refusal::NoRoom);
        }
        self.begin_deletion(&pod);
        Ok(())
    }

    /// Reserves room in the disruption budget, as the crate `deletion` does. Returns the time of the reservation; `None` if
    /// the pod takes no room now.
    pub(crate) fn reserve(&self, pod: &Object) -> Result<Option<UnixNanos>, Refusal> {
        let mut reservations = self.reservations.borrow_mut();
        let budget = DisruptionBudget {
            disruptions_allowed: i32::from(self.has_room),
            current_healthy: 1,
            desired_healthy: 1,
            disrupted_pods: reservations.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect(),
            ..DisruptionBudget::default()
        };
        let evicted = EvictionPod {
            name: pod.name,
            ready: pod.pod.ready,
            beyond_budgets: pod.pod.finished || pod.pod.terminating,
        };
        let since = match eviction_room(&[budget], &evicted, self.now()) {
            EvictionRoom::NotNeeded => None,
            EvictionRoom::Held(since) => Some(since),
            EvictionRoom::Take(taken) => {
                reservations.insert((pod.name, taken.at));
                Some(taken.at)
            }
            EvictionRoom::None(_) => return Err(Refusal::NoRoom),
        };
        Ok(if self.fault == Some(Fault::NotesNoRoomAsReserved) { Some(self.now()) } else { since })
    }

    pub(crate) fn has_reserved(&self, name: &'static str, at: UnixNanos) -> bool {
        self.reservations.borrow().contains(&(name, at))
    }

    /// The kubelet's last delete, without grace: the pod goes, or with its last finalizer.
    pub(crate) fn stop(&mut self, pod: &Object) {
        let gone = self.patch("system:node:n1", pod.name, &Precondition::default(), |pod| {
            (pod.is_stopped, pod.pod.ready, pod.pod.containers_ready) = (true, false, false);
        });
        debug_assert!(gone.is_ok());
    }

    fn is_held(&self, pod: &Object, kind: DeletionKind, user: &str) -> bool {
        let facts = HoldFacts {
            now: self.now(),
            node: self.node,
            unreachable_limit: NODE_LIMIT,
            namespace_terminating: false,
        };
        let attempt = DeletionAttempt { kind, user, dry_run: false };
        let mut reviewed = pod.to_pod();
        if self.fault == Some(Fault::WebhookIgnoresConsumers) {
            reviewed.metadata.finalizers = None;
        }
        let verdict = hold(&reviewed, &attempt, &facts);
        verdict == HoldVerdict::Hold && self.fault != Some(Fault::WebhookHoldsNothing)
    }

    fn begin_deletion(&mut self, pod: &Object) {
        if pod.pod.terminating {
            return;
        }
        let mut new = pod.clone();
        self.version += 1;
        (new.pod.version, new.pod.terminating) = (self.version, true);
        new.pod.times.terminating = Some(whole_seconds(self.now()));
        // Nothing of a finished pod has to be stopped.
        new.is_stopped = new.pod.finished;
        self.store(new);
    }

    /// Stores a version. The last finalizer of a stopped pod takes the pod with it.
    fn store(&mut self, new: Object) -> Arc<Object> {
        let (name, new) = (new.name, Arc::new(new));
        self.history.push(Event { name, stored: Some(new.clone()) });
        if new.pod.terminating && new.is_stopped && new.pod.finalizers.is_empty() {
            self.pods.remove(name);
            self.history.push(Event { name, stored: None });
        } else {
            self.pods.insert(name, new.clone());
        }
        new
    }
}
