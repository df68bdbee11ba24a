//! `HookRegistry`.

use std::time::Duration;

use kube::Client;
use podward_api::{Endpoint, InvalidHook};
use podward_proto::v1;
use podward_proto::v1::hook_registry_server::HookRegistry;
use podward_runtime::grpc_client::{Connect, Trust};
use tonic::{Request, Response, Status, Streaming};

use super::attach::{Attacher, Calls};
use super::callers::Callers;
use super::convert::{from_resource, state, to_resource};
use super::store::Store;
use super::warnings::warnings;

/// How long a new hook's endpoint may take to be connected to.
const PROBE: Duration = Duration::from_secs(5);

pub(super) struct Registry {
    pub(super) client: Client,
    pub(super) callers: Callers,
    pub(super) store: Store,
    pub(super) attacher: Attacher,
}

#[tonic::async_trait]
impl HookRegistry for Registry {
    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterResponse>, Status> {
        let who = self.callers.known(&request).await?;
        let hook =
            request.into_inner().hook.ok_or_else(|| Status::invalid_argument("hook: it is missing"))?;
        // The name goes into the question, so that a right may be for one hook. Whether it can be a name is looked at later; strangers
        // are told nothing but that they may not.
        self.callers.check_hooks(&who, "create", Some(&hook.name)).await?;
        let wanted = to_resource(hook)?;
        wanted.to_hook().map_err(|error| invalid(&error))?;
        if let Some(endpoint) = &wanted.spec.endpoint {
            probe(endpoint).await?;
        }
        let warnings = warnings(&self.client, &wanted).await;
        let stored = self.store.put(wanted, &who.user).await?;
        Ok(Response::new(v1::RegisterResponse { hook: Some(from_resource(&stored)), warnings }))
    }

    async fn deregister(
        &self,
        request: Request<v1::DeregisterRequest>,
    ) -> Result<Response<v1::DeregisterResponse>, Status> {
        let who = self.callers.known(&request).await?;
        let name = request.into_inner().name;
        self.callers.check_hooks(&who, "delete", Some(&name)).await?;
        // Also keeps it from being part of a path of the API server's.
        if !is_object_name(&name) {
            return Err(Status::invalid_argument("name: it is not that of any hook"));
        }
        if self.store.remove(&name).await? {
            tracing::info!(hook = name, user = who.user, "a hook was deregistered");
        }
        Ok(Response::new(v1::DeregisterResponse {}))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        let who = self.callers.known(&request).await?;
        self.callers.check_hooks(&who, "list", None).await?;
        let hooks = self.store.list().await?;
        Ok(Response::new(v1::ListResponse { hooks: hooks.iter().map(state).collect() }))
    }

    type AttachStream = Calls;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Calls>, Status> {
        self.attacher.attach(&self.callers, request).await.map(Response::new)
    }
}

/// Whether it can be the name of a namespace, pod or hook: a DNS subdomain.
pub(super) fn is_object_name(name: &str) -> bool {
    let is_edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    bytes.len() <= 253
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(byte))
}

fn invalid(error: &InvalidHook) -> Status {
    // The fields have other names here than in the resource, but not so different that nobody would find them.
    Status::invalid_argument(format!("the hook can't be right: {error}"))
}

async fn probe(endpoint: &Endpoint) -> Result<(), Status> {
    let refused = |problem: String| {
        Status::failed_precondition(format!(
            "the hook's endpoint can't be reached, so it is not registered: {problem}; start its server first, and look at \
             endpoint.ca_certificates and endpoint.server_name"
        ))
    };
    let connect = Connect::new(&endpoint.url, Trust::pem(&endpoint.ca_certificates))
        .and_then(|connect| connect.with_server_name(endpoint.server_name.as_deref().unwrap_or_default()))
        .map_err(|error| Status::invalid_argument(format!("hook.endpoint: {error}")))?;
    connect.probe(PROBE).await.map_err(|error| refused(with_sources(&error)))
}

/// An error and what lies behind it, in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}
