//! The traffic-controller registers itself, with a registry that refuses the first request.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podward_proto::v1::hook_registry_server::{HookRegistry, HookRegistryServer};
use podward_proto::v1::{
    AttachRequest, AttachResponse, DeregisterRequest, DeregisterResponse, GateTiming, Hook, ListRequest,
    ListResponse, Phase, RegisterRequest, RegisterResponse,
};
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, Services};
use podward_runtime::tls::{CertificateSource, ServingCertificate, TlsMetrics};
use tokio::sync::mpsc;
use tokio_stream::Empty;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::fixture::{Fixture, TIMEOUT};

/// A registry that refuses the first registration. It reports the others with their tokens.
struct RefusingRegistry {
    refused: Mutex<bool>,
    registered: mpsc::UnboundedSender<(Hook, String)>,
}

#[tonic::async_trait]
impl HookRegistry for RefusingRegistry {
    async fn register(
        &self,
        request: Request<RegisterRequest>,
    ) -> Result<Response<RegisterResponse>, Status> {
        if !std::mem::replace(&mut *self.refused.lock(), true) {
            return Err(Status::unavailable("try again"));
        }
        let token = request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
        let hook = request.into_inner().hook;
        let _ = self.registered.send((hook.clone().unwrap(), token));
        Ok(Response::new(RegisterResponse { hook, warnings: Vec::new() }))
    }

    async fn deregister(
        &self,
        _: Request<DeregisterRequest>,
    ) -> Result<Response<DeregisterResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list(&self, _: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    type AttachStream = Empty<Result<AttachResponse, Status>>;

    async fn attach(
        &self,
        _: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

pub(crate) async fn it_registers_itself(fixture: &Fixture) {
    let dir = fixture.cluster.dir();
    let pem = fixture.cluster.server_certificate(&["127.0.0.1"]).unwrap();
    let (cert, key) = (dir.join("registry.crt"), dir.join("registry.key"));
    std::fs::write(&cert, pem.cert).unwrap();
    std::fs::write(&key, pem.key).unwrap();
    let certificates = Arc::new(
        ServingCertificate::load(CertificateSource::files(&cert, &key), TlsMetrics::default()).unwrap(),
    );
    let any = ([127, 0, 0, 1], 0).into();
    let server =
        GrpcServer::bind(any, certificates, GrpcLimits::default(), GrpcMetrics::default()).await.unwrap();
    let url = format!("https://{}", server.address());
    let (registered, mut registrations) = mpsc::unbounded_channel();
    let registry = HookRegistryServer::new(RefusingRegistry { refused: Mutex::new(false), registered });
    let services = Services::new(podward_proto::FILE_DESCRIPTOR_SET).unwrap().add(registry).await;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve(services, stop.clone()));

    let token = dir.join("token");
    std::fs::write(&token, "secret").unwrap();
    // The process runs on the host, because the registry does.
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_traffic-controller"));
    command
        .args(["--bind", "127.0.0.1:0", "--admin-bind", "127.0.0.1:0", "--controller-url", &url])
        .args(["--advertise-url", "https://traffic.example:9443"])
        .args([std::ffi::OsStr::new("--kubeconfig"), fixture.cluster.kubeconfig().as_os_str()])
        .args([std::ffi::OsStr::new("--tls-cert"), cert.as_os_str()])
        .args([std::ffi::OsStr::new("--tls-key"), key.as_os_str()])
        .args([std::ffi::OsStr::new("--token-file"), token.as_os_str()])
        .args([std::ffi::OsStr::new("--controller-ca"), fixture.ca.as_os_str()])
        .args([std::ffi::OsStr::new("--advertise-ca"), fixture.ca.as_os_str()])
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    let mut process = command.spawn().unwrap();
    let (hook, shown) = tokio::time::timeout(TIMEOUT, registrations.recv()).await.unwrap().unwrap();
    assert_eq!(shown, "Bearer secret");
    assert_eq!(hook.name, "traffic-controller");
    assert_eq!(hook.complete_timing(), GateTiming::AfterGate);
    assert_eq!(
        hook.phases().collect::<Vec<_>>(),
        [Phase::PreCheck, Phase::Prepare, Phase::Complete, Phase::Release]
    );
    assert!(hook.pod_selector.is_none() && hook.namespace_selector.is_none(), "all opted-in pods");
    let Some(podward_proto::v1::hook::Connection::Endpoint(endpoint)) = hook.connection else {
        panic!("{hook:?}")
    };
    assert_eq!(endpoint.url, "https://traffic.example:9443");
    assert_eq!(endpoint.ca_certificates, fixture.cluster.ca_pem());
    process.kill().await.unwrap();
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), serving).await.unwrap().unwrap();
}
