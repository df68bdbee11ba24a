//! The client of one hook server: gRPC over TLS.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podward_proto::v1;
use podward_proto::v1::hook_handler_client::HookHandlerClient;
use podward_runtime::grpc_client::system_anchors;
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};
use tonic::{Code, Request, Status};

use super::credentials::Credentials;
use super::registered::Endpoint;
use super::response::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Only while calls are open: servers of the usual libraries close connections that are pinged more often than once in five minutes
/// when nothing is asked of them (gRPC proposals A8 and A9, "too_many_pings").
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
/// An answer is two texts of 1,024 bytes that count; more than this is refused unread.
const LARGEST_ANSWER: usize = 64 * 1024;
const LARGEST_HEADERS: u32 = 16 * 1024;

/// The client. Its one connection is made when it is needed, and again when it fails.
#[derive(Debug)]
pub(super) struct EndpointClient {
    endpoint: Endpoint,
    call_timeout: Duration,
    credentials: Arc<Credentials>,
    connection: Mutex<Option<Connection>>,
}

#[derive(Clone, Debug)]
struct Connection {
    channel: Channel,
    /// Of the client certificate that it was made with.
    identity: u64,
    /// Tells it from another.
    number: u64,
}

impl EndpointClient {
    pub(super) fn new(endpoint: Endpoint, call_timeout: Duration, credentials: Arc<Credentials>) -> Self {
        EndpointClient { endpoint, call_timeout, credentials, connection: Mutex::default() }
    }

