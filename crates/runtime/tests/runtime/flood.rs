//! Attacks on the TLS port by clients without credentials: idle and slow connections, floods of connections.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::Service;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podward_runtime::tls::{
    CertificateSource, ConnectionProof, ServerLimits, ServingCertificate, TlsMetrics, TlsServer,
};
use prometheus_client::registry::Registry;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::support::{Secret, connect, http1, http2, post, text, within};

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(100);
/// Never passes in a test.
const LONG: Duration = Duration::from_secs(3600);
const SECRET_PATH: &str = "/secret";
const ENDLESS_PATH: &str = "/endless";

/// Knows two paths. A request to one of them proves the connection. The answer of the second never ends.
#[derive(Clone, Default)]
struct SecretPath {
    /// The number of answers that have not ended.
    endless: Arc<AtomicUsize>,
}

/// Counts an answer until its drop.
struct Endless(Arc<AtomicUsize>);

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service<Request<Incoming>> for SecretPath {
    type Response = Response<BoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let known = [SECRET_PATH, ENDLESS_PATH].contains(&request.uri().path());
        if known {
            request.extensions().get::<ConnectionProof>().unwrap().prove();
        }
        let body = if request.uri().path() == ENDLESS_PATH {
            self.endless.fetch_add(1, Ordering::SeqCst);
            let endless = Endless(self.endless.clone());
            let parts = futures::stream::repeat_with(move || {
                let _ = &endless;
                Ok(Frame::data(Bytes::from(vec![0; 16 << 10])))
            });
            BodyExt::boxed(StreamBody::new(parts))
        } else {
            Full::from("ok").boxed()
        };
        let mut response = Response::new(body);
        *response.status_mut() = if known { StatusCode::OK } else { StatusCode::NOT_FOUND };
        ready(Ok(response))
    }
}

struct Running {
    address: SocketAddr,
    cert: CertificateDer<'static>,
    metrics: Registry,
    endless: Arc<AtomicUsize>,
    _stop: tokio_util::sync::DropGuard,
    _secret: Secret,
}

async fn serve(limits: ServerLimits) -> Running {
    let (secret, cert) = Secret::new();
    let (metrics, mut registry) = (TlsMetrics::default(), Registry::default());
    metrics.register(&mut registry);
    let source = CertificateSource::files(secret.cert(), secret.key());
    let certificate = Arc::new(ServingCertificate::load(source, metrics).unwrap());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = TlsServer::bind(any, certificate, limits).await.unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    let service = SecretPath::default();
    let endless = service.endless.clone();
    tokio::spawn(server.serve(service, stop.clone()));
    Running { address, cert, metrics: registry, endless, _stop: stop.drop_guard(), _secret: secret }
}

impl Running {
    async fn connect(&self, protocol: &str) -> TlsStream<TcpStream> {
        within(SOON, connect(self.address, &self.cert, protocol)).await.unwrap()
    }

    /// Sends a request on a new connection, as the API server does.
    async fn review(&self) -> hyper::client::conn::http1::SendRequest<Full<Bytes>> {
        let mut sender = http1(self.connect("http/1.1").await).await;
        let response = within(SOON, sender.send_request(post(SECRET_PATH, ""))).await.unwrap();
        assert_eq!((response.status(), text(response).await.as_str()), (StatusCode::OK, "ok"));
        sender
    }

    fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// A client that has no room for any byte of an answer's body, and its connection, which ends when the server closes it.
async fn http2_without_window(stream: TlsStream<TcpStream>) -> (SendRequest<Full<Bytes>>, JoinHandle<()>) {
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) =
        builder.initial_stream_window_size(0).handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(async move {
        // The server may close it with an error.
        let _ = connection.await;
    });
    (sender, connection)
}

/// Reads until the server closes the connection.
async fn until_closed(stream: &mut (impl AsyncReadExt + Unpin)) {
    let mut buffer = [0; 1024];
    within(SOON, async { while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {} }).await;
}

