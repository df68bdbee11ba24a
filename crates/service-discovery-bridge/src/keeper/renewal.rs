//! Heartbeats for instances of registries that forget instances without them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};

use super::tracked::{SyncState, TrackedPod};
use crate::index::Index;
use crate::model::{Binding, Presence};
use crate::sync::RegistryAccess;

/// Renewals at the same time.
const MAX_CONCURRENT_CALLS: usize = 16;
/// The interval at which a part of the instances is renewed, so that heartbeats are spread evenly.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// The heartbeats of a binding, and those that were sent.
pub(crate) struct Heartbeats<'a> {
    pub(crate) binding: &'a Binding,
    pub(crate) access: &'a RegistryAccess,
    /// How often an instance is renewed. `None` if none is.
    pub(crate) interval: Option<Duration>,
    pub(crate) index: Arc<Index>,
    /// When an instance was renewed, and whether the registry knows it. By the UID of its pod.
    pub(crate) renewed: HashMap<String, (Duration, bool)>,
    pub(crate) sent: usize,
    pub(crate) failed: usize,
}

impl Heartbeats<'_> {
    /// Renews the instances whose interval has passed.
    pub(crate) async fn renew(&mut self, pods: &HashMap<String, TrackedPod>) {
        let Some(interval) = self.interval else { return };
        let (binding, access, now) = (self.binding, self.access, self.index.now());
        let mut due: Vec<(&String, _)> = Vec::new();
        for (uid, tracked) in pods.iter().filter(|(_, tracked)| exists(tracked)) {
            let last = self.renewed.get(uid).map(|(at, _)| *at).or(tracked.renewed);
            if last.is_none_or(|last| now.saturating_sub(last) + TICK / 2 >= interval) {
                let desired = tracked.desired(binding, access);
                due.extend(desired.map(|desired| (uid, (desired.service, desired.instance))));
            }
        }
        let batch = access.capabilities.batch.max(1);
        let calls: Vec<_> = due
            .chunks(batch)
            .map(|chunk| async move {
                let instances: Vec<_> = chunk.iter().map(|(_, instance)| instance.clone()).collect();
                let results = access.registry.renew(&instances).await;
                chunk.iter().map(|(uid, _)| *uid).zip(results).collect::<Vec<_>>()
            })
            .collect();
        let results: Vec<Vec<_>> = stream::iter(calls).buffer_unordered(MAX_CONCURRENT_CALLS).collect().await;
        self.sent += due.len();
        for (uid, result) in results.into_iter().flatten() {
            match result {
                Ok(is_known) => _ = self.renewed.insert(uid.clone(), (now, is_known)),
                Err(error) => {
                    self.failed += 1;
                    let pod = pods.get(uid).map(|tracked| &*tracked.pod.name);
                    tracing::debug!(pod, %error, "a heartbeat failed; it is sent again");
                }
            }
        }
    }

    /// Does `work`, which may take long, and renews meanwhile. Returns what the work returns.
    pub(crate) async fn during<W: Future>(
        &mut self,
        work: W,
        pods: &HashMap<String, TrackedPod>,
    ) -> W::Output {
        let renew = async {
            loop {
                tokio::time::sleep(TICK).await;
                self.renew(pods).await;
            }
        };
        tokio::select! {
            output = work => output,
            // A call that is under way at the end of the work is made again.
            () = renew => unreachable!("it does not end"),
        }
    }

    /// Records what was sent. Reopens the pods that the registry does not know.
    pub(crate) fn record(self, pods: &mut HashMap<String, TrackedPod>) {
        for (uid, (at, is_known)) in self.renewed {
            match pods.get_mut(&uid) {
                Some(tracked) if !is_known && tracked.presence == Presence::InService => tracked.reopen(),
                Some(tracked) => tracked.renewed = Some(at),
                None => {}
            }
        }
    }
}

/// Sets a random time within the interval for each instance that was not renewed yet.
pub(crate) fn spread(pods: &mut HashMap<String, TrackedPod>, interval: Duration, now: Duration) {
    for tracked in pods.values_mut().filter(|tracked| exists(tracked)) {
        let place = || now.saturating_sub(interval.mul_f64(fastrand::f64()));
        tracked.renewed.get_or_insert_with(place);
    }
}

/// Returns whether the registry has an instance of a pod.
fn exists(tracked: &TrackedPod) -> bool {
    matches!(tracked.presence, Presence::InService | Presence::OutOfService)
        && matches!(tracked.state, SyncState::Shown { .. })
}
