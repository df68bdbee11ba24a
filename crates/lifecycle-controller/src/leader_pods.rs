//! The pods that a leader knows.

use std::sync::Arc;

use kube::runtime::reflector::Store;
use podward_deletion::KnownPods;
use podward_kube_util::{CachedPod, PodKey};

use crate::context::Context;

/// The pods of the watch, and the leader's own writes that the watch has not delivered yet.
pub(crate) struct LeaderPods {
    store: Store<CachedPod>,
    context: Arc<Context>,
}

impl LeaderPods {
    /// Returns the pods of `store`, and the writes of `context`.
    pub(crate) fn new(store: Store<CachedPod>, context: Arc<Context>) -> Self {
        Self { store, context }
    }
}

impl KnownPods for LeaderPods {
    fn newest(&self, key: &PodKey) -> Option<Arc<CachedPod>> {
        let watched = self.store.get(&key.object_ref())?;
        Some(self.context.cache.newest(watched))
    }
}
