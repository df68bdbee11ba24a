//! HTTP/1.1 to the addresses of a registry: over TLS or not, with limits on time and size.

mod body;
mod response;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::detail::{DetailLog, chain, connect_problem};
use crate::dialer::Dialer;
use crate::error::{RegistryError, RegistryErrorKind};
use crate::limits::{LARGE_TIME, LargeRead, LargeReads, SMALL};

use self::body::BodyError;

pub(crate) use self::response::HttpResponse;

/// A server that closes idle connections does so later.
const IDLE: Duration = Duration::from_secs(20);
/// Everything but unreserved characters (RFC 3986).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A client for all addresses of a registry. Connections are kept for a while.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    client: Client<HttpsConnector<DialConnector>, Full<Bytes>>,
    timeout: Duration,
    large: LargeReads,
    details: Arc<DetailLog>,
}

/// Whether the body of a successful response is kept, whether it may be large, and the right to keep a large one.
struct Keeping {
    is_kept: bool,
    may_be_large: bool,
    place: Option<LargeRead>,
}

/// Why there is no response: the kind, a text for the user, and details for the log.
struct Failure {
    kind: RegistryErrorKind,
    reason: String,
    detail: Option<String>,
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
        let details = Arc::new(DetailLog::new(&connection.credentials));
        Ok(Self { client, timeout: connection.timeout, large: LargeReads::default(), details })
    }

    /// Sends a request, and returns the response whatever its status. `doing` is for errors.
    ///
    /// # Errors
    /// [`Unavailable`](RegistryErrorKind::Unavailable) if no connection could be opened,
    /// [`Unknown`](RegistryErrorKind::Unknown) if the response did not arrive in time or not completely, and if that to a
    /// change is too large. [`Invalid`](RegistryErrorKind::Invalid) if that to a read is too large.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        doing: &str,
    ) -> Result<HttpResponse, RegistryError> {
        self.send_with(request, doing, None).await
    }

    /// As [`send`](Self::send), for a read of several calls. `place` is from the response to an earlier one.
    pub(crate) async fn send_with(
        &self,
        request: Request<Full<Bytes>>,
        doing: &str,
        place: Option<LargeRead>,
    ) -> Result<HttpResponse, RegistryError> {
        let timeout = match &place {
            Some(place) => self.timeout.min(place.until.saturating_duration_since(Instant::now())),
            None => self.timeout,
        };
        self.exchange(request, doing, timeout, Keeping { is_kept: true, may_be_large: true, place }).await
    }

    /// As [`send`](Self::send), for a login. A read may have the right to read much meanwhile, so the response must not be
    /// large.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Invalid`](RegistryErrorKind::Invalid) if the response has more than [`SMALL`] bytes.
    pub(crate) async fn login(
        &self,
        request: Request<Full<Bytes>>,
        doing: &str,
    ) -> Result<HttpResponse, RegistryError> {
        let keeping = Keeping { is_kept: true, may_be_large: false, place: None };
        self.exchange(request, doing, self.timeout, keeping).await
    }

    /// As [`send`](Self::send), with another timeout, for a request that the server answers late. The response is without the
    /// body if it is successful.
    pub(crate) async fn watch(
        &self,
        request: Request<Full<Bytes>>,
        doing: &str,
        timeout: Duration,
    ) -> Result<HttpResponse, RegistryError> {
        let keeping = Keeping { is_kept: false, may_be_large: true, place: None };
        self.exchange(request, doing, timeout, keeping).await
    }

    /// Waits for the right to read much by several calls.
    ///
    /// # Errors
    /// Fails as [`LargeReads::begin`].
    pub(crate) async fn begin_large(&self) -> Result<LargeRead, String> {
        self.large.begin().await
    }

    /// Writes what an error hides into the log.
    pub(crate) fn log(&self, error: &RegistryError, detail: &str) {
        self.details.write(error, detail);
    }

    async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        doing: &str,
        timeout: Duration,
        keeping: Keeping,
    ) -> Result<HttpResponse, RegistryError> {
        let address = origin(request.uri());
        let agent = concat!("podward/", env!("CARGO_PKG_VERSION"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(agent));
        let response = self.response(request, timeout, keeping).await;
        response.map_err(|Failure { kind, reason, detail }| {
            let error = RegistryError { doing: doing.to_owned(), address, reason, kind };
            if let Some(detail) = detail {
                self.details.write(&error, &detail);
            }
            error
        })
    }

    async fn response(
        &self,
        request: Request<Full<Bytes>>,
        timeout: Duration,
        keeping: Keeping,
    ) -> Result<HttpResponse, Failure> {
        let is_read = request.method() == Method::GET;
        let deadline = Instant::now() + timeout;
        let late = || Failure {
            kind: RegistryErrorKind::Unknown,
            reason: format!("no response within {} s", timeout.as_secs_f64()),
            detail: None,
        };
        let unknown = |reason: &str, detail: String| Failure {
            kind: RegistryErrorKind::Unknown,
            reason: format!("{reason}; the log of the bridge has the details"),
            detail: Some(detail),
        };
        let response = tokio::time::timeout_at(deadline, self.client.request(request)).await;
        let response = response.map_err(|_| late())?.map_err(|error| match error.is_connect() {
            true => Failure {
                kind: RegistryErrorKind::Unavailable,
                reason: connect_problem(&error),
                detail: Some(chain(&error)),
            },
            false => unknown("the response is lost, or is not one of HTTP", chain(&error)),
        })?;
        let (head, body) = response.into_parts();
        let is_packed = head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
        let is_kept = keeping.is_kept || !head.status.is_success();
        let place = (keeping.may_be_large.then_some(&self.large), keeping.place);
        let content = body::read(body, place, is_packed && is_kept, is_kept, deadline).await;
        let content = content.map_err(|error| match error {
            BodyError::Exceeded(exceeded) => Failure {
                kind: if is_read { RegistryErrorKind::Invalid } else { RegistryErrorKind::Unknown },
                reason: exceeded.to_string(),
                detail: None,
            },
            BodyError::Late => late(),
            BodyError::Busy(reason) => Failure {
                kind: if is_read { RegistryErrorKind::Unavailable } else { RegistryErrorKind::Unknown },
                reason,
                detail: None,
            },
            BodyError::NotSmall => Failure {
                kind: RegistryErrorKind::Invalid,
                reason: format!(
                    "the response to a login has more than {} KiB; check the address",
                    SMALL >> 10
                ),
                detail: None,
            },
            BodyError::Slow => Failure {
                kind: RegistryErrorKind::Unknown,
                reason: format!("a large response did not arrive within {} s", LARGE_TIME.as_secs()),
                detail: None,
            },
            BodyError::NotGzip => unknown("the response is not gzip", String::new()),
            BodyError::Lost(reason) => unknown("the response is incomplete", reason),
        })?;
        Ok(HttpResponse {
            status: head.status,
            headers: head.headers,
            body: content.bytes,
            details: Arc::clone(&self.details),
            place: content.place,
        })
    }
}

/// Escapes a part of a path or of a query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns scheme, host and port. Paths and queries may contain credentials.
fn origin(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}", uri.scheme_str().unwrap_or("http"))
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
