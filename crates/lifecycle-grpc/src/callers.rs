//! Authentication and authorization of callers.

use std::sync::Arc;

use kube::Client;
use podward_api::HookName;
use podward_core::deletion::request::DeletionKind;
use podward_proto::v1;
use podward_runtime::authn::{Access, Authenticator, Authorizer, Identity};
use tonic::{Request, Status};

use super::args::GrpcArgs;
use super::write_rights::WriteRights;

/// The API group of LifecycleHooks.
const HOOK_GROUP: &str = "podward.io";
/// The resource name of LifecycleHooks.
const HOOK_RESOURCE: &str = "lifecyclehooks";
/// Metadata key of a relayed stream: the user, whom the relaying replica has authenticated and authorized.
pub(super) const ON_BEHALF_OF: &str = "podward-on-behalf-of";

/// Authenticates and authorizes callers. Clones share the caches.
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

    /// Returns the authenticator, for the server that authenticates callers before it reads their messages.
    pub(super) fn authenticator(&self) -> Arc<Authenticator> {
        Arc::clone(&self.authenticator)
    }

    /// Returns the identity of the sender of `request`. It says nothing about the sender's rights.
    pub(super) async fn authenticate<T>(&self, request: &Request<T>) -> Result<Arc<Identity>, Status> {
        self.authenticator.authenticate(request).await
    }

    /// Checks that RBAC grants `access` to `caller`.
    async fn check(&self, caller: &Identity, access: Access<'_>) -> Result<(), Status> {
        self.authorizer.authorize(caller, access).await
    }

    /// Checks that RBAC grants `verb` on a hook to `caller`. The rights to a hook that is limited to a namespace are
    /// those in this namespace, as if LifecycleHooks had namespaces, so that a Role can grant them.
    pub(super) async fn check_hook(
        &self,
        caller: &Identity,
        verb: &str,
        hook: &HookName,
    ) -> Result<(), Status> {
        self.check_hooks(caller, verb, hook.namespace(), Some(hook.name())).await
    }

    /// Checks that RBAC grants `caller` to list the hooks of a namespace; all hooks if there is none.
    pub(super) async fn check_hook_list(
        &self,
        caller: &Identity,
        namespace: Option<&str>,
    ) -> Result<(), Status> {
        self.check_hooks(caller, "list", namespace, None).await
    }

    async fn check_hooks(
        &self,
        caller: &Identity,
        verb: &str,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<(), Status> {
        self.check(
            caller,
            Access { verb, group: HOOK_GROUP, resource: HOOK_RESOURCE, subresource: "", namespace, name },
        )
        .await
    }

    /// Returns the rights of `caller` to write a hook.
    ///
    /// # Errors
    /// PERMISSION_DENIED if it has none.
    pub(super) async fn write_rights(
        &self,
        caller: &Identity,
        hook: &HookName,
    ) -> Result<WriteRights, Status> {
        let check = |verb: &'static str| self.check_hook(caller, verb, hook);
        let (create, update) = tokio::join!(check("create"), check("update"));
        WriteRights::new(create, update)
    }

    /// Checks that RBAC grants `verb` on the pod `name` to `caller`.
    pub(super) async fn check_pod(
        &self,
        caller: &Identity,
        verb: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        let access = Access {
            verb,
            group: "",
            resource: "pods",
            subresource: "",
            namespace: Some(namespace),
            name: Some(name),
        };
        self.check(caller, access).await
    }

    /// Returns the identity for which `caller` requests a deletion: its own, or the one that a trusted requester names.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a trusted requester names no user, or another caller names one.
    pub(super) fn requester(
        &self,
        caller: Arc<Identity>,
        requester: Option<v1::Requester>,
    ) -> Result<Arc<Identity>, Status> {
        let is_trusted = self.trusted_requesters.contains(&caller.user);
        match requester {
            Some(v1::Requester { user, uid, groups, extra }) if is_trusted && !user.is_empty() => {
                let extra = extra.into_iter().map(|(key, values)| (key, values.values)).collect();
                Ok(Arc::new(Identity { user, uid: Some(uid).filter(|uid| !uid.is_empty()), groups, extra }))
            }
            None if !is_trusted => Ok(caller),
            _ if is_trusted => Err(Status::invalid_argument(
                "the field requester.user is missing: a trusted requester must name the user who requested the deletion",
            )),
            _ => Err(Status::invalid_argument(format!(
                "the field requester is only for trusted requesters, and {} is not one; check --trusted-requester",
                caller.user
            ))),
        }
    }

    /// Checks that RBAC allows `requester` to delete or evict the pod `name`.
    pub(super) async fn check_deletion(
        &self,
        requester: &Identity,
        kind: DeletionKind,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        self.authorizer.authorize_deletion(requester, kind, namespace, name).await
    }

    /// Returns the user for whom `caller` relays a stream; `None` if the stream is not relayed.
    ///
    /// # Errors
    /// PERMISSION_DENIED if `caller` is not a replica of the lifecycle-controller.
    pub(super) fn relayed_user<T>(
        &self,
        caller: &Identity,
        request: &Request<T>,
    ) -> Result<Option<String>, Status> {
        let Some(user) = request.metadata().get(ON_BEHALF_OF) else { return Ok(None) };
        if caller.user != *self.controller_user {
            return Err(Status::permission_denied(format!(
                "only replicas of the lifecycle-controller may send the metadata {ON_BEHALF_OF}; {} is not one",
                caller.user
            )));
        }
        let user = user
            .to_str()
            .map_err(|_| Status::invalid_argument(format!("the metadata {ON_BEHALF_OF} is not text")))?;
        Ok(Some(user.to_owned()))
    }
}
