//! The newest version of each pod that a request of this process returned.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use podward_kube_util::{CachedPod, PodKey};

/// The responses to the controller's own writes, until the watch delivers them. Without this cache the controller would
/// decide on the version before its own write, and the next write would conflict.
#[derive(Debug, Default)]
pub(crate) struct WriteThroughCache {
    written: Mutex<HashMap<PodKey, Arc<CachedPod>>>,
}

impl WriteThroughCache {
    /// Stores the response to a write or a read.
    pub(crate) fn wrote(&self, pod: Arc<CachedPod>) {
        self.written.lock().insert(pod.key(), pod);
    }

    /// Returns the newer of `watched` and the stored response for the same pod.
    pub(crate) fn newest(&self, watched: Arc<CachedPod>) -> Arc<CachedPod> {
        let mut written = self.written.lock();
        let key = watched.key();
        match written.get(&key) {
            Some(own) if own.uid() == watched.uid() && own.is_newer_than(&watched) => own.clone(),
            Some(_) => {
                written.remove(&key);
                watched
            }
            None => watched,
        }
    }

    /// Forgets the pods that do not exist any more.
    pub(crate) fn retain(&self, exists: impl Fn(&PodKey) -> bool) {
        self.written.lock().retain(|key, _| exists(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, version: &str) -> Arc<CachedPod> {
        let value =
            json!({"metadata": {"name": "a", "namespace": "b", "uid": uid, "resourceVersion": version}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn own_write_wins_until_the_watch_has_it() {
        let cache = WriteThroughCache::default();
        cache.wrote(pod("u", "20"));
        assert_eq!(cache.newest(pod("u", "10")).resource_version(), "20");
        assert_eq!(cache.newest(pod("u", "20")).resource_version(), "20");
        assert_eq!(
            cache.newest(pod("u", "10")).resource_version(),
            "10",
            "forgotten once the watch has caught up"
        );
    }

    #[test]
    fn another_pod_of_the_same_name_is_another_pod() {
        let cache = WriteThroughCache::default();
        cache.wrote(pod("old", "20"));
        assert_eq!(cache.newest(pod("new", "15")).uid(), "new");
    }
}