async fn until(mut condition: impl FnMut() -> bool) {
    within(SOON, async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Without timeouts, so that nothing but a new connection closes an old one.
fn patient(connections: usize) -> ServerLimits {
    ServerLimits { connections, handshake: LONG, idle: LONG, unproven_idle: LONG, ..ServerLimits::default() }
}

#[tokio::test]
async fn idle_connections_do_not_stop_a_new_review() {
    let running = serve(patient(16)).await;
    let mut idle = Vec::new();
    for index in 0..100 {
        // Some never begin the handshake, the others finish it and say nothing, in both protocols.
        match index % 3 {
            0 => idle.push((Some(TcpStream::connect(running.address).await.unwrap()), None)),
            1 => idle.push((None, Some(running.connect("http/1.1").await))),
            _ => idle.push((None, Some(running.connect("h2").await))),
        }
    }
    running.review().await;
    assert!(running.metric("tls_connections_closed_total{reason=\"replaced\"}") >= 84);
    assert_eq!(running.metric("tls_connections_closed_total{reason=\"refused\"}"), 0);
}

#[tokio::test]
async fn idle_connections_do_not_close_the_connections_of_the_api_server() {
    let running = serve(patient(16)).await;
    let mut senders = Vec::new();
    for _ in 0..4 {
        senders.push(running.review().await);
    }
    // Most of them are replaced while they shake hands.
    let flood = join_all((0..100).map(|_| connect(running.address, &running.cert, "h2")));
    let _flood = within(SOON, flood).await;
    for sender in &mut senders {
        within(SOON, sender.ready()).await.unwrap();
        let response = within(SOON, sender.send_request(post(SECRET_PATH, ""))).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_client_without_the_path_does_not_become_proven() {
    let running = serve(patient(16)).await;
    let mut wrong = http1(running.connect("http/1.1").await).await;
    let response = within(SOON, wrong.send_request(post("/guessed", ""))).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let _right = running.review().await;
    assert_eq!(running.metric("tls_connections{state=\"proven\"}"), 1);
    assert_eq!(running.metric("tls_connections{state=\"unproven\"}"), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_both_protocols() {
    let running = serve(ServerLimits { unproven_idle: SHORT, ..patient(16) }).await;
    for protocol in ["http/1.1", "h2"] {
        until_closed(&mut running.connect(protocol).await).await;
    }
    assert_eq!(running.metric("tls_connections_closed_total{reason=\"idle\"}"), 2);
    assert_eq!(running.metric("tls_connections{state=\"unproven\"}"), 0);
}

#[tokio::test]
async fn an_idle_connection_that_is_proven_is_closed_after_its_own_timeout() {
    let running = serve(ServerLimits { idle: SHORT, ..patient(16) }).await;
    let old = running.review().await;
    until(|| old.is_closed()).await;
    let mut new = http2(running.connect("h2").await).await;
    within(SOON, new.send_request(post(SECRET_PATH, ""))).await.unwrap();
    // It gets GOAWAY.
    until(|| new.is_closed()).await;
}

#[tokio::test]
async fn a_head_that_arrives_slowly_is_cut_off_in_both_protocols() {
    let running = serve(ServerLimits { unproven_idle: SHORT, ..patient(16) }).await;
    let mut old = running.connect("http/1.1").await;
    old.write_all(b"POST /secret HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await.unwrap();
    let mut new = running.connect("h2").await;
    // The preface, empty SETTINGS, and HEADERS without END_HEADERS, which CONTINUATION frames would follow.
    new.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    new.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    new.write_all(&[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x83]).await.unwrap();
    until_closed(&mut old).await;
    until_closed(&mut new).await;
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut_off() {
    let running = serve(ServerLimits { handshake: SHORT, ..patient(16) }).await;
    let mut mute = TcpStream::connect(running.address).await.unwrap();
    until_closed(&mut mute).await;
    // The head of a TLS record of 512 bytes, most of which is missing.
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    slow.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.unwrap();
    until_closed(&mut slow).await;
    let mut wrong = TcpStream::connect(running.address).await.unwrap();
    wrong.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    until_closed(&mut wrong).await;
    assert_eq!(running.metric("tls_handshakes_total{outcome=\"timeout\"}"), 2);
    assert_eq!(running.metric("tls_handshakes_total{outcome=\"failure\"}"), 1);
}

#[tokio::test]
async fn a_client_that_only_guesses_paths_gets_few_requests_on_a_connection() {
    let running = serve(ServerLimits { unproven_requests: 3, ..patient(16) }).await;
    for protocol in ["http/1.1", "h2"] {
        let stream = running.connect(protocol).await;
        let answered = if protocol == "h2" {
            let mut sender = http2(stream).await;
            let mut answered = 0;
            while within(SOON, sender.ready()).await.is_ok()
                && within(SOON, sender.send_request(post("/guessed", ""))).await.is_ok()
            {
                answered += 1;
            }
            answered
        } else {
            let mut sender = http1(stream).await;
            let mut answered = 0;
            while within(SOON, sender.ready()).await.is_ok()
                && within(SOON, sender.send_request(post("/guessed", ""))).await.is_ok()
            {
                answered += 1;
            }
            answered
        };
        assert!((3..10).contains(&answered), "{protocol}: {answered}");
    }
    // A client with the path is not limited.
    let mut sender = running.review().await;
    for _ in 0..10 {
        within(SOON, sender.ready()).await.unwrap();
        text(within(SOON, sender.send_request(post(SECRET_PATH, ""))).await.unwrap()).await;
    }
}

#[tokio::test]
async fn answers_that_are_not_read_count_as_requests() {
    let running = serve(ServerLimits { unproven_requests: 3, unread: LONG, ..patient(16) }).await;
    let (mut sender, connection) = http2_without_window(running.connect("h2").await).await;
    let mut unread = Vec::new();
    for _ in 0..20 {
        // The connection may end meanwhile.
        if sender.ready().await.is_ok() {
            unread.push(tokio::spawn(sender.send_request(post("/guessed", ""))));
        }
    }
    within(SOON, connection).await.unwrap();
    assert_eq!(running.metric("tls_connections_closed_total{reason=\"requests\"}"), 1);
    until(|| running.metric("tls_connections{state=\"unproven\"}") == 0).await;
}

#[tokio::test]
async fn an_unproven_connection_ends_if_its_answer_is_not_read() {
    let limits = ServerLimits { unread: SHORT, ..patient(16) };
    // The request must arrive before its connection is idle for too long.
    for limits in [limits, ServerLimits { unproven_idle: SHORT * 10, unread: LONG, ..limits }] {
        let running = serve(limits).await;
        let (mut sender, connection) = http2_without_window(running.connect("h2").await).await;
        let unread = within(SOON, sender.send_request(post("/guessed", ""))).await.unwrap();
        assert_eq!(unread.status(), StatusCode::NOT_FOUND);
        within(SOON, connection).await.unwrap();
        assert_eq!(running.metric("tls_connections_closed_total{reason=\"unread\"}"), 1);
    }
}

#[tokio::test]
async fn a_request_whose_answer_is_not_read_ends_and_others_of_its_connection_continue() {
    // Long enough for a client that reads, on a machine with much to do.
    let running = serve(ServerLimits { unread: SHORT * 10, ..patient(16) }).await;
    let mut sender = http2(running.connect("h2").await).await;
    let unread = within(SOON, sender.send_request(post(ENDLESS_PATH, ""))).await.unwrap();
    let mut read = within(SOON, sender.send_request(post(ENDLESS_PATH, ""))).await.unwrap();
    let reads = tokio::spawn(async move { while read.frame().await.unwrap().is_ok() {} });
    assert_eq!(running.endless.load(Ordering::SeqCst), 2);
    until(|| running.endless.load(Ordering::SeqCst) == 1).await;
    assert!(!reads.is_finished(), "a client that reads is left alone");
    // What is in the window of the stream is followed by a reset.
    assert!(within(SOON, unread.into_body().collect()).await.is_err());
    let answer = within(SOON, sender.send_request(post(SECRET_PATH, ""))).await.unwrap();
    assert_eq!(text(answer).await, "ok");
    reads.abort();
}

#[tokio::test]
async fn an_http1_connection_ends_if_its_answer_is_not_read() {
    let running = serve(ServerLimits { unread: SHORT, ..patient(16) }).await;
    let mut silent = running.connect("http/1.1").await;
    silent.write_all(b"POST /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    until(|| running.metric("tls_connections_closed_total{reason=\"unread\"}") == 1).await;
    until(|| running.metric("tls_connections{state=\"proven\"}") == 0).await;
}
