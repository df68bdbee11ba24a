//! Limits the calls in flight.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use podward_api::pod_transition_rule::WebhookUrl;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls to one server at the same time.
const MAX_CONCURRENT_PER_SERVER: usize = 8;
/// Calls to all servers at the same time. The answer of each may take a megabyte.
const MAX_CONCURRENT_CALLS: usize = 64;

/// The slots for calls. A slow server takes only its own share.
#[derive(Debug)]
pub(super) struct CallSlots {
    all: Arc<Semaphore>,
    servers: Mutex<HashMap<(String, u16), Weak<Semaphore>>>,
}

/// A slot, taken until this is dropped.
#[derive(Debug)]
pub(super) struct CallSlot {
    _server: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for CallSlots {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)), servers: Mutex::default() }
    }
}

impl CallSlots {
    /// Waits for a slot for a call to the server of `url`, in order. Never returns `None`, because the semaphores are
    /// not closed.
    pub(super) async fn take(&self, url: &WebhookUrl) -> Option<CallSlot> {
        let server = self.server(url).acquire_owned().await.ok()?;
        let all = self.all.clone().acquire_owned().await.ok()?;
        Some(CallSlot { _server: server, _all: all })
    }

    fn server(&self, url: &WebhookUrl) -> Arc<Semaphore> {
        let mut servers = self.servers.lock();
        let key = (url.host().to_ascii_lowercase(), url.port());
        if let Some(server) = servers.get(&key).and_then(Weak::upgrade) {
            return server;
        }
        servers.retain(|_, server| server.strong_count() > 0);
        let server = Arc::new(Semaphore::new(MAX_CONCURRENT_PER_SERVER));
        servers.insert(key, Arc::downgrade(&server));
        server
    }
}
