//! Heartbeats for instances of registries that forget instances without them.

use std::collections::HashMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};

use super::tracked::{SyncState, TrackedPod};
use crate::model::{Binding, Presence};
use crate::sync::RegistryAccess;

/// Renewals at the same time.
const MAX_CONCURRENT_CALLS: usize = 16;
/// The interval at which a part of the instances is renewed, so that heartbeats are spread evenly.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Renews the instances whose interval has passed. Reopens the pods that the registry does not know. Returns the number of
/// renewals and of failures.
pub(crate) async fn renew(
    binding: &Binding,
    access: &RegistryAccess,
    interval: Duration,
    pods: &mut HashMap<String, TrackedPod>,
    now: Duration,
) -> (usize, usize) {
    let mut due: Vec<(String, _)> = Vec::new();
    for (uid, tracked) in pods.iter_mut() {
        let exists = matches!(tracked.presence, Presence::InService | Presence::OutOfService)
            && matches!(tracked.state, SyncState::Shown { .. });
        if !exists {
            continue;
        }
        // At first each instance gets a random place within the interval.
        let last =
            *tracked.renewed.get_or_insert_with(|| now.saturating_sub(interval.mul_f64(fastrand::f64())));
        if now.saturating_sub(last) + TICK / 2 >= interval {
            let desired = tracked.desired(binding, access);
            due.extend(desired.map(|desired| (uid.clone(), (desired.service, desired.instance))));
        }
    }
    let batch = access.capabilities.batch.max(1);
    let calls: Vec<_> = due
        .chunks(batch)
        .map(|chunk| async move {
            let instances: Vec<_> = chunk.iter().map(|(_, instance)| instance.clone()).collect();
            let results = access.registry.renew(&instances).await;
            chunk.iter().map(|(uid, _)| uid.clone()).zip(results).collect::<Vec<_>>()
        })
        .collect();
    let results: Vec<Vec<_>> = stream::iter(calls).buffer_unordered(MAX_CONCURRENT_CALLS).collect().await;
    let mut failures = 0;
    for (uid, result) in results.into_iter().flatten() {
        let Some(tracked) = pods.get_mut(&uid) else { continue };
        match result {
            Ok(true) => tracked.renewed = Some(now),
            Ok(false) if tracked.presence == Presence::InService => tracked.reopen(),
            Ok(false) => tracked.renewed = Some(now),
            Err(error) => {
                failures += 1;
                tracing::debug!(pod = tracked.pod.name, %error, "a heartbeat failed; it is sent again");
            }
        }
    }
    (due.len(), failures)
}
