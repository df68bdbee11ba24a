//! Who calls, and whether they may.

use std::sync::Arc;

use kube::Client;
use podward_runtime::authn::{Access, Authenticator, Authorizer, Identity};
use tonic::{Request, Status};

use super::args::GrpcArgs;

/// The group of the resource that hooks are registered as.
pub(super) const GROUP: &str = "podward.io";
/// Its plural.
pub(super) const HOOKS: &str = "lifecyclehooks";
/// Metadata: the user that a replica relays, whom it has authenticated and authorised.
pub(super) const ON_BEHALF_OF: &str = "podward-on-behalf-of";

/// Knows callers. Clones share what is remembered.
#[derive(Clone)]
pub(super) struct Callers {
    authenticator: Arc<Authenticator>,
    authorizer: Arc<Authorizer>,
    controller_user: Arc<str>,
    trusted_requesters: Arc<[String]>,
}

impl Callers {
    pub(super) fn new(client: Client, args: &GrpcArgs) -> Self {
        let audience = Some(args.token_audience.clone()).filter(|audience| !audience.is_empty());
        Self {
            authenticator: Arc::new(Authenticator::new(client.clone(), audience)),
            authorizer: Arc::new(Authorizer::new(client)),
            controller_user: args.peers.controller_user.as_str().into(),
            trusted_requesters: args.trusted_requesters.clone().into(),
        }
    }

    /// Who sent `request`, whatever they may do.
    pub(super) async fn known<T>(&self, request: &Request<T>) -> Result<Arc<Identity>, Status> {
        self.authenticator.authenticate(request).await
    }

    /// Whether `who` may do `access`.
    pub(super) async fn check(&self, who: &Identity, access: Access<'_>) -> Result<(), Status> {
        self.authorizer.authorize(who, access).await
    }

    /// Whether `who` may do `verb` to the hook `name`, or to all when there is no name.
    pub(super) async fn check_hooks(
        &self,
        who: &Identity,
        verb: &str,
        name: Option<&str>,
    ) -> Result<(), Status> {
        self.check(who, Access { verb, group: GROUP, resource: HOOKS, namespace: None, name }).await
    }

    /// Whether `who` may do `verb` to the pod `name`.
    pub(super) async fn check_pod(
        &self,
        who: &Identity,
        verb: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        let access =
            Access { verb, group: "", resource: "pods", namespace: Some(namespace), name: Some(name) };
        self.check(who, access).await
    }

    /// The user that `who` relays. Only a replica of ours is believed.
    pub(super) fn relayed<T>(&self, who: &Identity, request: &Request<T>) -> Result<Option<String>, Status> {
        let Some(user) = request.metadata().get(ON_BEHALF_OF) else { return Ok(None) };
        if who.user != *self.controller_user {
            return Err(Status::permission_denied(format!(
                "the metadata {ON_BEHALF_OF} is for replicas of the lifecycle-controller; {} is none",
                who.user
            )));
        }
        let user =
            user.to_str().map_err(|_| Status::invalid_argument(format!("{ON_BEHALF_OF} is no text")))?;
        Ok(Some(user.to_owned()))
    }

    /// Whether `who` may speak for others who want a pod deleted.
    pub(super) fn is_trusted_requester(&self, who: &Identity) -> bool {
        self.trusted_requesters.contains(&who.user)
    }
}