    /// Connects, up to the end of the TLS handshake. The connection is kept for the calls to come.
    pub(super) async fn probe(&self) -> Result<(), Failure> {
        let identity = self.credentials.identity()?;
        let version = identity.version;
        let transport = self.transport(identity.identity)?;
        let connect = tokio::time::timeout(CONNECT_TIMEOUT + HANDSHAKE_TIMEOUT, transport.connect());
        let channel = match connect.await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(self.no_connection(&error)),
            Err(_) => return Err(self.no_connection(&TimedOut(CONNECT_TIMEOUT + HANDSHAKE_TIMEOUT))),
        };
        self.keep(channel, version);
        Ok(())
    }

    /// Asks. `traceparent` tells the server of which trace the call is a part.
    pub(super) async fn handle(
        &self,
        request: v1::HandleRequest,
        traceparent: Option<String>,
    ) -> Result<v1::HandleResponse, Failure> {
        let mut request = Request::new(request);
        if let Some(text) = traceparent.and_then(|text| text.parse().ok()) {
            request.metadata_mut().insert("traceparent", text);
        }
        if let Some(token) = self.credentials.bearer()? {
            request.metadata_mut().insert("authorization", token);
        }
        request.set_timeout(self.call_timeout);
        let connection = self.connection()?;
        let mut client = HookHandlerClient::new(connection.channel).max_decoding_message_size(LARGEST_ANSWER);
        let begun = Instant::now();
        match tokio::time::timeout(self.call_timeout, client.handle(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) if begun.elapsed() < self.call_timeout => Err(self.failure(&status)),
            // Client, server and this all look at the time; whoever says so first, it is the same.
            Ok(Err(_)) | Err(_) => {
                // The server may be slow, or the connection dead without a word: the next call finds out with a new one. Calls
                // that are open on this one go on.
                self.leave(connection.number);
                let after = self.call_timeout;
                Err(Failure::answer(format!(
                    "no answer from {} within {after:?} (spec.callTimeoutMilliseconds)",
                    self.endpoint.url
                )))
            }
        }
    }

    fn connection(&self) -> Result<Connection, Failure> {
        let identity = self.credentials.identity()?;
        let present = self.connection.lock().clone();
        if let Some(present) = &present
            && present.identity == identity.version
        {
            return Ok(present.clone());
        }
        let version = identity.version;
        match (self.transport(identity.identity), present) {
            (Ok(transport), _) => Ok(self.keep(transport.connect_lazy(), version)),
            // Read in the middle of a rotation: certificate and key don't fit. What there is serves on.
            (Err(_), Some(present)) => Ok(present),
            (Err(failure), None) => Err(failure),
        }
    }

    fn keep(&self, channel: Channel, identity: u64) -> Connection {
        let mut present = self.connection.lock();
        let number = present.as_ref().map_or(0, |present| present.number) + 1;
        present.insert(Connection { channel, identity, number }).clone()
    }

    fn leave(&self, number: u64) {
        let mut present = self.connection.lock();
        if let Some(connection) = present.as_ref().filter(|present| present.number == number).cloned()
            && let Ok(identity) = self.credentials.identity()
            && let Ok(transport) = self.transport(identity.identity)
        {
            *present = Some(Connection {
                channel: transport.connect_lazy(),
                identity: identity.version,
                number: connection.number + 1,
            });
        }
    }

    fn transport(
        &self,
        identity: Option<tonic::transport::Identity>,
    ) -> Result<tonic::transport::Endpoint, Failure> {
        let Endpoint { url, ca_certificates, server_name } = &self.endpoint;
        let unusable = |error: tonic::transport::Error| {
            Failure::connection(format!("could not make a client for {url}: {}", chain(&error)))
        };
        let mut tls = ClientTlsConfig::new().domain_name(server_name).timeout(HANDSHAKE_TIMEOUT);
        tls = match ca_certificates.is_empty() {
            true => {
                let anchors = system_anchors().map_err(|error| {
                    Failure::connection(format!("could not make a client for {url}: {error}"))
                })?;
                tls.trust_anchors(anchors.iter().cloned())
            }
            false => tls.ca_certificate(Certificate::from_pem(ca_certificates)),
        };
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        tonic::transport::Endpoint::from_shared(url.clone())
            .and_then(|endpoint| endpoint.user_agent(concat!("podward/", env!("CARGO_PKG_VERSION"))))
            .and_then(|endpoint| endpoint.tls_config(tls))
            .map(|endpoint| {
                endpoint
                    .connect_timeout(CONNECT_TIMEOUT)
                    .tcp_keepalive(Some(TCP_KEEPALIVE))
                    .http2_keep_alive_interval(KEEPALIVE)
                    .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                    .keep_alive_while_idle(false)
                    .http2_max_header_list_size(LARGEST_HEADERS)
            })
            .map_err(unusable)
    }

    /// A status that the server sent, or one that the client made up where there was none.
    fn failure(&self, status: &Status) -> Failure {
        let url = &self.endpoint.url;
        // Statuses that came over the wire have no source.
        if let Some(source) = status.source() {
            return match status.code() {
                Code::Unavailable => self.no_connection(source),
                _ => Failure::answer(format!("the call to {url} was cut off: {}", chain(source))),
            };
        }
        let text = format!("{url} answered {:?}: {}", status.code(), status.message());
        match status.code() {
            Code::Unimplemented => {
                Failure::answer(format!("{text}; does a podward.v1.HookHandler listen there?"))
            }
            Code::Unauthenticated | Code::PermissionDenied => Failure::answer(format!(
                "{text}; the hook server refuses Podward's token (--hook-token-file) or client certificate"
            )),
            Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted => Failure::answer(text),
            _ => Failure::question(text),
        }
    }

    fn no_connection(&self, error: &(dyn Error + 'static)) -> Failure {
        let (url, error) = (&self.endpoint.url, chain(error));
        let advice = if error.contains("certificate") {
            "; check spec.endpoint.caCertificates and serverName, and the server's certificate"
        } else {
            ""
        };
        Failure::connection(format!("could not connect to {url}: {error}{advice}"))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("nothing came within {0:?}")]
struct TimedOut(Duration);

/// What the innermost error says, and those around it that say something else. Transports wrap errors in words of no use.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let says_nothing = matches!(text.as_str(), "transport error" | "connection error");
        if !says_nothing && texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}
