//! Attacks on the gRPC port: messages of callers without credentials, and messages that are large, slow or many.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::join_all;
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podward_runtime::authn::{Authenticator, Identity};
use podward_runtime::budget::ByteBudget;
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, Services};
use podward_runtime::tls::{CertificateSource, ServingCertificate, TlsMetrics};
use rustls_pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::Service;

use crate::authn::Reviews;
use crate::support::{Secret, connect_from, within};

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(100);
const READ: &str = "/test.Reader/Read";
const HEALTH: &str = "/grpc.health.v1.Health/Watch";
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Reads the whole body and returns OK. Fails unless the caller is Jane.
#[derive(Clone, Default)]
struct Reader {
    asked: Arc<AtomicUsize>,
}

impl NamedService for Reader {
    const NAME: &'static str = "test.Reader";
}

impl Service<Request<Body>> for Reader {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let jane = request.extensions().get::<Arc<Identity>>().is_some_and(|caller| caller.user == "jane");
        Box::pin(async move {
            let status = match request.into_body().collect().await {
                Ok(_) if jane => Status::ok(""),
                Ok(_) => Status::internal("the caller is not known"),
                Err(status) => status,
            };
            Ok(status.into_http())
        })
    }
}

struct Running {
    address: SocketAddr,
    cert: CertificateDer<'static>,
    reader: Reader,
    reviews: Reviews,
    _stop: tokio_util::sync::DropGuard,
    _secret: Secret,
}

async fn serve(limits: GrpcLimits, budget: usize) -> Running {
    let (secret, cert) = Secret::new();
    let source = CertificateSource::files(secret.cert(), secret.key());
    let certificate = Arc::new(ServingCertificate::load(source, TlsMetrics::default()).unwrap());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = GrpcServer::bind(any, certificate, limits, GrpcMetrics::default()).await.unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    let (reader, reviews) = (Reader::default(), Reviews::default());
    let services = Services::new(tonic_health::pb::FILE_DESCRIPTOR_SET).unwrap();
    let services = services.authenticate(Arc::new(Authenticator::new(reviews.client(), None)));
    let services = services.add(reader.clone()).await;
    tokio::spawn(server.within(ByteBudget::new(budget)).serve(services, stop.clone()));
    Running { address, cert, reader, reviews, _stop: stop.drop_guard(), _secret: secret }
}

/// A request whose body the test sends, and which stays open as long as the test keeps the sender.
type OpenBody = mpsc::Sender<Bytes>;

struct Client(SendRequest<BoxBody<Bytes, Infallible>>);

impl Running {
    async fn client(&self, last: u8) -> Client {
        self.client_with_window(last, 65_535).await
    }

    /// Returns a client with room for so many bytes of an answer.
    async fn client_with_window(&self, last: u8, bytes: u32) -> Client {
        let stream = connect_from([127, 0, 0, last].into(), self.address, &self.cert, "h2").await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let handshake = builder.initial_stream_window_size(bytes).handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        Client(sender)
    }
}

impl Client {
    /// Begins a request. Its future is the code that it ends with.
    fn begin(&mut self, path: &str, token: Option<&str>) -> (OpenBody, impl Future<Output = Code> + use<>) {
        let authorization = token.map(|token| ("authorization", format!("Bearer {token}")));
        let (sender, response) = self.open(path, authorization);
        let code = async move {
            let response = response.await.unwrap();
            let code =
                |headers: &hyper::HeaderMap| Status::from_header_map(headers).map(|status| status.code());
            if let Some(code) = code(response.headers()) {
                return code;
            }
            let body = response.into_body().collect().await.unwrap();
            body.trailers().and_then(code).unwrap()
        };
        (sender, code)
    }

