//! A hook server of a test, where Podward's services reach it.

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
    runtime::wait::await_condition,
};
use podward_api::{HookStatus, LifecycleHook};
use podward_core::hooks::finalizer_of;
use podward_e2e::{NAMESPACE_NAME, Scene};
use podward_proto::v1::{
    self,
    hook_handler_server::{HookHandler, HookHandlerServer},
};
use podward_support::{Cluster, Exposed, WAIT, within};
use serde_json::{Value, json};
use tokio::{net::UnixListener, sync::Mutex, task::JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig},
};

use super::script::Script;

/// A hook server with a script. It serves from the start; its hook is there once it was [`put`](Self::put).
pub(crate) struct HookServer {
    name: String,
    namespace: String,
    cluster: Cluster,
    hooks: Api<LifecycleHook>,
    script: Arc<Script>,
    at: SocketAddr,
    socket: PathBuf,
    port: Mutex<Option<Exposed>>,
    server: JoinHandle<()>,
}

/// It answers by its script.
impl Deref for HookServer {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.script
    }
}

struct Handler(Arc<Script>);

#[tonic::async_trait]
impl HookHandler for Handler {
    async fn handle(
        &self,
        request: Request<v1::HandleRequest>,
    ) -> Result<Response<v1::HandleResponse>, Status> {
        let text = request.metadata().get("traceparent").and_then(|text| text.to_str().ok());
        self.0.called_within(text);
        self.0.handle(request.into_inner()).await.map(Response::new)
    }
}

/// A name for a hook that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst))
}

impl HookServer {
    /// Serves; `name` is the beginning of the hook's name.
    pub(crate) async fn start(scene: &Scene, name: &str) -> Result<Self> {
        let (name, cluster) = (unique(name), scene.cluster().clone());
        let script = Arc::new(Script::default());
        let at = cluster.free_address().await?;
        let pem = cluster.server_certificate(&[&at.ip().to_string()])?;
        let socket = cluster.dir().join(format!("{name}.sock"));
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(pem.cert, pem.key));
        let server = Server::builder()
            .tls_config(tls)
            .context("use the hook server's certificate")?
            .add_service(HookHandlerServer::new(Handler(script.clone())))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let server = tokio::spawn(async move { drop(server.await) });
        let (hooks, namespace) = (Api::all(scene.client()), scene.namespace().to_owned());
        let port = Mutex::default();
        let server = Self { name, namespace, cluster, hooks, script, at, socket, port, server };
        server.come_back().await?;
        Ok(server)
    }

    /// Its hook's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The finalizer by which its hook holds pods.
    pub(crate) fn finalizer(&self) -> String {
        finalizer_of(&self.name)
    }

    /// Ends all connections, and takes no more.
    pub(crate) async fn go_away(&self) -> Result<()> {
        match self.port.lock().await.take() {
            Some(port) => port.end().await,
            None => Ok(()),
        }
    }

    /// Takes connections again, at the same address.
    pub(crate) async fn come_back(&self) -> Result<()> {
        let port = self.cluster.expose(self.at, &self.socket).await?;
        *self.port.lock().await = Some(port);
        Ok(())
    }

    /// The endpoint, as it is written into a LifecycleHook.
    pub(crate) fn endpoint(&self) -> Value {
        json!({"url": format!("https://{}", self.at), "caCertificates": self.cluster.server_ca()})
    }

    /// The endpoint, as it is registered over gRPC.
    pub(crate) fn connection(&self) -> v1::Endpoint {
        v1::Endpoint {
            url: format!("https://{}", self.at),
            ca_certificates: self.cluster.server_ca(),
            server_name: String::new(),
        }
    }

    /// Makes its LifecycleHook, for the pods of the test's namespace, as kubectl would: `spec` is what differs from the defaults.
    pub(crate) async fn put(&self, spec: Value) -> Result<LifecycleHook> {
        put(&self.hooks, &self.name, &self.namespace, self.endpoint(), spec).await
    }

    /// Makes its LifecycleHook and waits until Podward has reached it.
    pub(crate) async fn put_reachable(&self, spec: Value) -> Result<()> {
        self.put(spec).await?;
        self.until_status("it is reachable", |status| has(status, "Reachable", "True")).await.map(drop)
    }

    /// Deletes its LifecycleHook.
    pub(crate) async fn delete(&self) -> Result<()> {
        let deleted = self.hooks.delete(&self.name, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("delete hook {}", self.name))
    }

    /// Waits until the status of its hook is so.
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

/// Makes a LifecycleHook for the pods of `namespace`.
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

/// Waits until the status of the hook `name` is so.
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

/// Whether the condition of this type has this status.
pub(crate) fn has(status: &HookStatus, condition: &str, wanted: &str) -> bool {
    status.conditions.iter().any(|one| one.type_ == condition && one.status == wanted)
}
