//! A gRPC server over real TLS: limits, deadlines, client certificates, invalid input, and the stop.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{Ready, ready};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Response};
use podward_runtime::admin::Readiness;
use podward_runtime::authn::CertificateUser;
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, Services};
use podward_runtime::grpc_client::{Connect, Trust};
use podward_runtime::tls::{
    AuthoritySource, CertificateSource, ServeReport, ServerLimits, ServingCertificate, TlsMetrics,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::Service;

use crate::support::{connect, http2, within};

const SOON: Duration = Duration::from_secs(10);

/// Returns the user of the caller's certificate, as the text of an error.
#[derive(Clone)]
struct WhoAmI;

impl NamedService for WhoAmI {
    const NAME: &'static str = "test.WhoAmI";
}

impl Service<Request<Body>> for WhoAmI {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let user = request.extensions().get::<Arc<CertificateUser>>();
        let user = user.map_or("nobody", |user| user.identity.user.as_str());
        ready(Ok(Status::already_exists(user).into_http()))
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self, name: &str, until: i32, dir: &tempfile::TempDir) -> (PathBuf, PathBuf) {
        let mut params =
            CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let (cert_path, key_path) =
            (dir.path().join(format!("{name}.crt")), dir.path().join(format!("{name}.key")));
        fs::write(&cert_path, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(&key_path, key.serialize_pem()).unwrap();
        (cert_path, key_path)
    }
}

struct Running {
    address: SocketAddr,
    authority: Authority,
    dir: tempfile::TempDir,
    stop: CancellationToken,
    served: JoinHandle<ServeReport>,
}

impl Running {
    fn connect(&self, trust: Trust) -> tonic::transport::Channel {
        Connect::new(&format!("https://{}", self.address), trust).unwrap().lazy().unwrap()
    }

    fn health(&self) -> HealthClient<tonic::transport::Channel> {
        HealthClient::new(self.connect(Trust::pem(&self.authority.pem)))
    }
}

async fn serve(limits: GrpcLimits) -> Running {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().unwrap());
    let (cert, key) = authority.issue("server", 4000, &dir);
    let ca = dir.path().join("ca.crt");
    fs::write(&ca, &authority.pem).unwrap();
    let source = CertificateSource::files(cert, key);
    let certificate = ServingCertificate::load(source, TlsMetrics::default()).unwrap();
    let certificate = certificate.with_client_ca(AuthoritySource::File(ca)).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = GrpcServer::bind(any, Arc::new(certificate), limits, GrpcMetrics::default()).await.unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    let services = Services::new(tonic_health::pb::FILE_DESCRIPTOR_SET).unwrap().add(WhoAmI).await;
    let served = tokio::spawn(server.serve(services, stop.clone()));
    Running { address, authority, dir, stop, served }
}

fn all() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test]
async fn it_is_ready_while_its_port_serves() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().unwrap());
    let (cert, key) = authority.issue("server", 4000, &dir);
    let source = CertificateSource::files(cert, key);
    let certificate = Arc::new(ServingCertificate::load(source, TlsMetrics::default()).unwrap());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = GrpcLimits::default();
    let server = GrpcServer::bind(any, certificate, limits, GrpcMetrics::default()).await.unwrap();
    let (stop, end) = (CancellationToken::new(), CancellationToken::new());
    let readiness = Readiness::default();
    let checks = tokio::spawn(server.check_repeatedly(readiness.condition("tls"), end.clone()));
    assert_eq!(readiness.missing(), ["tls"]);
    let services = Services::new(tonic_health::pb::FILE_DESCRIPTOR_SET).unwrap().add(WhoAmI).await;
    let served = tokio::spawn(server.serve(services, stop.clone()));
    within(SOON, readiness.met()).await;
    // The port ends, the process does not.
    stop.cancel();
    served.await.unwrap();
    within(SOON * 3, async {
        while readiness.missing().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    end.cancel();
    within(SOON, checks).await.unwrap();
}

#[tokio::test]
async fn health_and_reflection_are_served() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let running = serve(GrpcLimits::default()).await;
    let named = HealthCheckRequest { service: WhoAmI::NAME.to_owned() };
    for request in [all(), named] {
        let answer = running.health().check(request).await.unwrap().into_inner();
        assert_eq!(answer.status, ServingStatus::Serving as i32);
    }
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(running.connect(Trust::pem(&running.authority.pem)));
    let mut answers =
        client.server_reflection_info(futures::stream::iter([request])).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list");
    };
    assert!(list.service.iter().any(|service| service.name == "grpc.health.v1.Health"), "{list:?}");
}

