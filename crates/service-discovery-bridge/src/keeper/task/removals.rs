//! Removals without a reason on record, and their limit.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use podward_api::discovery_binding::{BindingMode, HeldRemovals};
use podward_registries::{Change, RegistryErrorKind, ServiceKey};
use sha2::{Digest, Sha256};

use super::super::tracked::{Fate, SyncState, TrackedPod};
use super::steps::heartbeats;
use super::{BindingTask, UNREACHABLE_RETRY};
use crate::model::{Binding, Demand, Orphan, OrphanState, Presence};
use crate::sync::RegistryAccess;

/// Why instances are removed for which there is no reason on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// Their pods are not ready, or their nodes are lost.
    NotReady,
    /// They belong to no pod that the binding selects.
    NoPod,
}

impl BindingTask {
    /// Returns the UIDs of the pods whose removal the limit holds: they are not ready, their nodes are lost, or the binding does
    /// not select them any more, and nobody operates on them.
    pub(super) fn hold_removals(&mut self, binding: &Binding, now: Duration) -> HashSet<String> {
        let mut wanted: BTreeMap<(ServiceKey, Why), Vec<String>> = BTreeMap::new();
        for (uid, tracked) in &self.tracked {
            let is_removal =
                matches!(tracked.presence, Presence::OutOfService | Presence::Absent | Presence::Released);
            let why = match tracked.pod.demand {
                Demand::NotReady | Demand::Lost => Why::NotReady,
                Demand::Left if !self.is_excused(binding, uid) => Why::NoPod,
                _ => continue,
            };
            if let Ok(service) = &tracked.service
                && is_removal
                && self.may_be_in_service(tracked)
                && tracked.is_due(now)
                && !tracked.was_tried()
            {
                wanted.entry((service.clone(), why)).or_default().push(uid.clone());
            }
        }
        self.held = None;
        let mut held = HashSet::new();
        for ((service, why), uids) in wanted {
            if !self.allow(binding, &service, why, &uids, now) {
                held.extend(uids);
            }
        }
        held
    }

    /// Returns whether there is a reason on record for the removal of an instance of a pod that is not selected any more.
    fn is_excused(&self, binding: &Binding, uid: &str) -> bool {
        binding.deleting || self.released.contains_key(uid)
    }

    /// Returns whether the limit allows removals without a reason on record. Otherwise notes that they are held.
    fn allow(
        &mut self,
        binding: &Binding,
        service: &ServiceKey,
        why: Why,
        uids: &[String],
        now: Duration,
    ) -> bool {
        let (total, id, limit) = (self.total(service), removal_id(uids.iter()), binding.removal_limit);
        if binding.released.as_ref() == Some(&id) || self.limit.allow(service, total, limit, uids.len(), now)
        {
            return true;
        }
        self.held.get_or_insert_with(|| {
            let (count, name) = (uids.len(), &service.name);
            let reason = match why {
                Why::NotReady => format!(
                    "{count} of {total} instances of service {name} are not ready at once, more than {limit} % within a minute; \
                     they stay in service until they are ready or somebody releases their removal"
                ),
                Why::NoPod => format!(
                    "{count} of {total} instances of service {name} belong to no pod that the binding selects, more than \
                     {limit} %; nobody saw these pods end, so the instances stay until somebody releases their removal"
                ),
            };
            HeldRemovals { id, count: u32::try_from(count).unwrap_or(u32::MAX), reason, since: None }
        });
        false
    }

    /// Removes instances of this binding that no pod should have.
    pub(super) async fn remove_orphans(&mut self, binding: &Binding, access: &RegistryAccess) {
        if binding.mode == BindingMode::Steer {
            return;
        }
        self.recheck_orphans(binding, access);
        let now = self.shared.index.now();
        let mut kept = Vec::new();
        let mut removed = Vec::new();
        let mut limited: BTreeMap<(ServiceKey, Why), Vec<Orphan>> = BTreeMap::new();
        for orphan in self.orphans.drain(..).collect::<Vec<_>>() {
            let tracked = self.tracked.get(&orphan.uid);
            let why =
                tracked.filter(|it| it.pod.demand != Demand::Left).map_or(Why::NoPod, |_| Why::NotReady);
            match (orphan.state, tracked.map_or(Fate::Limited, TrackedPod::fate)) {
                (OrphanState::Removed, _) | (_, Fate::Stays) => kept.push(orphan),
                (OrphanState::Found, Fate::Limited)
                    if why == Why::NotReady || !self.is_excused(binding, &orphan.uid) =>
                {
                    limited.entry((orphan.service.clone(), why)).or_default().push(orphan);
                }
                _ => removed.push(orphan),
            }
        }
        for ((service, why), orphans) in limited {
            let uids: Vec<String> = orphans.iter().map(|orphan| orphan.uid.clone()).collect();
            match self.allow(binding, &service, why, &uids, now) {
                true => removed.extend(orphans),
                false => kept.extend(orphans),
            }
        }
        self.orphans = kept;
        if now < self.removal_due {
            let allowed = |orphan| Orphan { state: OrphanState::Allowed, ..orphan };
            self.orphans.extend(removed.into_iter().map(allowed));
        } else if !removed.is_empty() {
            self.deregister(removed, binding, access).await;
        }
        if !access.registry.can_read() {
            self.settle_unread();
        }
    }

