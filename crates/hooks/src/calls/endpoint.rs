//! The client of one hook server: gRPC over TLS.

use std::error::Error;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podward_proto::v1;
use podward_proto::v1::hook_handler_client::HookHandlerClient;
use podward_runtime::address_policy::DialError;
use podward_runtime::error_chain;
use tokio::time::Instant;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, ConnectError, Request, Status};

use crate::calls::connector::{BoxError, HookConnector, LONGEST_CONNECT};
use crate::calls::credentials::{ClientPair, HookCredentials};
use crate::calls::token::HookToken;
use crate::questions::failure::CallFailure;
use crate::registration::registered::HookEndpoint;

/// Only while calls are open: servers of the usual libraries close connections that are pinged more often than once in
/// five minutes when nothing is asked of them (gRPC proposals A8 and A9, "too_many_pings").
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer is two texts of 1,024 bytes that count; more than this is refused unread.
const LARGEST_ANSWER: usize = 64 * 1024;
const LARGEST_HEADERS: u32 = 16 * 1024;

/// The client. It connects when it is first used, and again when the connection fails.
#[derive(Debug)]
pub(crate) struct EndpointClient {
    endpoint: HookEndpoint,
    call_timeout: Duration,
    credentials: Arc<HookCredentials>,
    token: Option<HookToken>,
    connection: Mutex<Option<EndpointConnection>>,
}

#[derive(Clone, Debug)]
struct EndpointConnection {
    channel: Channel,
    /// The version of the client certificate that the connection uses.
    identity: u64,
    /// The number of the connection. Each new connection has a higher one.
    number: u64,
}

impl EndpointClient {
    pub(crate) fn new(
        endpoint: HookEndpoint,
        call_timeout: Duration,
        credentials: Arc<HookCredentials>,
        token: Option<HookToken>,
    ) -> Self {
        EndpointClient { endpoint, call_timeout, credentials, token, connection: Mutex::default() }
    }

