//! A lifecycle-controller that only records wishes, over real gRPC and TLS, in every mood.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use parking_lot::Mutex;
use podward_proto::v1;
use podward_proto::v1::lifecycle_server::{Lifecycle, LifecycleServer};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use validating_webhook::{Controller, ControllerArgs};

/// What it does.
#[derive(Clone, Debug)]
pub(crate) enum Mood {
    Records,
    /// Answers with this.
    Fails(Status),
    /// Never answers.
    Sleeps,
}

#[derive(Clone)]
pub(crate) struct FakeController {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    asked: Arc<Mutex<Vec<v1::RequestDeletionRequest>>>,
    dir: Arc<TempDir>,
}

const TOKEN: &str = "a-token";

impl FakeController {
    pub(crate) async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca"), made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("token"), TOKEN).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let controller = Self {
            address: listener.local_addr().unwrap(),
            mood: Arc::new(Mutex::new(Mood::Records)),
            asked: Arc::default(),
            dir: Arc::new(dir),
        };
        let identity = Identity::from_pem(made.cert.pem(), made.signing_key.serialize_pem());
        let service = LifecycleServer::new(controller.clone());
        let server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(identity))
            .unwrap()
            .add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        controller
    }

    /// The way to it.
    pub(crate) fn recorder(&self) -> Controller {
        self.recorder_at(&[self.address])
    }

    /// The way to where nobody is.
    pub(crate) async fn recorder_of_nobody(&self) -> Controller {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        self.recorder_at(&[free])
    }

    /// The way to several replicas, of which only the last is there.
    pub(crate) async fn recorder_of_replicas(&self) -> Controller {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        self.recorder_at(&[free, self.address])
    }

    fn recorder_at(&self, addresses: &[SocketAddr]) -> Controller {
        Controller::new(&ControllerArgs {
            controller_url: addresses.iter().map(|address| format!("https://{address}")).collect(),
            controller_ca: self.dir.path().join("ca"),
            token_file: self.dir.path().join("token"),
        })
        .unwrap()
    }

    pub(crate) fn be(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    pub(crate) fn forget_the_token(&self) {
        std::fs::remove_file(self.dir.path().join("token")).unwrap();
    }

    /// The wishes that it was asked to record.
    pub(crate) fn asked(&self) -> Vec<v1::RequestDeletionRequest> {
        self.asked.lock().clone()
    }
}

#[tonic::async_trait]
impl Lifecycle for FakeController {
    async fn request_deletion(
        &self,
        request: Request<v1::RequestDeletionRequest>,
    ) -> Result<Response<v1::RequestDeletionResponse>, Status> {
        let token = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        if token != Some(&format!("Bearer {TOKEN}")) {
            return Err(Status::unauthenticated("who are you?"));
        }
        self.asked.lock().push(request.get_ref().clone());
        let mood = self.mood.lock().clone();
        match mood {
            Mood::Records => {
                let v1::RequestDeletionRequest { pod, wish } = request.into_inner();
                let lifecycle = v1::PodLifecycle { pod, deletion_wish: wish, ..v1::PodLifecycle::default() };
                Ok(Response::new(v1::RequestDeletionResponse { lifecycle: Some(lifecycle) }))
            }
            Mood::Fails(status) => Err(status),
            Mood::Sleeps => std::future::pending().await,
        }
    }

    async fn begin(&self, _: Request<v1::BeginRequest>) -> Result<Response<v1::BeginResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn finish(&self, _: Request<v1::FinishRequest>) -> Result<Response<v1::FinishResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn cancel(&self, _: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn busy(&self, _: Request<v1::BusyRequest>) -> Result<Response<v1::BusyResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}
