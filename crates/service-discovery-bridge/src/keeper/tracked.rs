//! What is known about a pod of a binding.

use std::sync::Arc;
use std::time::Duration;

use podward_api::discovery_binding::BindingMode;
use podward_registries::ServiceKey;

use crate::model::{Binding, BoundPod, Demand, Desired, Presence, ShownAt, StaleList, presence};
use crate::sync::{Outcome, RegistryAccess, Task};

/// The shortest and the longest pause before a failed change is tried again. All are tried again at once when a comparison
/// finds that every address answers again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Why questions wait for a registration that is in doubt.
pub(crate) const IN_DOUBT: &str = "the result of an earlier registration is not known, and it may still take effect; the registry \
     is looked at again when that time has passed";

/// A change that was made this number of times and is not shown is a problem.
const LATE: u32 = 3;

/// A pod of a binding, and what its registry shows of it.
#[derive(Debug)]
pub(crate) struct TrackedPod {
    pub(crate) pod: Arc<BoundPod>,
    /// True once the hook was asked to add the pod to traffic, until it leaves.
    pub(crate) asked: bool,
    pub(crate) presence: Presence,
    /// The service of its instance. An error is a text for people: why it has none.
    pub(crate) service: Result<ServiceKey, String>,
    /// The pod as it was when it last had all that the binding names. While it ends it lacks some, such as its address.
    described: Arc<BoundPod>,
    /// The [fingerprint](Desired::fingerprint) of its instance.
    fingerprint: u64,
    pub(crate) state: SyncState,
    /// Set while the registry may have another instance of the pod: one that it has left for another service, id or address.
    /// A comparison that begins at this time or later finds it.
    pub(crate) moved: Option<Duration>,
    /// What the last comparison could not read, and may be an instance that the pod has left.
    pub(crate) unreadable: Option<String>,
    /// True if the registry has shown the instance in service since it last showed it out of service.
    pub(crate) is_in_service: bool,
    /// Until when a registration whose result is not known may still take effect. Zero if there is none.
    pub(crate) in_doubt_until: Duration,
    /// When the registration was renewed last.
    pub(crate) renewed: Option<Duration>,
    /// The number of the last call to the registry that was reported in a trace.
    pub(crate) reported_calls: u64,
}

/// Whether the registry shows what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SyncState {
    /// It is not known, or it does not. The next attempt is at `due`.
    Open { due: Duration, failures: u32, problem: Option<String> },
    /// It does. It was read last at `checked`, and is to be read again if `recheck` is true.
    Shown { at: ShownAt, checked: Duration, drifted: bool, recheck: bool },
}

/// What is to become of an instance that its pod has left for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It stays until the pod has the other one.
    Stays,
    /// It is removed.
    Goes,
    /// It is removed within the removal limit: the pod should have none, and nobody has asked for that.
    Limited,
}

impl SyncState {
    pub(crate) const NEW: SyncState = SyncState::Open { due: Duration::ZERO, failures: 0, problem: None };
}

impl TrackedPod {
    pub(crate) fn new(pod: Arc<BoundPod>, binding: &Binding, access: &RegistryAccess) -> Self {
        let mut tracked = Self {
            described: Arc::clone(&pod),
            pod,
            asked: false,
            presence: Presence::Unchanged,
            service: Err(String::new()),
            fingerprint: 0,
            state: SyncState::NEW,
            moved: None,
            unreadable: None,
            is_in_service: false,
            in_doubt_until: Duration::ZERO,
            renewed: None,
            reported_calls: 0,
        };
        tracked.update(None, binding, binding, access);
        tracked
    }

    /// Computes what the registry should show again. `pod` is the pod if it has changed, and `before` the binding as it was at
    /// the last call. Returns the instance that the pod had if it leaves it: for another one, or because it cannot have one.
    pub(crate) fn update(
        &mut self,
        pod: Option<Arc<BoundPod>>,
        before: &Binding,
        binding: &Binding,
        access: &RegistryAccess,
    ) -> Option<Desired> {
        if let Some(pod) = pod {
            self.pod = pod;
        }
        if !matches!(self.pod.demand, Demand::InService | Demand::NotReady) {
            self.asked = false;
        }
        let stores = access.registry.can_take_out_of_service();
        let wanted = presence(binding, &self.pod, self.asked, stores);
        let described = Arc::clone(&self.described);
        let desired = match binding.desired(&self.pod, &access.cluster) {
            Err(_) if wanted != Presence::InService && self.service.is_ok() => {
                binding.desired(&self.described, &access.cluster)
            }
            desired => {
                self.described = Arc::clone(&self.pod);
                desired
            }
        };
        let fingerprint = desired.as_ref().map_or(0, Desired::fingerprint);
        let is_other =
            fingerprint != self.fingerprint && self.service.is_ok() && binding.mode == BindingMode::Own;
        let had = is_other.then(|| before.desired(&described, &access.cluster).ok()).flatten();
        let left =
            had.filter(|had| !desired.as_ref().is_ok_and(|now| access.is_same(had.target(), now.target())));
        let service = desired.map(|desired| desired.service);
        if (wanted, fingerprint, &service) != (self.presence, self.fingerprint, &self.service) {
            (self.presence, self.fingerprint, self.service) = (wanted, fingerprint, service);
            self.state = SyncState::NEW;
        }
        self.is_in_service &= left.is_none();
        left
    }