    /// Connects, including the TLS handshake. Later calls use the connection.
    pub(crate) async fn probe(&self) -> Result<(), CallFailure> {
        let identity = self.credentials.identity()?;
        let version = identity.version;
        let (transport, connector) = self.transport(identity.identity.as_deref())?;
        let connect = transport.connect_with_connector(connector);
        let channel = match tokio::time::timeout(LONGEST_CONNECT, connect).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(self.no_connection(&error)),
            Err(_) => return Err(self.no_connection(&TimedOut(LONGEST_CONNECT))),
        };
        self.keep(channel, version);
        Ok(())
    }

    /// Connects and returns the code of the answer to one request. The server need not know the method that is called.
    pub(crate) async fn check(&self) -> Result<Code, CallFailure> {
        self.probe().await?;
        let mut client = tonic::client::Grpc::new(self.connection()?.channel);
        let request = async {
            client.ready().await.map_err(|error| self.no_connection(&error))?;
            let method = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
            let codec = tonic_prost::ProstCodec::<(), ()>::default();
            let answer: Result<tonic::Response<()>, Status> =
                client.unary(Request::new(()), method, codec).await;
            match answer {
                // A status that the server sent has no source.
                Err(status) => {
                    status.source().map_or(Ok(status.code()), |source| Err(self.no_connection(source)))
                }
                Ok(_) => Ok(Code::Ok),
            }
        };
        match tokio::time::timeout(self.call_timeout, request).await {
            Ok(result) => result,
            Err(_) => Err(self.no_answer_to_check()),
        }
    }

    /// Returns the failure of a check by a server that was connected to, and said nothing.
    fn no_answer_to_check(&self) -> CallFailure {
        let after = self.call_timeout;
        if self.endpoint.is_guarded {
            return self.hidden(&TimedOut(after));
        }
        CallFailure::answer(format!("no answer from {} to a check within {after:?}", self.endpoint.url))
    }

    /// Finds out whether a server that did not answer does so again.
    pub(crate) async fn has_recovered(&self) -> Result<(), CallFailure> {
        match self.check().await? {
            Code::Ok
            | Code::Unimplemented
            | Code::NotFound
            | Code::Unauthenticated
            | Code::PermissionDenied => Ok(()),
            code => Err(CallFailure::answer(format!("{} answered {code:?} to a check", self.endpoint.url))),
        }
    }

    /// Calls the hook server. `traceparent` is the W3C trace context that is sent with the call.
    pub(crate) async fn handle(
        &self,
        request: v1::HandleRequest,
        traceparent: Option<String>,
    ) -> Result<v1::HandleResponse, CallFailure> {
        let mut request = Request::new(request);
        if let Some(text) = traceparent.and_then(|text| text.parse().ok()) {
            request.metadata_mut().insert("traceparent", text);
        }
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.header().await?);
        }
        request.set_timeout(self.call_timeout);
        let connection = self.connection()?;
        let mut client = HookHandlerClient::new(connection.channel).max_decoding_message_size(LARGEST_ANSWER);
        let begun = Instant::now();
        match tokio::time::timeout(self.call_timeout, client.handle(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) if begun.elapsed() < self.call_timeout => Err(self.failure(&status)),
            // Client, server and this function all enforce the timeout. The result is the same.
            Ok(Err(_)) | Err(_) => {
                // The server may be slow, or the connection dead without a word: the next call finds out with a new
                // one. Calls that are open on this one go on.
                self.leave(connection.number);
                let after = self.call_timeout;
                Err(CallFailure::answer(format!(
                    "no answer from {} within {after:?} (spec.callTimeoutMilliseconds)",
                    self.endpoint.url
                )))
            }
        }
    }

    fn connection(&self) -> Result<EndpointConnection, CallFailure> {
        let identity = self.credentials.identity()?;
        let present = self.connection.lock().clone();
        if let Some(present) = &present
            && present.identity == identity.version
        {
            return Ok(present.clone());
        }
        let version = identity.version;
        match (self.lazy(identity.identity.as_deref()), present) {
            (Ok(channel), _) => Ok(self.keep(channel, version)),
            // During a rotation, certificate and key may not match. The present connection stays in use.
            (Err(_), Some(present)) => Ok(present),
            (Err(failure), None) => Err(failure),
        }
    }

    fn keep(&self, channel: Channel, identity: u64) -> EndpointConnection {
        let mut present = self.connection.lock();
        let number = present.as_ref().map_or(0, |present| present.number) + 1;
        present.insert(EndpointConnection { channel, identity, number }).clone()
    }

    fn leave(&self, number: u64) {
        let mut present = self.connection.lock();
        if let Some(connection) = present.as_ref().filter(|present| present.number == number).cloned()
            && let Ok(identity) = self.credentials.identity()
            && let Ok(channel) = self.lazy(identity.identity.as_deref())
        {
            *present = Some(EndpointConnection {
                channel,
                identity: identity.version,
                number: connection.number + 1,
            });
        }
    }

    /// Returns a channel that connects when it is first used, and again when the connection is lost.
    fn lazy(&self, identity: Option<&ClientPair>) -> Result<Channel, CallFailure> {
        let (transport, connector) = self.transport(identity)?;
        Ok(transport.connect_with_connector_lazy(connector))
    }

    fn transport(&self, identity: Option<&ClientPair>) -> Result<(Endpoint, HookConnector), CallFailure> {
        let HookEndpoint { url, ca_certificates, server_name, is_guarded } = &self.endpoint;
        let dialer = is_guarded.then(|| self.credentials.dialer.clone());
        let transport = || {
            let connector = HookConnector::new(ca_certificates, server_name, identity, dialer)?;
            let origin: Uri = url.parse()?;
            // The endpoint itself has no TLS: the connector does it.
            let plain = url.replacen("https://", "http://", 1);
            let endpoint = Endpoint::from_shared(plain)?
                .origin(origin)
                .user_agent(concat!("podward/", env!("CARGO_PKG_VERSION")))?
                .http2_keep_alive_interval(KEEPALIVE)
                .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                .keep_alive_while_idle(false)
                .http2_max_header_list_size(LARGEST_HEADERS);
            Ok((endpoint, connector))
        };
        transport().map_err(|error: BoxError| {
            CallFailure::connection(format!(
                "could not make a client for {url}: {}",
                error_chain(error.as_ref())
            ))
        })
    }

    /// Returns the failure for a status that the server sent or that the client created.
    fn failure(&self, status: &Status) -> CallFailure {
        let url = &self.endpoint.url;
        // A status that the server sent has no source.
        if let Some(source) = status.source() {
            let is_unsent = is_connect_error(source);
            let failure = match status.code() {
                Code::Unavailable if is_unsent => self.no_connection(source),
                _ if self.endpoint.is_guarded => self.hidden(source),
                _ => CallFailure::answer(format!("the call to {url} was cut off: {}", error_chain(source))),
            };
            return CallFailure { may_have_arrived: !is_unsent, ..failure };
        }
        let text = format!("{url} answered {:?}: {}", status.code(), status.message());
        match status.code() {
            Code::Unimplemented => {
                CallFailure::refused(format!("{text}; does a podward.v1.HookHandler listen there?"))
            }
            Code::Unauthenticated | Code::PermissionDenied => {
                if let Some(token) = &self.token {
                    token.refused();
                }
                CallFailure::refused(format!(
                    "{text}; the hook server refuses Podward's token (its audience must be podward.io/hooks/<hook>) or \
                     client certificate"
                ))
            }
            Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted => CallFailure::answer(text),
            _ => CallFailure::question(text),
        }
    }

    fn no_connection(&self, error: &(dyn Error + 'static)) -> CallFailure {
        if self.endpoint.is_guarded {
            return self.hidden(error);
        }
        let advice = if is_certificate_error(error) {
            "; check spec.endpoint.caCertificates and serverName, and the server's certificate"
        } else {
            ""
        };
        let (url, error) = (&self.endpoint.url, error_chain(error));
        CallFailure::connection(format!("could not connect to {url}: {error}{advice}"))
    }

    /// Returns the failure of a connection to a server whose URL a team without rights in the cluster has written. It
    /// does not tell an open port from a closed one. The reason is in the log.
    fn hidden(&self, error: &(dyn Error + 'static)) -> CallFailure {
        let url = &self.endpoint.url;
        tracing::info!(
            url,
            reason = error_chain(error),
            "could not connect to the hook server of a namespace"
        );
        let text = match DialError::among(error) {
            Some(DialError::NotAllowed { .. }) => {
                "its host has no address that hooks of a namespace may have (not that of the API server, of Podward's own \
                 host, a link-local one or that of a metadata service); an administrator can allow networks with \
                 global.allowedAddresses of the chart"
            }
            Some(DialError::ApiServerUnknown | DialError::ApiServerName { .. }) => {
                "the addresses of the API server, which hooks must not have, are not known yet"
            }
            _ => "it can't be reached by TLS and HTTP/2; the log of the lifecycle-controller has the reason",
        };
        CallFailure::connection(format!("could not connect to {url}: {text}"))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("nothing came within {0:?}")]
struct TimedOut(Duration);

/// True if there was no connection that a call could have been sent on.
fn is_connect_error(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |error| (*error).source()).any(|error| error.is::<ConnectError>())
}

/// True if the TLS handshake failed because of a certificate: that of the server, or the one that the server requires.
fn is_certificate_error(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // The source of an I/O error skips the error that it wraps.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let tls = match inner {
            Some(inner) => inner.downcast_ref::<rustls::Error>(),
            None => error.downcast_ref::<rustls::Error>(),
        };
        if let Some(tls) = tls {
            return match tls {
                rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => true,
                rustls::Error::AlertReceived(alert) => is_certificate_alert(*alert),
                _ => false,
            };
        }
        next = error.source();
    }
    false
}

const fn is_certificate_alert(alert: rustls::AlertDescription) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
    )
}