    /// Drops orphans that are none any more: what the index knows may be newer than the comparison.
    fn recheck_orphans(&mut self, binding: &Binding, access: &RegistryAccess) {
        let (index, namespace) = (&self.shared.index, &self.key.namespace);
        self.orphans.retain(|orphan| match self.tracked.get(&orphan.uid) {
            Some(tracked) => tracked
                .desired(binding, access)
                .is_none_or(|desired| !access.is_same(desired.target(), (&orphan.service, &orphan.instance))),
            None => index.pod(namespace, &orphan.uid).is_none_or(|pod| !binding.selects(&pod)),
        });
        if self.orphans.is_empty() {
            self.removal_problem = None;
        }
    }

    /// Deregisters orphans. They are kept until a comparison does not find them; if the registry cannot be read, until it has
    /// accepted the change.
    async fn deregister(&mut self, removed: Vec<Orphan>, binding: &Binding, access: &RegistryAccess) {
        let (mut deregistered, mut problem) = (0, None);
        let written = async {
            let mut results = Vec::new();
            for chunk in removed.chunks(access.capabilities.batch.max(1)) {
                if self.fence.is_ended() {
                    break;
                }
                let change =
                    |orphan: &Orphan| Change::Deregister(orphan.service.clone(), orphan.instance.clone());
                let changes: Vec<Change> = chunk.iter().map(change).collect();
                results.extend(access.registry.write(&changes).await);
            }
            results
        };
        let mut heartbeats = heartbeats(&self.shared, binding, access);
        let results = heartbeats.during(written, &self.tracked).await;
        self.record_heartbeats(heartbeats);
        for (orphan, result) in removed.iter().zip(results) {
            let state = match result {
                Ok(()) => {
                    deregistered += usize::from(!self.tracked.contains_key(&orphan.uid));
                    tracing::info!(
                        binding = %self.key,
                        instance = orphan.instance.id,
                        service = orphan.service.name,
                        "deregistered an instance that no pod of the binding should have"
                    );
                    OrphanState::Removed
                }
                // It has changed, for example because the other instance of its pod has replaced it.
                Err(error)
                    if (error.kind, orphan.state) == (RegistryErrorKind::Conflict, OrphanState::Found)
                        && access.registry.can_read() =>
                {
                    OrphanState::Removed
                }
                Err(error) => {
                    access.note(&error);
                    tracing::warn!(binding = %self.key, %error, "could not deregister an instance; trying again");
                    problem.get_or_insert_with(|| error.to_string());
                    OrphanState::Allowed
                }
            };
            if state != OrphanState::Removed || access.registry.can_read() {
                self.orphans.push(Orphan { state, ..orphan.clone() });
            }
        }
        if let Some(events) = &mut self.reported.binding {
            events.removed(deregistered);
        }
        let now = self.shared.index.now();
        // Read back, or try again.
        let due = match &problem {
            Some(_) => now + UNREACHABLE_RETRY,
            None => now + Duration::from_millis(200) + access.capabilities.list_lag,
        };
        self.removal_due = if problem.is_some() { due } else { now };
        self.comparison_due = self.comparison_due.min(due);
        self.removal_problem = problem;
    }

    /// Ends the moves of pods whose earlier instances were deregistered from a registry that cannot be read.
    fn settle_unread(&mut self) {
        let now = self.shared.index.now();
        let open: HashSet<&String> = self.orphans.iter().map(|orphan| &orphan.uid).collect();
        for (uid, tracked) in &mut self.tracked {
            if tracked.moved.is_some() && !open.contains(uid) {
                tracked.settle(now);
            }
        }
    }

    /// Returns whether the registry may show the instance of a pod in service. Before the first comparison it may show each of
    /// which it is not known.
    pub(super) fn may_be_in_service(&self, tracked: &TrackedPod) -> bool {
        tracked.is_in_service || (!self.is_seen && !matches!(tracked.state, SyncState::Shown { .. }))
    }

    /// Returns the number of instances of a service that are in service.
    fn total(&self, service: &ServiceKey) -> usize {
        let tracked = self
            .tracked
            .values()
            .filter(|tracked| self.may_be_in_service(tracked) && tracked.service.as_ref() == Ok(service));
        tracked.count().max(self.totals.get(service).copied().unwrap_or_default())
    }
}

/// Identifies a set of removals.
fn removal_id<'u>(uids: impl Iterator<Item = &'u String>) -> String {
    let sorted: BTreeSet<&String> = uids.collect();
    let mut digest = Sha256::new();
    for uid in sorted {
        digest.update(uid);
        digest.update([0]);
    }
    digest.finalize().iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}
