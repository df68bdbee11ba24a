//! The leader, for the requests that reach its replica.

use std::sync::Arc;

use futures::future::BoxFuture;
use podward_core::deletion::request::{DeletionRequest, DeletionRequestChanges};
use podward_kube_util::{ApiError, CachedPod, PodKey};

/// The leader of the lifecycle-controller.
pub trait RecordingLeader: Send + Sync {
    /// Returns the newest version of the pod that the leader knows, from its watch and its own writes.
    fn newest(&self, key: &PodKey) -> Option<Arc<CachedPod>>;

    /// Writes `changes`, which record `request` on `pod`, together with the steps of the protocol that follow from them and
    /// that the leader may grant now. Returns the stored pod, or `None` if the request has to be recorded first; nothing
    /// is written then.
    ///
    /// # Errors
    /// Fails if the write fails. If the pod was changed after it was read, the error is a conflict.
    fn record<'a>(
        &'a self,
        pod: &'a CachedPod,
        request: &'a DeletionRequest,
        changes: &'a DeletionRequestChanges,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, ApiError>>;
}
