//! The callback engine and the wishes, as the gRPC services know them.

use std::sync::Arc;

use podward_core::UnixNanos;
use podward_core::wish::Wish;
use tonic::Status;

use crate::cached_pod::{CachedPod, PodKey};
use crate::callbacks::{AttachError, Callbacks};
use crate::deletion::{Refusal, Requests};
use crate::error::Error;
use crate::grpc::{Asked, AttachHub, Attachment, Deletions};

impl AttachHub for Callbacks {
    fn attach(&self, hook: &str) -> Result<Attachment, Status> {
        let attached = Callbacks::attach(self, hook).map_err(|error| {
            let text = error.to_string();
            match error {
                AttachError::NotRegistered(_) => Status::not_found(text),
                AttachError::NotAnAttachment(_) | AttachError::Invalid { .. } => {
                    Status::failed_precondition(text)
                }
                AttachError::TooMany(_) => Status::resource_exhausted(text),
                AttachError::NotLeading => Status::unavailable(text),
            }
        })?;
        Ok(Attachment { calls: attached.calls, answers: attached.answers })
    }
}

#[tonic::async_trait]
impl Deletions for Requests {
    async fn request(
        &self,
        pod: &PodKey,
        uid: Option<&str>,
        asked: &Asked,
    ) -> Result<Arc<CachedPod>, Status> {
        let wish = Wish {
            grace_period_seconds: asked.grace_period_seconds,
            ..Wish::new(asked.kind, &asked.requested_by, UnixNanos::default())
        };
        Requests::request(self, pod, uid, &wish).await.map_err(|refusal| {
            let text = refusal.to_string();
            match refusal {
                Refusal::NotFound(_) | Refusal::WrongUid { .. } => Status::not_found(text),
                Refusal::NotOptedIn(_) => Status::failed_precondition(text),
                Refusal::NoRoom(_) => Status::resource_exhausted(text),
                Refusal::Api(Error::Conflict { .. }) => Status::aborted(text),
                Refusal::Api(_) => Status::unavailable(text),
            }
        })
    }
}
