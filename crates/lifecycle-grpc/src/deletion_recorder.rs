//! Records the deletion requests of `Lifecycle.RequestDeletion`.

use std::sync::Arc;

use podward_core::deletion::request::DeletionRequest;
use podward_deletion::{DeletionRefusal, DeletionRequestWriter};
use podward_kube_util::{ApiError, CachedPod, PodKey};
use tonic::Status;

/// Records deletion requests. Every replica has one.
#[tonic::async_trait]
pub trait DeletionRecorder: Send + Sync + 'static {
    /// Records `request` on `pod` and returns the stored pod. The pod must have the UID `uid`, if one is given. The
    /// time in `request` is ignored.
    ///
    /// # Errors
    /// A status for the caller: NOT_FOUND if there is no such pod; FAILED_PRECONDITION if it has not opted in;
    /// RESOURCE_EXHAUSTED if a disruption budget or the owner of the pod does not allow the deletion now, with the text
    /// for the user; ABORTED after too many conflicts; UNAVAILABLE if the API server does not answer.
    async fn record(
        &self,
        pod: &PodKey,
        uid: Option<&str>,
        request: &DeletionRequest,
    ) -> Result<Arc<CachedPod>, Status>;
}

#[tonic::async_trait]
impl DeletionRecorder for DeletionRequestWriter {
    async fn record(
        &self,
        pod: &PodKey,
        uid: Option<&str>,
        request: &DeletionRequest,
    ) -> Result<Arc<CachedPod>, Status> {
        self.request(pod, uid, request).await.map_err(|refusal| {
            let text = refusal.to_string();
            match refusal {
                DeletionRefusal::NotFound(_) | DeletionRefusal::WrongUid { .. } => Status::not_found(text),
                DeletionRefusal::NotOptedIn(_) => Status::failed_precondition(text),
                DeletionRefusal::NoRoom(_) => Status::resource_exhausted(text),
                DeletionRefusal::Api(ApiError::Conflict { .. }) => Status::aborted(text),
                DeletionRefusal::Api(_) => Status::unavailable(text),
            }
        })
    }
}
