//! Limits the calls in flight. A slow server, a slow rule or a namespace with many slow rules takes only its own share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use podward_api::pod_transition_rule::WebhookUrl;
use tokio::sync::oneshot;

use super::call_queue::{CallPlace, CallQueue};
use super::metrics::WebhookMetrics;

/// The slots for calls. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct CallSlots {
    inner: Arc<SlotsInner>,
}

#[derive(Debug, Default)]
struct SlotsInner {
    queue: Mutex<CallQueue<oneshot::Sender<CallSlot>>>,
    next_id: AtomicU64,
    metrics: WebhookMetrics,
}

/// A slot, taken until this is dropped.
#[derive(Debug)]
pub(super) struct CallSlot {
    slots: CallSlots,
    place: CallPlace,
}

/// A call that waits, or has waited. When it is dropped it does not wait any more.
struct WaitingCall<'a> {
    slots: &'a CallSlots,
    place: CallPlace,
    id: u64,
}

impl CallSlots {
    /// Returns the slots, and counts the calls that wait in `metrics`.
    pub(super) fn new(metrics: WebhookMetrics) -> Self {
        Self { inner: Arc::new(SlotsInner { metrics, ..SlotsInner::default() }) }
    }

    /// Waits for a slot for a call of a rule in `namespace` to the server of `url`. Never returns `None`: a call leaves
    /// the queue only with a slot, or when this future is dropped.
    pub(super) async fn take(&self, namespace: &str, url: &WebhookUrl) -> Option<CallSlot> {
        let place = CallPlace {
            namespace: namespace.to_owned(),
            server: (url.host().to_ascii_lowercase(), url.port()),
        };
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let (grant, granted) = oneshot::channel();
        self.inner.queue.lock().push(&place, id, grant);
        let _waiting = WaitingCall { slots: self, place, id };
        self.start_calls();
        granted.await.ok()
    }

    /// Gives slots to the calls that may start.
    fn start_calls(&self) {
        loop {
            let next = {
                let mut queue = self.inner.queue.lock();
                let next = queue.start_next();
                self.inner.metrics.slots(queue.waiting(), queue.in_flight());
                next
            };
            let Some((place, grant)) = next else { return };
            // Without the lock: the slot of a call that was dropped in the meantime comes back, and is free again.
            drop(grant.send(CallSlot { slots: self.clone(), place }));
        }
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.slots.inner.queue.lock().ended(&self.place);
        self.slots.start_calls();
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut queue = self.slots.inner.queue.lock();
        queue.remove(&self.place, self.id);
        self.slots.inner.metrics.slots(queue.waiting(), queue.in_flight());
    }
}
