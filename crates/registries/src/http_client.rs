//! HTTP/1.1 to the addresses of a registry: over TLS or not, with limits on time and size.

use std::error::Error;
use std::future::Future;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use flate2::read::GzDecoder;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::connection::Connection;
use crate::dialer::Dialer;
use crate::error::{RegistryError, RegistryErrorKind};

/// In bytes. Ten thousand instances with metadata need about 10 MB.
const MAX_RESPONSE: usize = 64 << 20;
/// A server that closes idle connections does so later.
const IDLE: Duration = Duration::from_secs(20);
/// Everything but unreserved characters (RFC 3986).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// In bytes.
const MAX_EXCERPT: usize = 200;

/// A client for all addresses of a registry. Connections are kept for a while.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    client: Client<HttpsConnector<DialConnector>, Full<Bytes>>,
    timeout: Duration,
}

/// A response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpClient {
    /// # Errors
    /// Fails if the TLS options are unusable.
    pub(crate) fn new(connection: &Connection) -> Result<Self, String> {
        let tls = connection.tls.clone().unwrap_or_default().client_config()?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(DialConnector::new(connection));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Self { client, timeout: connection.timeout })
    }

    /// Sends a request, and returns the response whatever its status. `doing` is for errors.
    ///
    /// # Errors
    /// [`Unavailable`](RegistryErrorKind::Unavailable) if no connection could be opened,
    /// [`Unknown`](RegistryErrorKind::Unknown) if the response did not arrive in time or not completely, or is too large.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        doing: &str,
    ) -> Result<HttpResponse, RegistryError> {
        self.send_within(request, doing, self.timeout).await
    }

    /// As [`send`](Self::send), with another timeout: for a request that the server answers late.
    pub(crate) async fn send_within(
        &self,
        mut request: Request<Full<Bytes>>,
        doing: &str,
        timeout: Duration,
    ) -> Result<HttpResponse, RegistryError> {
        let address = origin(request.uri());
        let agent = concat!("podward/", env!("CARGO_PKG_VERSION"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(agent));
        self.exchange(request, timeout).await.map_err(|(kind, reason)| RegistryError {
            doing: doing.to_owned(),
            address,
            reason,
            kind,
        })
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        timeout: Duration,
    ) -> Result<HttpResponse, (RegistryErrorKind, String)> {
        let unknown = |reason: String| (RegistryErrorKind::Unknown, reason);
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| match error.is_connect() {
                true => (RegistryErrorKind::Unavailable, chain(&error)),
                false => unknown(chain(&error)),
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await;
            let body =
                body.map_err(|error| unknown(format!("the response is incomplete: {error}")))?.to_bytes();
            let is_packed = head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
            let body = if is_packed { unpacked(&body).map_err(unknown)? } else { body };
            Ok(HttpResponse { status: head.status, headers: head.headers, body })
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(unknown(format!("no response within {} s", timeout.as_secs_f64()))))
    }
}

impl HttpResponse {
    /// Reads the body as JSON.
    ///
    /// # Errors
    /// [`Invalid`](RegistryErrorKind::Invalid) with the beginning of the body if it is something else.
    pub(crate) fn json<T: DeserializeOwned>(&self, doing: &str, address: &str) -> Result<T, RegistryError> {
        serde_json::from_slice(&self.body).map_err(|error| RegistryError {
            doing: doing.to_owned(),
            address: address.to_owned(),
            reason: format!("the response is not as expected: {error}: {:?}", self.excerpt()),
            kind: RegistryErrorKind::Invalid,
        })
    }

    /// Returns the error of a status that means a failure: [`Denied`](RegistryErrorKind::Denied) for 401 and 403,
    /// [`Unavailable`](RegistryErrorKind::Unavailable) for 429 and 5xx, [`Rejected`](RegistryErrorKind::Rejected) for others.
    pub(crate) fn failure(&self, doing: &str, address: &str) -> RegistryError {
        let kind = match self.status.as_u16() {
            401 | 403 => RegistryErrorKind::Denied,
            429 | 500..=599 => RegistryErrorKind::Unavailable,
            _ => RegistryErrorKind::Rejected,
        };
        let advice = match kind {
            RegistryErrorKind::Denied => "; check the credentials and their permissions",
            _ => "",
        };
        RegistryError {
            doing: doing.to_owned(),
            address: address.to_owned(),
            reason: format!("HTTP status {}: {:?}{advice}", self.status.as_u16(), self.excerpt()),
            kind,
        }
    }

    /// Returns the beginning of the body.
    fn excerpt(&self) -> String {
        let start = &self.body[..self.body.len().min(MAX_EXCERPT)];
        String::from_utf8_lossy(start).trim().to_owned()
    }
}

/// Escapes a part of a path or of a query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Unpacks gzip.
fn unpacked(packed: &[u8]) -> Result<Bytes, String> {
    let mut body = Vec::new();
    let limit = MAX_RESPONSE as u64;
    let read = GzDecoder::new(packed).take(limit + 1).read_to_end(&mut body);
    read.map_err(|error| format!("the response is not gzip: {error}"))?;
    if body.len() > MAX_RESPONSE {
        return Err(format!("the response is larger than {MAX_RESPONSE} bytes"));
    }
    Ok(Bytes::from(body))
}

/// Returns scheme, host and port. Paths and queries may contain credentials.
fn origin(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}", uri.scheme_str().unwrap_or("http"))
}

/// Returns an error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// Opens the connections of HTTP clients.
#[derive(Clone, Debug)]
pub(crate) struct DialConnector(Arc<dyn Dialer>);

impl DialConnector {
    pub(crate) fn new(connection: &Connection) -> Self {
        Self(Arc::clone(&connection.dialer))
    }
}

impl tower::Service<Uri> for DialConnector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialer = Arc::clone(&self.0);
        Box::pin(async move {
            let host = uri.host().ok_or_else(|| io::Error::other("the URL has no host"))?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
            Ok(TokioIo::new(dialer.dial(host, port).await?))
        })
    }
}
