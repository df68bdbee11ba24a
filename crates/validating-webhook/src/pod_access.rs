//! The rights of users to pods, asked of the API server with SubjectAccessReviews.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use podward_core::deletion::request::DeletionKind;
use podward_runtime::authn::{Access, Authorizer, Identity};
use tonic::{Code, Status};

/// The verb on `pods` of the group [`BREAK_GLASS_GROUP`] that allows a user to have a pod deleted without draining.
pub const BREAK_GLASS_VERB: &str = "break-glass";
/// The API group of the right. It is not the core group: roles with all verbs on pods are common, and their users should
/// not get this right with them.
pub const BREAK_GLASS_GROUP: &str = "podward.io";

/// The part of a review's time that is reserved for the response.
const RESPONSE_RESERVE: Duration = Duration::from_millis(200);

/// Asks about the rights of users. Clones share the cache of answers.
#[derive(Clone, Debug)]
pub(crate) struct PodAccess {
    authorizer: Arc<Authorizer>,
}

impl PodAccess {
    pub(crate) fn new(client: Client) -> Self {
        Self { authorizer: Arc::new(Authorizer::new(client)) }
    }

    /// Succeeds if `user` may delete the pod `name`. `name` is empty for a pod that has no name yet.
    ///
    /// # Errors
    /// PERMISSION_DENIED with the missing right; another code if the API server does not answer before `deadline`.
    pub(crate) async fn may_delete(
        &self,
        user: &Identity,
        namespace: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<(), Status> {
        let asked = self.authorizer.authorize_deletion(user, DeletionKind::Delete, namespace, name);
        in_time(asked, deadline).await
    }

    /// Succeeds if `user` may have the pod `name` deleted without draining.
    ///
    /// # Errors
    /// As [`may_delete`](Self::may_delete).
    pub(crate) async fn may_break_glass(
        &self,
        user: &Identity,
        namespace: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<(), Status> {
        // At first about all pods of the namespace, because that answer serves other pods too.
        let all = Access {
            verb: BREAK_GLASS_VERB,
            group: BREAK_GLASS_GROUP,
            resource: "pods",
            subresource: "",
            namespace: Some(namespace),
            name: None,
        };
        let asked = async {
            match self.authorizer.authorize(user, all).await {
                Err(status) if status.code() == Code::PermissionDenied && !name.is_empty() => {
                    self.authorizer.authorize(user, Access { name: Some(name), ..all }).await
                }
                other => other,
            }
        };
        in_time(asked, deadline).await
    }
}

/// Ends `asked` before `deadline`, so that there is time for a response that says what is not known.
async fn in_time(asked: impl Future<Output = Result<(), Status>>, deadline: Instant) -> Result<(), Status> {
    let end = deadline.checked_sub(RESPONSE_RESERVE).unwrap_or(deadline);
    tokio::time::timeout_at(end.into(), asked).await.unwrap_or_else(|_| {
        Err(Status::deadline_exceeded("the API server did not answer in time about the rights of the user"))
    })
}