#[tokio::test]
async fn client_certificates_are_checked_and_may_be_missing() {
    let running = serve(GrpcLimits::default()).await;
    let ask = |trust: Trust| {
        let mut client = tonic::client::Grpc::new(running.connect(trust));
        async move {
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = "/test.WhoAmI/Ask".parse().unwrap();
            let codec = tonic_health_codec();
            client.unary(tonic::Request::new(all()), path, codec).await.map(drop)
        }
    };
    let trust = || Trust::pem(&running.authority.pem);
    let shown = |(cert, key): (PathBuf, PathBuf)| trust().with_identity(CertificateSource::files(cert, key));
    let told = |answer: Result<(), Status>| answer.unwrap_err();

    assert_eq!(told(ask(trust()).await).message(), "nobody");
    let jane = running.authority.issue("jane", 4000, &running.dir);
    assert_eq!(told(ask(shown(jane)).await).message(), "jane");
    let expired = running.authority.issue("expired", 2021, &running.dir);
    assert_ne!(told(ask(shown(expired)).await).code(), Code::AlreadyExists);
    let foreign = Authority::new().issue("foreign", 4000, &running.dir);
    assert_ne!(told(ask(shown(foreign)).await).code(), Code::AlreadyExists);
}

/// A codec that is never used, because the answer is an error.
fn tonic_health_codec() -> impl tonic::codec::Codec<Encode = HealthCheckRequest, Decode = HealthCheckRequest>
{
    tonic_prost::ProstCodec::default()
}

#[tokio::test]
async fn too_many_requests_are_refused_and_places_come_back() {
    let running = serve(GrpcLimits { requests: 2, ..GrpcLimits::default() }).await;
    let mut health = running.health();
    let mut first = health.watch(all()).await.unwrap().into_inner();
    let second = health.watch(all()).await.unwrap();
    first.message().await.unwrap().unwrap();
    assert_eq!(health.check(all()).await.unwrap_err().code(), Code::ResourceExhausted);
    drop(second);
    within(SOON, async {
        while health.check(all()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn streams_of_one_connection_are_bounded() {
    let server = ServerLimits { streams: 2, ..ServerLimits::default() };
    let running = serve(GrpcLimits { server, ..GrpcLimits::default() }).await;
    let mut health = running.health();
    let watches = (health.watch(all()).await.unwrap(), health.watch(all()).await.unwrap());
    // The third stream waits until one ends. Another connection has a limit of its own.
    let waiting = tokio::spawn({
        let mut health = health.clone();
        async move { health.check(all()).await }
    });
    running.health().check(all()).await.unwrap();
    assert!(!waiting.is_finished());
    drop(watches);
    within(SOON, waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_deadline_ends_a_stream() {
    let running = serve(GrpcLimits::default()).await;
    let mut request = tonic::Request::new(all());
    request.metadata_mut().insert("grpc-timeout", "50m".parse().unwrap());
    let mut watch = running.health().watch(request).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    assert_eq!(within(SOON, watch.message()).await.unwrap_err().code(), Code::DeadlineExceeded);
    let mut request = tonic::Request::new(all());
    request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    assert_eq!(running.health().check(request).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let running = serve(GrpcLimits::default()).await;
    let mut watch = running.health().watch(all()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    running.stop.cancel();
    let ended = within(SOON, async {
        loop {
            match watch.message().await {
                Ok(answer) => assert_eq!(answer.unwrap().status, ServingStatus::NotServing as i32),
                Err(status) => return status,
            }
        }
    })
    .await;
    assert!(ended.code() == Code::Unavailable && ended.message().contains("being stopped"), "{ended}");
    assert_eq!(within(SOON, running.served).await.unwrap(), ServeReport { drained: true });
}

#[tokio::test]
async fn invalid_input_gets_an_answer_and_harms_no_other_request() {
    // All on one connection without credentials.
    let server = ServerLimits { unproven_requests: 1000, ..ServerLimits::default() };
    let running = serve(GrpcLimits { server, ..GrpcLimits::default() }).await;
    let der = {
        use rustls_pki_types::pem::PemObject;
        rustls_pki_types::CertificateDer::from_pem_slice(running.authority.pem.as_bytes()).unwrap()
    };
    let mut sender = http2(connect(running.address, &der, "h2").await.unwrap()).await;
    let mut runner = TestRunner::new(Config::with_cases(1));
    let paths = prop::sample::select(vec![
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/test.WhoAmI/x",
        "/",
        "/a/b/c",
    ]);
    let rubbish = (paths, prop::collection::vec(any::<u8>(), 0..200), any::<bool>());
    for _ in 0..300 {
        let (path, bytes, framed) = rubbish.new_tree(&mut runner).unwrap().current();
        let mut body = Vec::new();
        if framed {
            // A frame of the right length with any content.
            body.push(0);
            body.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        }
        body.extend(bytes);
        let request = Request::post(format!("https://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "1S")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let response = within(SOON, sender.send_request(request)).await.unwrap();
        let head = response.headers().get("grpc-status").cloned();
        let trailers = within(SOON, response.into_body().collect()).await.unwrap().trailers().cloned();
        let code = head.or_else(|| trailers.and_then(|trailers| trailers.get("grpc-status").cloned()));
        assert!(code.is_some(), "{path}: no status");
    }
    running.health().check(all()).await.unwrap();
}
