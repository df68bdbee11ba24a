//! The removal of state for pods that are gone, were replaced, or are not opted in any more.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector::Store;
use podward_kube_util::{CachedPod, PodKey};
use podward_runtime::retry::{API_SERVER, delay_after};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::opted_out::{HeldPod, release};
use crate::report::GonePod;

/// The interval between two runs.
const INTERVAL: Duration = Duration::from_secs(60);

/// Removes the state of pods that are not in `store` any more, until `stop`.
pub(crate) async fn run(store: Store<CachedPod>, context: Arc<Context>, stop: CancellationToken) {
    let (mut cleanup, mut pause) = (Cleanup::default(), INTERVAL);
    while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        pause = cleanup.run_once(&store, &context).await;
    }
}

/// What one run leaves to the next.
#[derive(Default)]
pub(crate) struct Cleanup {
    /// The pods that are not opted in any more, and from which the finalizers of hooks could not be removed.
    held: Vec<HeldPod>,
    /// The number of runs in a row that left pods.
    failures: u32,
}

impl Cleanup {
    /// Removes the state of pods that are not in `store` any more. Returns the time until the next run.
    pub(crate) async fn run_once(&mut self, store: &Store<CachedPod>, context: &Context) -> Duration {
        self.held.extend(forget_gone(store, context));
        self.held = release(std::mem::take(&mut self.held), context).await;
        if self.held.is_empty() {
            self.failures = 0;
            return INTERVAL;
        }
        self.failures = self.failures.saturating_add(1);
        delay_after(API_SERVER, self.failures)
    }
}

/// Removes the state of pods that are not in `store` any more. Returns those that a hook held last: a pod that is not
/// opted in any more is missing in the store, too.
fn forget_gone(store: &Store<CachedPod>, context: &Context) -> Vec<HeldPod> {
    let exists = |key: &PodKey| store.get(&key.object_ref()).is_some();
    let is_stored =
        |key: &PodKey, uid: &str| store.get(&key.object_ref()).is_some_and(|pod| pod.uid() == uid);
    let owners: HashSet<String> =
        store.state().iter().filter_map(|pod| pod.controller().map(|owner| owner.uid.clone())).collect();
    context.deciders.deletions.retain(|uid| owners.contains(uid));
    context.cache.retain(exists);
    context.retries.retain(exists);
    context.services.retain(exists);
    context.gone_services.retain(exists);
    context.joint_removals.retain(exists);
    let mut held = Vec::new();
    for GonePod { key, uid, is_held_by_hook } in context.report.retain(is_stored) {
        context.deciders.forget(&key, &uid);
        if is_held_by_hook {
            held.push((key, uid));
        }
    }
    held
}
