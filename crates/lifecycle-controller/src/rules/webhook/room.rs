//! Bounds on calls that are under way.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use podward_api::pod_transition_rule::WebhookUrl;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls to one server at the same time.
const PER_TARGET: usize = 8;
/// Calls to all servers at the same time: each may take a megabyte for its answer.
const ALL: usize = 64;

/// Room for calls. A server that is slow takes up no more than its own share.
#[derive(Debug)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    targets: Mutex<HashMap<(String, u16), Weak<Semaphore>>>,
}

/// A place that is taken as long as this lives.
#[derive(Debug)]
pub(super) struct Place {
    _target: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Room {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL)), targets: Mutex::default() }
    }
}

impl Room {
    /// Waits for room for a call to the server of this URL, in turn. `None` never comes: the semaphores are not closed.
    pub(super) async fn take(&self, url: &WebhookUrl) -> Option<Place> {
        let target = self.target(url).acquire_owned().await.ok()?;
        let all = self.all.clone().acquire_owned().await.ok()?;
        Some(Place { _target: target, _all: all })
    }

    fn target(&self, url: &WebhookUrl) -> Arc<Semaphore> {
        let mut targets = self.targets.lock();
        let key = (url.host().to_ascii_lowercase(), url.port());
        if let Some(target) = targets.get(&key).and_then(Weak::upgrade) {
            return target;
        }
        targets.retain(|_, target| target.strong_count() > 0);
        let target = Arc::new(Semaphore::new(PER_TARGET));
        targets.insert(key, Arc::downgrade(&target));
        target
    }
}