    /// Begins a request with one more header. Its future is the response, whose body is not read.
    fn open(
        &mut self,
        path: &str,
        header: Option<(&str, String)>,
    ) -> (OpenBody, impl Future<Output = hyper::Result<Response<Incoming>>> + use<>) {
        let (sender, receiver) = mpsc::channel::<Bytes>(16);
        let body = StreamBody::new(receiver.map(|data| Ok::<_, Infallible>(Frame::data(data))));
        let mut request = Request::post(format!("https://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        (sender, self.0.send_request(request.body(BodyExt::boxed(body)).unwrap()))
    }

    /// Sends a whole message of `length` bytes, and returns the code.
    async fn send(&mut self, path: &str, token: Option<&str>, length: usize) -> Code {
        let (mut body, code) = self.begin(path, token);
        body.send(message(length, length)).await.unwrap();
        drop(body);
        within(SOON, code).await
    }
}

/// A message that announces `length` bytes and has `sent` of them.
fn message(length: usize, sent: usize) -> Bytes {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
    bytes.resize(5 + sent, 0);
    bytes.into()
}

#[tokio::test]
async fn messages_without_credentials_are_refused_before_they_are_read() {
    let running = serve(GrpcLimits::default(), 1 << 20).await;
    let mut client = running.client(1).await;
    for token in [None, Some("stolen")] {
        // A message of 1 MiB that never ends.
        let (mut bodies, mut codes) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let (mut body, code) = client.begin(READ, token);
            body.send(message(1 << 20, 4096)).await.unwrap();
            bodies.push(body);
            codes.push(code);
        }
        for code in within(SOON, join_all(codes)).await {
            assert_eq!(code, Code::Unauthenticated);
        }
    }
    assert_eq!(running.reader.asked.load(Ordering::SeqCst), 0);
    assert_eq!(client.send(READ, Some("good"), 10).await, Code::Ok);
    assert_eq!(client.send("/test.Unknown/Read", Some("good"), 10).await, Code::Unimplemented);
}

#[tokio::test]
async fn messages_in_flight_share_one_budget_of_bytes() {
    let running = serve(GrpcLimits::default(), 10_000).await;
    let mut client = running.client(1).await;
    assert_eq!(client.send(READ, Some("good"), 9000).await, Code::Ok);
    let (mut held, ends) = client.begin(READ, Some("good"));
    held.send(message(9000, 8000)).await.unwrap();
    until(|| running.reader.asked.load(Ordering::SeqCst) == 2).await;
    within(SOON, async {
        // The first part of the message may still be on its way.
        while client.send(READ, Some("good"), 9000).await != Code::ResourceExhausted {}
    })
    .await;
    held.send(Bytes::from(vec![0; 1000])).await.unwrap();
    drop(held);
    assert_eq!(within(SOON, ends).await, Code::Ok);
    assert_eq!(client.send(READ, Some("good"), 9000).await, Code::Ok);
}

#[tokio::test]
async fn messages_that_are_announced_and_not_sent_hold_nothing() {
    let running = serve(GrpcLimits::default(), 10_000).await;
    let mut client = running.client(1).await;
    let mut open = Vec::new();
    // As many as one connection can have.
    for _ in 0..249 {
        let (mut body, code) = client.begin(READ, Some("good"));
        body.send(message(1 << 20, 0)).await.unwrap();
        open.push((body, code));
    }
    until(|| running.reader.asked.load(Ordering::SeqCst) == 249).await;
    assert_eq!(client.send(READ, Some("good"), 8000).await, Code::Ok);
}

#[tokio::test]
async fn a_message_that_arrives_slowly_ends_its_request() {
    let limits = GrpcLimits { message_timeout: SHORT, ..GrpcLimits::default() };
    let running = serve(limits, 10_000).await;
    let mut client = running.client(1).await;
    let (mut body, code) = client.begin(READ, Some("good"));
    body.send(message(100, 50)).await.unwrap();
    assert_eq!(within(SOON, code).await, Code::DeadlineExceeded);
    // Between two messages a stream may wait.
    let (mut body, code) = client.begin(READ, Some("good"));
    body.send(message(100, 100)).await.unwrap();
    tokio::time::sleep(SHORT * 2).await;
    body.send(message(100, 100)).await.unwrap();
    drop(body);
    assert_eq!(within(SOON, code).await, Code::Ok);
}

#[tokio::test]
async fn wrong_tokens_of_one_peer_do_not_keep_out_another_peer() {
    let limits = GrpcLimits { unknown_requests: 4, ..GrpcLimits::default() };
    let running = serve(limits, 10_000).await;
    // The API server does not answer, so the tokens stay unknown.
    running.reviews.hang();
    let mut flood = running.client(1).await;
    let mut open = Vec::new();
    for index in 0..2 {
        let (body, code) = flood.begin(READ, Some(&format!("wrong-{index}")));
        open.push((body, code));
    }
    running.reviews.until_asked(2).await;
    assert_eq!(flood.send(READ, Some("wrong"), 1).await, Code::ResourceExhausted);
    let mut other = running.client(2).await;
    let (body, code) = other.begin(READ, Some("good"));
    drop(body);
    running.reviews.until_asked(3).await;
    running.reviews.answer_again();
    assert_eq!(within(SOON, code).await, Code::Ok);
}

#[tokio::test]
async fn wrong_tokens_on_a_proven_connection_do_not_keep_out_another_peer() {
    let running = serve(GrpcLimits::default(), 10_000).await;
    let mut flood = running.client(1).await;
    assert_eq!(flood.send(READ, Some("good"), 1).await, Code::Ok);
    running.reviews.asked();
    running.reviews.hang();
    let mut open = Vec::new();
    for index in 0..40 {
        let (body, code) = flood.begin(READ, Some(&format!("wrong-{index}")));
        open.push((body, code));
    }
    // Its requests with the token that is known go on.
    assert_eq!(flood.send(READ, Some("good"), 1).await, Code::Ok);
    running.reviews.until_asked(8).await;
    let mut other = running.client(2).await;
    let (body, code) = other.begin(READ, Some("of another peer"));
    drop(body);
    running.reviews.until_asked(9).await;
    assert_eq!(running.reviews.asked(), 9, "the other reviews were begun by the first peer");
    running.reviews.answer_again();
    assert_eq!(within(SOON, code).await, Code::Unauthenticated);
}

#[tokio::test]
async fn open_services_do_not_take_the_places_of_callers() {
    let limits = GrpcLimits { open_requests: 4, open_timeout: SHORT, requests: 4, ..GrpcLimits::default() };
    let running = serve(limits, 10_000).await;
    let mut client = running.client(1).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let (mut body, code) = client.begin(HEALTH, None);
        body.send(message(0, 0)).await.unwrap();
        open.push((body, Box::pin(code)));
    }
    within(SOON, async { while client.send(HEALTH, None, 0).await != Code::ResourceExhausted {} }).await;
    assert_eq!(client.send(READ, Some("good"), 10).await, Code::Ok);
    // A stream to an open service ends.
    for (_, code) in open {
        assert_eq!(within(SOON, code).await, Code::DeadlineExceeded);
    }
}

#[tokio::test]
async fn streams_that_are_not_read_end_at_their_deadline() {
    // The head of the answer comes before the deadline.
    let of_server = GrpcLimits { open_timeout: SHORT * 10, ..GrpcLimits::default() };
    let of_client = Some(("grpc-timeout", "1S".to_owned()));
    for (limits, deadline) in [(of_server, None), (GrpcLimits::default(), of_client)] {
        let running = serve(GrpcLimits { open_requests: 4, ..limits }, 10_000).await;
        let mut unread = Vec::new();
        // Two addresses have all places.
        for last in [1, 1, 2, 2] {
            let mut client = running.client_with_window(last, 0).await;
            let (mut body, response) = client.open(HEALTH, deadline.clone());
            body.send(message(0, 0)).await.unwrap();
            drop(body);
            unread.push((client, within(SOON, response).await.unwrap()));
        }
        for (_client, response) in unread {
            // There is no room for a message, so this waits until the server resets the stream.
            assert!(within(SOON, response.into_body().collect()).await.is_err());
        }
        let mut other = running.client(3).await;
        assert_eq!(other.send(CHECK, None, 0).await, Code::Ok);
    }
}

async fn until(mut condition: impl FnMut() -> bool) {
    within(SOON, async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
