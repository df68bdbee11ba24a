//! A hook server of a test that Podward's services can reach.

use std::{
    net::SocketAddr,
    ops::Deref,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use podward_api::{HookStatus, LifecycleHook};
use podward_core::hooks::hook_finalizer;
use podward_e2e::{Fixture, NAMESPACE_NAME};
use podward_proto::v1::{
    self,
    hook_handler_server::{HookHandler, HookHandlerServer},
};
use podward_support::{Cluster, ExposedServer, WAIT, await_condition, within};
use serde_json::{Value, json};
use tokio::{net::UnixListener, sync::Mutex, task::JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig},
};

use super::script::HookScript;

/// A hook server with a script. It serves from the start. Its hook exists after [`put`](Self::put).
pub(crate) struct HookServer {
    name: String,
    namespace: String,
    cluster: Cluster,
    hooks: Api<LifecycleHook>,
    script: Arc<HookScript>,
    at: SocketAddr,
    socket: PathBuf,
    port: Mutex<Option<ExposedServer>>,
    server: JoinHandle<()>,
}

/// The script of its replies.
impl Deref for HookServer {
    type Target = HookScript;

    fn deref(&self) -> &HookScript {
        &self.script
    }
}

struct ScriptHandler(Arc<HookScript>);

#[tonic::async_trait]
impl HookHandler for ScriptHandler {
    async fn handle(
        &self,
        request: Request<v1::HandleRequest>,
    ) -> Result<Response<v1::HandleResponse>, Status> {
        let text = request.metadata().get("traceparent").and_then(|text| text.to_str().ok());
        self.0.called_within(text);
        let header = request.metadata().get("authorization").and_then(|text| text.to_str().ok());
        self.0.called_with_token(header);
        self.0.handle(request.into_inner()).await.map(Response::new)
    }
}

/// Returns a name for a hook that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst))
}

impl HookServer {
    /// Starts the server. `name` is the beginning of the hook's name.
    pub(crate) async fn start(fixture: &Fixture, name: &str) -> Result<Self> {
        let (name, cluster) = (unique(name), fixture.cluster().clone());
        let script = Arc::new(HookScript::default());
        let at = cluster.free_address().await?;
        let pem = cluster.server_certificate(&[&at.ip().to_string()])?;
        let socket = cluster.dir().join(format!("{name}.sock"));
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(pem.cert, pem.key));
        let server = Server::builder()
            .tls_config(tls)
            .context("use the hook server's certificate")?
            .add_service(HookHandlerServer::new(ScriptHandler(script.clone())))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let server = tokio::spawn(async move { drop(server.await) });
        let (hooks, namespace) = (Api::all(fixture.client()), fixture.namespace().to_owned());
        let port = Mutex::default();
        let server = Self { name, namespace, cluster, hooks, script, at, socket, port, server };
        server.come_back().await?;
        Ok(server)
    }

    /// Returns the name of its hook.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the finalizer of its hook.
    pub(crate) fn finalizer(&self) -> String {
        hook_finalizer(&self.name)
    }

    /// Closes all connections and accepts no more.
    pub(crate) async fn shut_down(&self) -> Result<()> {
        match self.port.lock().await.take() {
            Some(port) => port.end().await,
            None => Ok(()),
        }
    }

    /// Accepts connections again, at the same address.
    pub(crate) async fn come_back(&self) -> Result<()> {
        let port = self.cluster.expose(self.at, &self.socket).await?;
        *self.port.lock().await = Some(port);
        Ok(())
    }

    /// Returns the endpoint for a LifecycleHook.
    pub(crate) fn endpoint(&self) -> Value {
        json!({"url": format!("https://{}", self.at), "caCertificates": self.cluster.server_ca()})
    }

    /// Returns the endpoint for a registration over gRPC.
    pub(crate) fn connection(&self) -> v1::Endpoint {
        v1::Endpoint {
            url: format!("https://{}", self.at),
            ca_certificates: self.cluster.server_ca(),
            server_name: String::new(),
        }
    }

    /// Creates its LifecycleHook for the pods of the test's namespace, as kubectl would. `spec` contains what differs
    /// from the defaults.
    pub(crate) async fn put(&self, spec: Value) -> Result<LifecycleHook> {
        put(&self.hooks, &self.name, &self.namespace, self.endpoint(), spec).await
    }

    /// Creates its LifecycleHook and waits until Podward has reached it.
    pub(crate) async fn put_reachable(&self, spec: Value) -> Result<()> {
        self.put(spec).await?;
        self.until_status("it is reachable", |status| has(status, "Reachable", "True")).await.map(drop)
    }

    /// Deletes its LifecycleHook.
    pub(crate) async fn delete(&self) -> Result<()> {
        let deleted = self.hooks.delete(&self.name, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("delete hook {}", self.name))
    }

    /// Waits until `test` is true for the status of its hook.
    pub(crate) async fn until_status(
        &self,
        what: &str,
        test: impl Fn(&HookStatus) -> bool,
    ) -> Result<HookStatus> {
        until_status(&self.hooks, &self.name, what, test).await
    }
}

impl Drop for HookServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Creates a LifecycleHook for the pods of `namespace`.
pub(crate) async fn put(
    hooks: &Api<LifecycleHook>,
    name: &str,
    namespace: &str,
    endpoint: Value,
    mut spec: Value,
) -> Result<LifecycleHook> {
    let fields = spec.as_object_mut().context("a spec is an object")?;
    if !endpoint.is_null() {
        fields.insert("endpoint".to_owned(), endpoint);
    }
    fields.entry("namespaceSelector").or_insert_with(|| json!({"matchLabels": {NAMESPACE_NAME: namespace}}));
    let hook = json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": name}, "spec": spec,
    });
    let hook: LifecycleHook = serde_json::from_value(hook).context("describe a hook")?;
    hooks.create(&PostParams::default(), &hook).await.with_context(|| format!("make hook {name}"))
}

/// Waits until `test` is true for the status of the hook `name`.
pub(crate) async fn until_status(
    hooks: &Api<LifecycleHook>,
    name: &str,
    what: &str,
    test: impl Fn(&HookStatus) -> bool,
) -> Result<HookStatus> {
    let is_so = |hook: Option<&LifecycleHook>| hook.and_then(|hook| hook.status.as_ref()).is_some_and(&test);
    let reached = async {
        let hook = await_condition(hooks.clone(), name, is_so).await.context("watch the hook")?;
        hook.and_then(|hook| hook.status).context("a hook without a status")
    };
    let reached = within(WAIT, || format!("hook {name} until {what}"), reached).await;
    match reached {
        Ok(status) => Ok(status),
        Err(error) => {
            let stands = hooks.get_opt(name).await.ok().flatten().and_then(|hook| hook.status);
            Err(error.context(format!("its status is {stands:?}")))
        }
    }
}

/// Returns whether the condition of this type has this status.
pub(crate) fn has(status: &HookStatus, condition: &str, wanted: &str) -> bool {
    status.conditions.iter().any(|one| one.type_ == condition && one.status == wanted)
}
