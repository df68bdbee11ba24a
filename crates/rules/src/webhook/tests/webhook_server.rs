//! A webhook server on the loopback interface, with or without TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

pub(super) type WebhookAnswer = Response<BoxBody<Bytes, Infallible>>;

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct ReceivedCall {
    pub(super) method: String,
    /// The path with the query.
    pub(super) target: String,
    pub(super) body: serde_json::Value,
    pub(super) traceparent: Option<String>,
}

pub(super) struct WebhookServer {
    pub(super) address: SocketAddr,
    /// The PEM of the authority that signed the certificate.
    pub(super) authority: String,
    pub(super) received: Arc<Mutex<Vec<ReceivedCall>>>,
    _task: AbortOnDropHandle<()>,
}

impl WebhookServer {
    /// Answers every request with `answer`, which gets the number of requests before it.
    pub(super) async fn start<F>(
        tls: bool,
        answer: impl Fn(usize, ReceivedCall) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = WebhookAnswer> + Send + 'static,
    {
        Self::start_with(acceptor(), tls, answer).await
    }

    /// As [`start`](Self::start), with a certificate that is its own authority, as `openssl req -x509` creates it.
    pub(super) async fn start_self_signed<F>(
        answer: impl Fn(usize, ReceivedCall) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = WebhookAnswer> + Send + 'static,
    {
        Self::start_with(self_signed(), true, answer).await
    }

    async fn start_with<F>(
        (acceptor, authority): (TlsAcceptor, String),
        tls: bool,
        answer: impl Fn(usize, ReceivedCall) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = WebhookAnswer> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<ReceivedCall>>> = Arc::default();
        let task = tokio::spawn(serve(listener, tls.then_some(acceptor), received.clone(), answer));
        Self { address, authority, received, _task: AbortOnDropHandle::new(task) }
    }

    pub(super) fn received(&self) -> Vec<ReceivedCall> {
        self.received.lock().clone()
    }
}

fn acceptor() -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    (acceptor_with(certificate.der().clone(), &key), authority.pem())
}

fn self_signed() -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (acceptor_with(certificate.der().clone(), &key), certificate.pem())
}

fn acceptor_with(certificate: CertificateDer<'static>, key: &KeyPair) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve<F>(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    received: Arc<Mutex<Vec<ReceivedCall>>>,
    answer: impl Fn(usize, ReceivedCall) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = WebhookAnswer> + Send + 'static,
{
    // The connections end with the server.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, received, answer) = (acceptor.clone(), received.clone(), answer.clone());
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (received, answer) = (received.clone(), answer.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                    let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
                    let body = serde_json::from_slice(&body).unwrap_or_default();
                    let traceparent = head.headers.get("traceparent");
                    let traceparent = traceparent.and_then(|text| text.to_str().ok()).map(str::to_owned);
                    let one = ReceivedCall { method: head.method.to_string(), target, body, traceparent };
                    let before = {
                        let mut received = received.lock();
                        received.push(one.clone());
                        received.len() - 1
                    };
                    Ok::<_, Infallible>(answer(before, one).await)
                }
            });
            let http = hyper::server::conn::http1::Builder::new();
            // A client may close the connection at any time.
            let _ = match acceptor {
                None => http.serve_connection(TokioIo::new(stream), service).await,
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => http.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => Ok(()),
                },
            };
        });
    }
}

pub(super) fn json(value: serde_json::Value) -> WebhookAnswer {
    text(200, value.to_string())
}

pub(super) fn text(status: u16, text: impl Into<String>) -> WebhookAnswer {
    let body = Full::new(Bytes::from(text.into())).boxed();
    Response::builder().status(status).body(body).unwrap()
}
