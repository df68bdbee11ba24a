//! A TLS server with slow handlers: protocols, limits and the stop.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::Service;
use hyper::{Request, Response, Version};
use podward_runtime::tls::{
    CertificateSource, ServeReport, ServerLimits, ServingCertificate, TlsMetrics, TlsServer, self_check,
};
use rustls_pki_types::CertificateDer;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Secret, connect, http1, http2, post, text, within};

const SOON: Duration = Duration::from_secs(10);

/// Answers a request when `may_answer` has a permit.
#[derive(Clone)]
struct Gated {
    arrived: Arc<Semaphore>,
    may_answer: Arc<Semaphore>,
}

impl Gated {
    fn new() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), may_answer: Arc::new(Semaphore::new(0)) }
    }

    async fn until_arrived(&self) {
        within(SOON, self.arrived.acquire()).await.unwrap().forget();
    }
}

impl Service<Request<Incoming>> for Gated {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            this.arrived.add_permits(1);
            this.may_answer.acquire().await.unwrap().forget();
            Ok(Response::new(Full::new(Bytes::from(format!("{:?}", request.version())))))
        })
    }
}

struct Running {
    address: SocketAddr,
    cert: CertificateDer<'static>,
    certificate: Arc<ServingCertificate>,
    retire: CancellationToken,
    stop: CancellationToken,
    served: JoinHandle<ServeReport>,
    _secret: Secret,
}

async fn serve(service: Gated, limits: ServerLimits) -> Running {
    let (secret, cert) = Secret::new();
    let certificate = Arc::new(
        ServingCertificate::load(
            CertificateSource::files(secret.cert(), secret.key()),
            TlsMetrics::default(),
        )
        .unwrap(),
    );
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = TlsServer::bind(any, Arc::clone(&certificate), limits).await.unwrap();
    let at = server.address();
    let (retire, stop) = (CancellationToken::new(), CancellationToken::new());
    let (server, address) = (server.retire_connections_from(retire.clone()), at);
    let served = tokio::spawn(server.serve(service, stop.clone()));
    Running { address, cert, certificate, retire, stop, served, _secret: secret }
}

#[tokio::test]
async fn speaks_http1_and_http2_as_the_client_asks() {
    let service = Gated::new();
    service.may_answer.add_permits(3);
    let running = serve(service, ServerLimits::default()).await;
    let stream = connect(running.address, &running.cert, "http/1.1").await.unwrap();
    let mut sender = http1(stream).await;
    for _ in 0..2 {
        let response = sender.send_request(post("/", "")).await.unwrap();
        assert_eq!((response.version(), text(response).await.as_str()), (Version::HTTP_11, "HTTP/1.1"));
        sender.ready().await.unwrap();
    }
    let stream = connect(running.address, &running.cert, "h2").await.unwrap();
    let response = http2(stream).await.send_request(post("/", "")).await.unwrap();
    assert_eq!((response.version(), text(response).await.as_str()), (Version::HTTP_2, "HTTP/2.0"));
}

#[tokio::test]
async fn http1_connections_end_with_an_answer_after_retirement_begins() {
    let service = Gated::new();
    service.may_answer.add_permits(3);
    let running = serve(service, ServerLimits::default()).await;
    let mut old = http1(connect(running.address, &running.cert, "http/1.1").await.unwrap()).await;
    let answer = old.send_request(post("/", "")).await.unwrap();
    assert!(!answer.headers().contains_key("connection"));
    text(answer).await;
    old.ready().await.unwrap();

    running.retire.cancel();
    let mut new = http1(connect(running.address, &running.cert, "http/1.1").await.unwrap()).await;
    for sender in [&mut old, &mut new] {
        let answer = sender.send_request(post("/", "")).await.unwrap();
        assert_eq!(answer.headers()["connection"], "close");
        assert_eq!(text(answer).await, "HTTP/1.1");
        within(SOON, async { while sender.ready().await.is_ok() {} }).await;
    }
}

