//! The rights of the users who requested deletions.

use std::time::Duration;

use kube::Client;
use podward_core::deletion::request::DeletionRequest;
use podward_kube_util::CachedPod;
use podward_runtime::authn::{Authorizer, Identity};
use tonic::Code;

/// The user of a deletion that was requested with the label alone, if it is not known who set the label. The admission
/// policy of the chart allows no such label. It may be from before the policy, or from a cluster without it.
pub(crate) const BY_LABEL: &str = "the user who set the label collaset.kusionstack.io/to-delete";

const UNKNOWN_AUTHOR: &str = "it is not known who set the label, because the annotation podward.io/to-delete-by is missing or \
                              cannot be read; delete the pod instead, or set the label again when the mutating-webhook is up";

/// The time after which the rights of a requester are checked again if the API server has not answered.
pub(crate) const REQUESTER_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Checks the rights of requesters before their requests are executed. They were checked when the request was recorded.
/// Since then, a right can have been revoked.
pub(crate) struct Requesters {
    authorizer: Authorizer,
}

/// The result of [`Requesters::check`].
pub(crate) enum RequesterCheck {
    /// The requester may delete or evict the pod.
    MayDelete,
    /// The requester may not, for this reason.
    MayNotDelete(String),
    /// The API server did not answer. It is logged.
    Unknown,
}

impl Requesters {
    pub(crate) fn new(client: Client) -> Self {
        Requesters { authorizer: Authorizer::new(client) }
    }

    /// Checks whether the user of `request` may delete or evict `pod`.
    pub(crate) async fn check(&self, pod: &CachedPod, request: &DeletionRequest) -> RequesterCheck {
        if request.requested_by == BY_LABEL {
            return RequesterCheck::MayNotDelete(UNKNOWN_AUTHOR.to_owned());
        }
        let requester =
            Identity { user: request.requested_by.clone(), groups: request.groups(), ..Identity::default() };
        let key = pod.key();
        match self.authorizer.authorize_deletion(&requester, request.kind, &key.namespace, &key.name).await {
            Ok(()) => RequesterCheck::MayDelete,
            Err(status) if status.code() == Code::PermissionDenied => {
                RequesterCheck::MayNotDelete(status.message().to_owned())
            }
            Err(status) => {
                tracing::warn!(pod = %key, "the pod is not deleted yet: {}", status.message());
                RequesterCheck::Unknown
            }
        }
    }
}
