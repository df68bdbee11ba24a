//! The newest version that this process has seen of each pod.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cached_pod::{CachedPod, PodKey};

/// What the API server answered to our own writes, until the watch has caught up. Without it the controller would act on the
/// version before its own write: it would write twice, and be refused.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    written: Mutex<HashMap<PodKey, Arc<CachedPod>>>,
}

impl Latest {
    /// Remembers the answer to a write.
    pub(crate) fn wrote(&self, pod: Arc<CachedPod>) {
        self.written.lock().insert(pod.key(), pod);
    }

    /// The newer of `watched` and our own last write to the same pod.
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

    /// Forgets pods that are not there any more.
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
        let latest = Latest::default();
        latest.wrote(pod("u", "20"));
        assert_eq!(latest.newest(pod("u", "10")).resource_version(), "20");
        assert_eq!(latest.newest(pod("u", "20")).resource_version(), "20");
        assert_eq!(
            latest.newest(pod("u", "10")).resource_version(),
            "10",
            "forgotten once the watch has caught up"
        );
    }

    #[test]
    fn another_pod_of_the_same_name_is_another_pod() {
        let latest = Latest::default();
        latest.wrote(pod("old", "20"));
        assert_eq!(latest.newest(pod("new", "15")).uid(), "new");
    }
}
