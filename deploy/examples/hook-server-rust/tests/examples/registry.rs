//! As much of Podward as an example speaks to: the registry, on a port of its own. The real one takes part in the
//! end-to-end tests.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use podward_proto::v1::{
    AttachRequest, AttachResponse, DeregisterRequest, DeregisterResponse, Hook, ListRequest, ListResponse,
    RegisterRequest, RegisterResponse,
    hook_registry_server::{HookRegistry, HookRegistryServer},
};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

use crate::{files::Files, program::TIMEOUT};

/// The token that callers must send.
pub(crate) const TOKEN: &str = "a-token";

/// A registry that returns the given errors first, and then the registered hooks and the streams.
pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    hooks: mpsc::UnboundedReceiver<Hook>,
    streams: mpsc::UnboundedReceiver<Attached>,
}

/// The two directions of a stream. Dropping it ends the stream.
pub(crate) struct Attached {
    pub(crate) up: Streaming<AttachRequest>,
    pub(crate) down: mpsc::Sender<Result<AttachResponse, Status>>,
}

struct Service {
    refusals: Mutex<VecDeque<Status>>,
    hooks: mpsc::UnboundedSender<Hook>,
    streams: mpsc::UnboundedSender<Attached>,
}

impl Registry {
    /// Serves with the certificate of `files`. The first answers are `refusals`.
    pub(crate) async fn start(files: &Files, refusals: impl IntoIterator<Item = Status>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (hooks, hooks_out) = mpsc::unbounded_channel();
        let (streams, streams_out) = mpsc::unbounded_channel();
        let service = Service { refusals: Mutex::new(refusals.into_iter().collect()), hooks, streams };
        let identity = Identity::from_pem(files.text("tls.crt"), files.text("tls.key"));
        let server = Server::builder().tls_config(ServerTlsConfig::new().identity(identity)).unwrap();
        let mut server = server;
        let serving = server
            .add_service(HookRegistryServer::from_arc(Arc::new(service)))
            .serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(serving);
        Self { address, hooks: hooks_out, streams: streams_out }
    }

    /// Waits for the next registered hook.
    pub(crate) async fn hook(&mut self) -> Hook {
        timeout(TIMEOUT, self.hooks.recv()).await.expect("nothing was registered").unwrap()
    }

    /// Waits for the next stream.
    pub(crate) async fn stream(&mut self) -> Attached {
        timeout(TIMEOUT, self.streams.recv()).await.expect("no hook attached").unwrap()
    }
}

impl Service {
    fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let expected = format!("Bearer {TOKEN}");
        if request.metadata().get("authorization").is_none_or(|value| value.as_bytes() != expected.as_bytes())
        {
            return Err(Status::unauthenticated("no token"));
        }
        self.refusals.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }
}

#[tonic::async_trait]
impl HookRegistry for Service {
    type AttachStream = ReceiverStream<Result<AttachResponse, Status>>;

    async fn register(
        &self,
        request: Request<RegisterRequest>,
    ) -> Result<Response<RegisterResponse>, Status> {
        self.check(&request)?;
        let hook = request.into_inner().hook.ok_or_else(|| Status::invalid_argument("no hook"))?;
        self.hooks.send(hook.clone()).unwrap();
        let warnings = vec!["it matches no pod at the moment".to_owned()];
        Ok(Response::new(RegisterResponse { hook: Some(hook), warnings }))
    }

    async fn deregister(
        &self,
        _: Request<DeregisterRequest>,
    ) -> Result<Response<DeregisterResponse>, Status> {
        Err(Status::unimplemented("no example does that"))
    }

    async fn list(&self, _: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        Err(Status::unimplemented("no example does that"))
    }

    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        self.check(&request)?;
        let (down, stream) = mpsc::channel(16);
        self.streams.send(Attached { up: request.into_inner(), down }).unwrap();
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}
