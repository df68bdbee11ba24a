//! A fake lifecycle-controller that records deletion requests, with real gRPC and TLS.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use parking_lot::Mutex;
use podward_core::keys::{DELETE_OPERATION, DELETE_TYPE};
use podward_proto::v1;
use podward_proto::v1::lifecycle_server::{Lifecycle, LifecycleServer};
use podward_runtime::grpc_client::{BearerToken, Replicas, Trust};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use validating_webhook::ControllerClient;

/// The behavior of the fake controller.
#[derive(Clone, Debug)]
pub(crate) enum Behavior {
    /// Records the request, and begins the operation with the run [`RUN`].
    Records,
    /// Records the request for the CloneSet of the pod, without an operation.
    LeavesToCloneSet,
    /// Returns this status.
    Fails(Status),
    /// Never responds.
    Hangs,
}

#[derive(Clone)]
pub(crate) struct FakeController {
    address: SocketAddr,
    behavior: Arc<Mutex<Behavior>>,
    requests: Arc<Mutex<Vec<v1::RequestDeletionRequest>>>,
    dir: Arc<TempDir>,
}

const TOKEN: &str = "a-token";
/// The run of the operations.
pub(crate) const RUN: &str = "11";

impl FakeController {
    pub(crate) async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca"), made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("token"), TOKEN).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let controller = Self {
            address: listener.local_addr().unwrap(),
            behavior: Arc::new(Mutex::new(Behavior::Records)),
            requests: Arc::default(),
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

    /// Returns a client of the fake controller.
    pub(crate) fn recorder(&self) -> ControllerClient {
        self.recorder_at(&[self.address])
    }

    /// Returns a client for an address where nothing listens.
    pub(crate) async fn unreachable_recorder(&self) -> ControllerClient {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        self.recorder_at(&[free])
    }

    /// Returns a client of two replicas, of which only the second is running.
    pub(crate) async fn recorder_of_replicas(&self) -> ControllerClient {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        self.recorder_at(&[free, self.address])
    }

    fn recorder_at(&self, addresses: &[SocketAddr]) -> ControllerClient {
        let urls: Vec<String> = addresses.iter().map(|address| format!("https://{address}")).collect();
        let replicas = Replicas::new(&urls, Trust::file(self.dir.path().join("ca"))).unwrap();
        ControllerClient::new(replicas, BearerToken::from_file(self.dir.path().join("token")))
    }

    pub(crate) fn set_behavior(&self, behavior: Behavior) {
        *self.behavior.lock() = behavior;
    }

    pub(crate) fn remove_token_file(&self) {
        std::fs::remove_file(self.dir.path().join("token")).unwrap();
    }

    /// Returns all requests to record.
    pub(crate) fn requests(&self) -> Vec<v1::RequestDeletionRequest> {
        self.requests.lock().clone()
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
            return Err(Status::unauthenticated("wrong token"));
        }
        self.requests.lock().push(request.get_ref().clone());
        let behavior = self.behavior.lock().clone();
        match behavior {
            Behavior::Records | Behavior::LeavesToCloneSet => {
                let v1::RequestDeletionRequest { pod, deletion_request, requester } = request.into_inner();
                let requested_by = requester.unwrap_or_default().user;
                let deletion_request =
                    deletion_request.map(|request| v1::DeletionRequest { requested_by, ..request });
                let operation =
                    v1::Operation { id: DELETE_OPERATION.to_owned(), r#type: DELETE_TYPE.to_owned() };
                let state = v1::OperationState {
                    operation: Some(operation),
                    step: v1::Step::Checking.into(),
                    refused: Vec::new(),
                    run: RUN.to_owned(),
                };
                let operations = if matches!(behavior, Behavior::Records) { vec![state] } else { Vec::new() };
                let lifecycle =
                    v1::PodLifecycle { pod, deletion_request, operations, ..v1::PodLifecycle::default() };
                Ok(Response::new(v1::RequestDeletionResponse { lifecycle: Some(lifecycle) }))
            }
            Behavior::Fails(status) => Err(status),
            Behavior::Hangs => std::future::pending().await,
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
