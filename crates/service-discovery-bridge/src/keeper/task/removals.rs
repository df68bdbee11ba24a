//! Removals without a reason on record, and their limit.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use podward_api::discovery_binding::{BindingMode, HeldRemovals};
use podward_registries::{Change, ServiceKey};
use sha2::{Digest, Sha256};

use super::BindingTask;
use crate::model::{Binding, Demand, Orphan, Presence};
use crate::sync::RegistryAccess;

impl BindingTask {
    /// Returns the UIDs of the pods whose removal the limit holds: they are not ready, or their nodes are lost, and nobody
    /// operates on them.
    pub(super) fn hold_removals(&mut self, binding: &Binding, now: Duration) -> HashSet<String> {
        let mut wanted: BTreeMap<ServiceKey, Vec<String>> = BTreeMap::new();
        for (uid, tracked) in &self.tracked {
            let is_removal =
                matches!(tracked.presence, Presence::OutOfService | Presence::Absent | Presence::Released);
            if let Ok(service) = &tracked.service
                && is_removal
                && matches!(tracked.pod.demand, Demand::NotReady | Demand::Lost)
                && tracked.is_in_service
                && tracked.is_due(now)
                && !tracked.was_tried()
            {
                wanted.entry(service.clone()).or_default().push(uid.clone());
            }
        }
        let mut held = HashSet::new();
        let mut reasons = Vec::new();
        for (service, uids) in wanted {
            let total = self.total(&service);
            let id = removal_id(uids.iter());
            if binding.released.as_ref() == Some(&id)
                || self.limit.allow(&service, total, binding.removal_limit, uids.len(), now)
            {
                continue;
            }
            reasons.push((id, uids.len(), format!(
                "{} of {total} instances of service {} are not ready at once, more than {} % within a minute; they stay in \
                 service until they are ready or somebody releases their removal",
                uids.len(), service.name, binding.removal_limit
            )));
            held.extend(uids);
        }
        self.held = reasons.into_iter().next().map(held_removals);
        held
    }

    /// Removes instances of this binding that belong to none of its pods.
    pub(super) async fn remove_orphans(&mut self, binding: &Binding, access: &RegistryAccess) {
        if binding.mode == BindingMode::Steer || self.orphans.is_empty() {
            return;
        }
        // What the index knows may be newer than the comparison.
        let (index, namespace) = (&self.shared.index, &self.key.namespace);
        self.orphans.retain(|orphan| {
            let pod = index.pod(namespace, &orphan.uid);
            pod.is_none_or(|pod| !binding.selects(&pod))
        });
        let now = index.now();
        let mut by_service: BTreeMap<ServiceKey, Vec<Orphan>> = BTreeMap::new();
        for orphan in self.orphans.drain(..) {
            by_service.entry(orphan.service.clone()).or_default().push(orphan);
        }
        let mut removed = Vec::new();
        let mut kept = Vec::new();
        for (service, orphans) in by_service {
            let excused = |orphan: &Orphan| binding.deleting || self.released.contains_key(&orphan.uid);
            let (mut allowed, rest): (Vec<Orphan>, Vec<Orphan>) = orphans.into_iter().partition(excused);
            if !rest.is_empty() {
                let total = self.total(&service);
                let id = removal_id(rest.iter().map(|orphan| &orphan.uid));
                if binding.released.as_ref() == Some(&id)
                    || self.limit.allow(&service, total, binding.removal_limit, rest.len(), now)
                {
                    allowed.extend(rest);
                } else {
                    let count = rest.len();
                    let reason = || {
                        format!(
                            "{count} of {total} instances of service {} belong to no pod that the binding selects, more than \
                             {} %; nobody saw these pods end, so the instances stay until somebody releases their removal",
                            service.name, binding.removal_limit
                        )
                    };
                    self.held.get_or_insert_with(|| held_removals((id, count, reason())));
                    kept.extend(rest);
                }
            }
            removed.extend(allowed);
        }
        self.orphans = kept;
        if removed.is_empty() {
            return;
        }
        let mut deregistered = 0;
        for chunk in removed.chunks(access.capabilities.batch.max(1)) {
            let changes: Vec<Change> = chunk
                .iter()
                .map(|orphan| Change::Deregister(orphan.service.clone(), orphan.instance.clone()))
                .collect();
            for (orphan, result) in chunk.iter().zip(access.registry.write(&changes).await) {
                match result {
                    Ok(()) => {
                        deregistered += 1;
                        tracing::info!(
                            binding = %self.key,
                            instance = orphan.instance.id,
                            service = orphan.service.name,
                            "deregistered an instance that belongs to no pod of the binding"
                        );
                    }
                    Err(error) => {
                        tracing::warn!(binding = %self.key, %error, "could not deregister an instance")
                    }
                }
            }
        }
        if let Some(events) = &mut self.reported.binding {
            events.removed(deregistered);
        }
        // Read back.
        self.comparison_due = now + Duration::from_millis(200) + access.capabilities.list_lag;
    }

    /// Returns the number of instances of a service that are in service.
    fn total(&self, service: &ServiceKey) -> usize {
        let tracked = self
            .tracked
            .values()
            .filter(|tracked| tracked.is_in_service && tracked.service.as_ref() == Ok(service));
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

fn held_removals((id, count, reason): (String, usize, String)) -> HeldRemovals {
    HeldRemovals { id, count: u32::try_from(count).unwrap_or(u32::MAX), reason, since: None }
}
