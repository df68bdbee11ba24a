//! The service `HookRegistry`.

use kube::Client;
use podward_core::is_object_name;
use podward_hooks::HookProbe;
use podward_proto::v1;
use podward_proto::v1::hook_registry_server::HookRegistry;
use podward_runtime::grpc::HeldByAnswer;
use tonic::{Request, Response, Status, Streaming};

use super::attach::Attacher;
use super::callers::Callers;
use super::convert::{from_resource, hook_state, to_resource};
use super::hook_store::HookStore;
use super::hub::AttachResponses;
use super::list_limit::ListLimit;
use super::status::{hook_name, invalid_hook};
use super::warnings::warnings;

/// Implements the service `HookRegistry`.
pub(super) struct HookRegistryService {
    pub(super) client: Client,
    pub(super) callers: Callers,
    pub(super) store: HookStore,
    pub(super) attacher: Attacher,
    pub(super) probe: HookProbe,
    /// The lists that are made, or whose answers are not read yet.
    pub(super) lists: ListLimit,
}

#[tonic::async_trait]
impl HookRegistry for HookRegistryService {
    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterResponse>, Status> {
        let caller = self.callers.authenticate(&request).await?;
        let hook =
            request.into_inner().hook.ok_or_else(|| Status::invalid_argument("the field hook is missing"))?;
        // The check includes the name, because a role can be limited to some hooks. The rest of the hook is validated
        // later, so that unauthorized callers learn nothing else.
        let name = hook_name(&hook.namespace, &hook.name)?;
        let rights = self.callers.write_rights(&caller, &name).await?;
        let wanted = to_resource(hook)?;
        wanted.to_hook().map_err(|error| invalid_hook(&error))?;
        self.store.check(&wanted, &rights).await?;
        if let Some(endpoint) = &wanted.spec.endpoint {
            self.probe
                .probe(endpoint, name.namespace().is_some())
                .await
                .map_err(|problem| unreachable(&problem))?;
        }
        let warnings = warnings(&self.client, &wanted).await;
        let stored = self.store.put(wanted, &caller.user, &rights).await?;
        Ok(Response::new(v1::RegisterResponse { hook: Some(from_resource(&stored)), warnings }))
    }

    async fn deregister(
        &self,
        request: Request<v1::DeregisterRequest>,
    ) -> Result<Response<v1::DeregisterResponse>, Status> {
        let caller = self.callers.authenticate(&request).await?;
        let v1::DeregisterRequest { name, namespace } = request.into_inner();
        let name = hook_name(&namespace, &name)?;
        self.callers.check_hook(&caller, "delete", &name).await?;
        let name = name.object_name();
        if self.store.remove(&name).await? {
            tracing::info!(hook = name, user = caller.user, "deregistered a hook");
        }
        Ok(Response::new(v1::DeregisterResponse {}))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        let caller = self.callers.authenticate(&request).await?;
        let namespace = Some(request.into_inner().namespace).filter(|namespace| !namespace.is_empty());
        if namespace.as_ref().is_some_and(|namespace| !is_object_name(namespace)) {
            return Err(Status::invalid_argument("the field namespace is not the name of a namespace"));
        }
        self.callers.check_hook_list(&caller, namespace.as_deref()).await?;
        let counted = self.lists.acquire(&caller.user, namespace.as_deref())?;
        let hooks = self.store.list(namespace.as_deref()).await?;
        let mut response = Response::new(v1::ListResponse { hooks: hooks.iter().map(hook_state).collect() });
        response.extensions_mut().insert(HeldByAnswer::new(counted));
        Ok(response)
    }

    type AttachStream = AttachResponses;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<AttachResponses>, Status> {
        self.attacher.attach(&self.callers, request).await.map(Response::new)
    }
}

fn unreachable(problem: &str) -> Status {
    Status::failed_precondition(format!(
        "could not register the hook: its endpoint can't be reached: {problem}; start the server of the hook, and check \
         endpoint.ca_certificates and endpoint.server_name"
    ))
}