#[tokio::test]
async fn requests_in_flight_are_answered_when_the_server_stops() {
    let service = Gated::new();
    let running = serve(service.clone(), ServerLimits::default()).await;
    let old = connect(running.address, &running.cert, "http/1.1").await.unwrap();
    let new = connect(running.address, &running.cert, "h2").await.unwrap();
    let idle = connect(running.address, &running.cert, "http/1.1").await.unwrap();
    let (mut old, mut new) = (http1(old).await, http2(new).await);
    let old_answer = tokio::spawn(old.send_request(post("/", "")));
    let new_answer = tokio::spawn(new.send_request(post("/", "")));
    service.until_arrived().await;
    service.until_arrived().await;

    running.stop.cancel();
    // The idle connection and the listener are closed while the two requests still wait for their answers.
    let mut idle = idle;
    within(SOON, idle.read(&mut [0])).await.unwrap_or_default();
    within(SOON, async { while TcpStream::connect(running.address).await.is_ok() {} }).await;
    assert!(!running.served.is_finished() && !old_answer.is_finished() && !new_answer.is_finished());

    service.may_answer.add_permits(2);
    let (old_answer, new_answer) = (old_answer.await.unwrap().unwrap(), new_answer.await.unwrap().unwrap());
    assert_eq!(old_answer.headers()["connection"], "close");
    assert_eq!((text(old_answer).await.as_str(), text(new_answer).await.as_str()), ("HTTP/1.1", "HTTP/2.0"));
    // The HTTP/2 client has received GOAWAY, so it sends no more requests.
    within(SOON, async { while new.ready().await.is_ok() {} }).await;
    assert_eq!(within(SOON, running.served).await.unwrap(), ServeReport { drained: true });
}

#[tokio::test]
async fn the_wait_for_requests_in_flight_is_limited() {
    let service = Gated::new();
    let limits = ServerLimits { drain: Duration::from_millis(100), ..ServerLimits::default() };
    let running = serve(service.clone(), limits).await;
    let mut sender = http1(connect(running.address, &running.cert, "http/1.1").await.unwrap()).await;
    let answer = tokio::spawn(sender.send_request(post("/", "")));
    service.until_arrived().await;
    running.stop.cancel();
    assert_eq!(within(SOON, running.served).await.unwrap(), ServeReport { drained: false });
    assert!(within(SOON, answer).await.unwrap().is_err());
}

#[tokio::test]
async fn clients_that_say_nothing_are_dropped() {
    let service = Gated::new();
    service.may_answer.add_permits(1);
    let short = Duration::from_millis(100);
    let limits =
        ServerLimits { connections: 1, handshake: short, unproven_idle: short, ..ServerLimits::default() };
    let running = serve(service, limits).await;
    // One that never starts a handshake, and one that never sends a request.
    let mut mute = TcpStream::connect(running.address).await.unwrap();
    assert_eq!(within(SOON, mute.read(&mut [0])).await.unwrap(), 0);
    let mut silent = connect(running.address, &running.cert, "http/1.1").await.unwrap();
    within(SOON, silent.read(&mut [0])).await.unwrap_or_default();
    // The limit of one connection is free again.
    let mut sender =
        http1(within(SOON, connect(running.address, &running.cert, "http/1.1")).await.unwrap()).await;
    assert!(within(SOON, sender.send_request(post("/", ""))).await.is_ok());
}

#[tokio::test]
async fn the_self_check_fails_if_the_server_does_not_serve() {
    let service = Gated::new();
    service.may_answer.add_permits(1);
    let running = serve(service.clone(), ServerLimits::default()).await;
    let timeout = Duration::from_millis(500);
    self_check(running.address, &running.certificate, SOON).await.unwrap();
    let slow = self_check(running.address, &running.certificate, timeout).await.unwrap_err();
    assert!(slow.to_string().contains("did not answer within"), "{slow}");

    let other = serve(service, ServerLimits::default()).await;
    let stranger = self_check(other.address, &running.certificate, SOON).await.unwrap_err();
    assert!(stranger.to_string().contains("not ours"), "{stranger}");
    other.stop.cancel();
    other.served.await.unwrap();
    let gone = self_check(other.address, &other.certificate, SOON).await.unwrap_err();
    assert!(gone.to_string().contains("could not talk"), "{gone}");
}
