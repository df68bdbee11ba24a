//! The leader's side of `HookRegistry.Attach`.

use podward_hooks::{AttachError, Attachment, HookCalls};
use podward_proto::v1;
use tonic::Status;

use super::revocation::Responses;

/// The responses of one attached stream.
pub(super) type AttachResponses = Responses<v1::AttachResponse>;

/// Accepts the streams of attached hook systems. Only the leader has one.
pub trait AttachHub: Send + Sync + 'static {
    /// Adds a stream of `hook`. The caller is already authorized to attach it.
    ///
    /// # Errors
    /// A status for the caller: NOT_FOUND if the hook is not registered; FAILED_PRECONDITION if it is registered with
    /// an endpoint or is not valid; RESOURCE_EXHAUSTED if it has too many streams; UNAVAILABLE if this replica does not
    /// lead any more.
    fn attach(&self, hook: &str) -> Result<Attachment, Status>;
}

impl AttachHub for HookCalls {
    fn attach(&self, hook: &str) -> Result<Attachment, Status> {
        HookCalls::attach(self, hook).map_err(|error| {
            let text = error.to_string();
            match error {
                AttachError::NotRegistered(_) => Status::not_found(text),
                AttachError::NotAnAttachment(_) | AttachError::Invalid { .. } => {
                    Status::failed_precondition(text)
                }
                AttachError::TooMany(_) => Status::resource_exhausted(text),
                AttachError::NotLeading => Status::unavailable(text),
            }
        })
    }
}
