//! Hook servers, good ones and bad ones.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use podward_proto::v1;
use podward_proto::v1::hook_handler_server::{HookHandler, HookHandlerServer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

type Handler = dyn Fn(Request<v1::HandleRequest>) -> BoxFuture<'static, Result<v1::HandleResponse, Status>>
    + Send
    + Sync;

/// A certificate that is its own authority.
pub(super) struct TestIdentity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl TestIdentity {
    pub(super) fn new() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key }: CertifiedKey<KeyPair> =
            rcgen::generate_simple_self_signed(names).unwrap();
        TestIdentity { certificate: cert.pem(), key: signing_key.serialize_pem() }
    }

    /// As `openssl req -x509 -addext subjectAltName=...` creates it: the certificate of an authority.
    pub(super) fn by_openssl(names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        TestIdentity { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }
}

/// A server that listens; it stops when it is dropped.
pub(super) struct HookServer {
    pub(super) address: SocketAddr,
    pub(super) identity: Arc<TestIdentity>,
    /// Calls that have come, and those of them that have ended, in whatever way.
    pub(super) calls: watch::Receiver<usize>,
    pub(super) ended: watch::Receiver<usize>,
    stop: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
}

struct HandlerService {
    handler: Arc<Handler>,
    calls: Arc<watch::Sender<usize>>,
    ended: Arc<watch::Sender<usize>>,
}

#[tonic::async_trait]
impl HookHandler for HandlerService {
    async fn handle(
        &self,
        request: Request<v1::HandleRequest>,
    ) -> Result<Response<v1::HandleResponse>, Status> {
        /// Also when the call is cancelled.
        struct EndedGuard(Arc<watch::Sender<usize>>);
        impl Drop for EndedGuard {
            fn drop(&mut self) {
                self.0.send_modify(|ended| *ended += 1);
            }
        }
        self.calls.send_modify(|calls| *calls += 1);
        let _ended = EndedGuard(self.ended.clone());
        (self.handler)(request).await.map(Response::new)
    }
}

/// How a server is made.
#[derive(Default)]
pub(super) struct ServerOptions {
    /// Where it listens; anywhere by default.
    pub(super) address: Option<SocketAddr>,
    pub(super) identity: Option<Arc<TestIdentity>>,
    /// What client certificates are checked against, if they are wanted.
    pub(super) client_ca: Option<String>,
}

impl HookServer {
    /// Answers all calls so.
    pub(super) async fn start<F>(
        handler: impl Fn(Request<v1::HandleRequest>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<v1::HandleResponse, Status>> + Send + 'static,
    {
        Self::start_with(ServerOptions::default(), handler).await
    }

    pub(super) async fn start_with<F>(
        options: ServerOptions,
        handler: impl Fn(Request<v1::HandleRequest>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<v1::HandleResponse, Status>> + Send + 'static,
    {
        let (calls, calls_out) = watch::channel(0);
        let (ended, ended_out) = watch::channel(0);
        let (calls, ended) = (Arc::new(calls), Arc::new(ended));
        let handler: Arc<Handler> = Arc::new(move |request| Box::pin(handler(request)));
        let routes = Routes::new(HookHandlerServer::new(HandlerService { handler, calls, ended }));
        Self::serve(options, routes, calls_out, ended_out).await
    }

    /// Speaks HTTP/2, but not gRPC.
    pub(super) async fn start_web(router: axum::Router) -> Self {
        let none = || watch::channel(0).1;
        Self::serve(ServerOptions::default(), Routes::from(router), none(), none()).await
    }

    async fn serve(
        options: ServerOptions,
        routes: Routes,
        calls: watch::Receiver<usize>,
        ended: watch::Receiver<usize>,
    ) -> Self {
        let identity = options.identity.unwrap_or_else(|| Arc::new(TestIdentity::new()));
        let address = options.address.unwrap_or_else(|| "127.0.0.1:0".parse().unwrap());
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tls =
            ServerTlsConfig::new().identity(Identity::from_pem(&identity.certificate, &identity.key));
        if let Some(ca) = options.client_ca {
            tls = tls.client_ca_root(Certificate::from_pem(ca));
        }
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let server = Server::builder().tls_config(tls).unwrap().add_routes(routes);
        let task = tokio::spawn(async move {
            server.serve_with_incoming_shutdown(TcpListenerStream::new(listener), stopped).await.unwrap();
        });
        HookServer { address, identity, calls, ended, stop, task: Some(task) }
    }

    /// The LifecycleHook for it.
    pub(super) fn hook(&self, name: &str, mut spec: Value) -> Value {
        spec["endpoint"] = json!({
            "url": format!("https://{}", self.address), "caCertificates": self.identity.certificate,
        });
        super::hook(name, spec)
    }

    /// Ends, when the calls in flight have.
    pub(super) async fn stop(mut self) -> SocketAddr {
        self.stop.cancel();
        self.task.take().unwrap().await.unwrap();
        self.address
    }
}

impl Drop for HookServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) fn done(detail: &str) -> v1::HandleResponse {
    let level = v1::EvidenceLevel::Proven.into();
    v1::HandleResponse {
        outcome: v1::Outcome::Done.into(),
        evidence: Some(v1::Evidence { level, detail: detail.to_owned() }),
        ..v1::HandleResponse::default()
    }
}

pub(super) fn pending(message: &str) -> v1::HandleResponse {
    v1::HandleResponse {
        outcome: v1::Outcome::Pending.into(),
        message: message.to_owned(),
        retry_after: Some(prost_types::Duration { seconds: 0, nanos: 0 }),
        ..v1::HandleResponse::default()
    }
}