    /// Returns the instance while it is in service. `None` if [`service`](Self::service) says why there is none. It is not
    /// stored, because there may be many pods.
    pub(crate) fn desired(&self, binding: &Binding, access: &RegistryAccess) -> Option<Desired> {
        self.service.as_ref().ok()?;
        binding.desired(&self.described, &access.cluster).ok()
    }

    /// Returns the task that brings the registry into the wanted state. `None` if there is nothing to do.
    pub(crate) fn task(&self, binding: &Binding, access: &RegistryAccess) -> Option<Task> {
        if self.presence == Presence::Unchanged {
            return None;
        }
        let desired = self.desired(binding, access)?;
        let removes = !self.presence.adds();
        let is_recheck = matches!(self.state, SyncState::Shown { recheck: true, .. });
        let lists = removes && is_recheck && !access.cache_waits(binding).list_lag.is_zero();
        let (mode, policy) = (binding.mode, binding.foreign_changes);
        Some(Task { presence: self.presence, desired, mode, policy, lists })
    }

    /// Returns whether the next attempt is due at `now`.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let due = match self.state {
            SyncState::Open { due, .. } => due <= now,
            SyncState::Shown { recheck, .. } => recheck,
        };
        due && self.presence != Presence::Unchanged && self.service.is_ok()
    }

    /// Returns whether the wanted state was tried before, and is not shown yet.
    pub(crate) fn was_tried(&self) -> bool {
        matches!(self.state, SyncState::Open { failures: 1.., .. })
    }

    /// Records at `now` that the instance that was to be removed belongs to another pod or binding by now.
    pub(crate) fn leave_to_other(&mut self, now: Duration) {
        let shown = Outcome::Shown { unreachable: Vec::new(), drifted: false, written: false };
        self.record(shown, self.in_doubt_until, now);
    }

    /// Records at `now` the outcome of a task that began at `begin`.
    pub(crate) fn record(&mut self, outcome: Outcome, begin: Duration, now: Duration) {
        let failures = match &self.state {
            SyncState::Open { failures, .. } => *failures,
            SyncState::Shown { .. } => 0,
        };
        let is_shown = matches!(outcome, Outcome::Shown { .. });
        if is_shown && !self.presence.adds() && begin < self.in_doubt_until {
            let (due, problem) = (self.in_doubt_until, Some(IN_DOUBT.to_owned()));
            self.state = SyncState::Open { due, failures: failures + 1, problem };
            return;
        }
        if is_shown && self.presence != Presence::Unchanged {
            self.is_in_service = self.presence == Presence::InService;
        }
        self.state = match outcome {
            Outcome::Shown { unreachable, drifted, written } => {
                let (since, stale_list) = match &self.state {
                    SyncState::Shown { at, .. } if !written => (at.since, at.stale_list.clone()),
                    _ => (now, None),
                };
                let at = ShownAt { since, unreachable, stale_list };
                SyncState::Shown { at, checked: now, drifted, recheck: false }
            }
            Outcome::InStaleList(problem) => {
                let since = match &self.state {
                    SyncState::Shown { at, .. } => at.since,
                    SyncState::Open { .. } => now,
                };
                let stale_list = Some(StaleList { at: now, problem });
                let at = ShownAt { since, unreachable: Vec::new(), stale_list };
                SyncState::Shown { at, checked: now, drifted: false, recheck: false }
            }
            Outcome::Written(lag, problem) => SyncState::Open {
                due: now + lag,
                failures: failures + 1,
                problem: (failures >= LATE).then_some(problem),
            },
            Outcome::Waits(problem) | Outcome::Failed(problem) => {
                let pause = RETRY.0.saturating_mul(1 << failures.min(10)).min(RETRY.1);
                SyncState::Open { due: now + pause, failures: failures + 1, problem: Some(problem) }
            }
        };
    }

    /// Makes the next attempt due at once: the registry does not show what it should any more.
    pub(crate) fn reopen(&mut self) {
        self.state = SyncState::NEW;
    }

    /// Makes the next attempt due at once, if the last one failed.
    pub(crate) fn retry_now(&mut self) {
        if let SyncState::Open { due, failures, .. } = &mut self.state {
            (*due, *failures) = (Duration::ZERO, 0);
        }
    }

    /// Returns what is to become of an instance that the pod has left.
    pub(crate) fn fate(&self) -> Fate {
        match (self.presence, self.pod.demand) {
            (_, Demand::Gone) => Fate::Goes,
            _ if self.service.is_err() => Fate::Stays,
            (Presence::Unchanged, _) => Fate::Stays,
            (Presence::InService, _) if matches!(self.state, SyncState::Shown { .. }) => Fate::Goes,
            (Presence::InService, _) => Fate::Stays,
            (_, Demand::NotReady | Demand::Lost | Demand::Left) => Fate::Limited,
            _ => Fate::Goes,
        }
    }

    /// Records at `now` that the registry has no instance of the pod but the one that it should have.
    pub(crate) fn settle(&mut self, now: Duration) {
        self.moved = None;
        if let SyncState::Shown { at, .. } = &mut self.state {
            at.since = at.since.max(now);
        }
    }

    /// Has the registry read again.
    pub(crate) fn recheck(&mut self) {
        if let SyncState::Shown { recheck, .. } = &mut self.state {
            *recheck = true;
        }
    }

    /// Returns when the next attempt is due. `None` if there is none.
    pub(crate) fn next_attempt(&self) -> Option<Duration> {
        match self.state {
            SyncState::Open { due, .. } if self.presence != Presence::Unchanged && self.service.is_ok() => {
                Some(due)
            }
            SyncState::Shown { recheck: true, .. } => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Returns why the registry does not show what it should.
    pub(crate) fn problem(&self) -> Option<&str> {
        match (&self.service, &self.state) {
            (Err(problem), _) => Some(problem),
            (Ok(_), SyncState::Open { problem, .. }) => problem.as_deref(),
            (Ok(_), SyncState::Shown { .. }) => self.unreadable.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use podward_api::registry_connection::{RegistryConnection, RegistryKind};
    use serde_json::json;

    use super::*;
    use crate::model::tests::{binding, pod};
    use crate::sync::tests::recorded;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn access() -> RegistryAccess {
        let connection = RegistryConnection { kind: RegistryKind::Nacos, ..Default::default() };
        RegistryAccess::new(Arc::new(recorded("").0), &connection, Arc::from("c"), None)
    }

    fn shown() -> Outcome {
        Outcome::Shown { unreachable: Vec::new(), drifted: false, written: false }
    }

    #[test]
    fn a_registration_in_doubt_holds_removals_that_were_read_before_it_is_over() {
        let (binding, access) = (binding(json!({})), access());
        let mut tracked = TrackedPod::new(Arc::new(pod("u")), &binding, &access);
        tracked.in_doubt_until = at(15_000);
        tracked.record(shown(), at(5000), at(5100));
        assert!(matches!(tracked.state, SyncState::Shown { .. }), "an addition");
        let drained = BoundPod { demand: Demand::OutForDelete, ..pod("u") };
        tracked.update(Some(Arc::new(drained)), &binding, &binding, &access);
        tracked.record(shown(), at(14_900), at(15_100));
        assert!(tracked.problem().is_some_and(|problem| problem.contains("may still take effect")));
        assert!(!tracked.is_due(at(14_999)) && tracked.is_due(at(15_000)));
        tracked.record(shown(), at(15_000), at(15_100));
        assert!(matches!(tracked.state, SyncState::Shown { .. }));
    }

    #[test]
    fn a_change_is_read_back_when_the_registry_can_show_it() {
        let mut tracked = TrackedPod::new(Arc::new(pod("u")), &binding(json!({})), &access());
        assert!(tracked.presence == Presence::InService && tracked.is_due(at(0)) && !tracked.was_tried());
        let written = || Outcome::Written(at(1000), "late".to_owned());
        tracked.record(written(), at(4900), at(5000));
        assert!(!tracked.is_due(at(5999)) && tracked.is_due(at(6000)) && tracked.was_tried());
        assert_eq!(tracked.problem(), None);
        for _ in 0..3 {
            tracked.record(written(), at(6000), at(6000));
        }
        assert_eq!(tracked.problem(), Some("late"), "it was made four times, and is not shown");
        tracked.record(shown(), at(8900), at(9000));
        let SyncState::Shown { at: shown, .. } = &tracked.state else { panic!("{tracked:?}") };
        assert!(shown.since == at(9000) && tracked.is_in_service && !tracked.was_tried());
    }

    #[test]
    fn a_pod_that_ends_has_the_address_that_it_had() {
        let (binding, access) = (binding(json!({})), access());
        let mut tracked = TrackedPod::new(Arc::new(pod("u")), &binding, &access);
        let before = tracked.desired(&binding, &access);
        let ended = BoundPod { ip: String::new(), demand: Demand::Gone, ..pod("u") };
        assert_eq!(tracked.update(Some(Arc::new(ended)), &binding, &binding, &access), None);
        assert_eq!(tracked.presence, Presence::Released);
        assert!(before.is_some() && tracked.desired(&binding, &access) == before);

        let starting = BoundPod { ip: String::new(), ..pod("v") };
        let starting = TrackedPod::new(Arc::new(starting), &binding, &access);
        assert_eq!(starting.problem(), Some("pod web-0 has no address yet"));
        assert_eq!(starting.desired(&binding, &access), None);
    }
}
