//! Connections to gRPC servers.

use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use super::trust::{InvalidTrust, Trust};

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that answers no ping in this time, while requests wait, is closed.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The window of an HTTP/2 stream, which is what the server can send before anything reads it. It is the initial size of
/// RFC 9113.
const H2_STREAM_WINDOW: u32 = 65_535;
/// The maximum number of streams of a connection to one of Podward's servers.
const H2_STREAMS: u32 = 250;
/// The window of an HTTP/2 connection: streams that nobody reads must not take it from the others.
const H2_CONNECTION_WINDOW: u32 = H2_STREAMS * H2_STREAM_WINDOW;

/// The URL of a gRPC server is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} must be https://<host>:<port>, without a path: {problem}")]
pub struct InvalidEndpoint {
    url: String,
    problem: String,
}

/// The connection to a gRPC server failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The authorities or the client certificate can't be used.
    #[error(transparent)]
    Trust(#[from] InvalidTrust),
    /// The TCP connection failed.
    #[error("could not connect to {address}: {source}")]
    Tcp {
        /// Host and port.
        address: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The server's certificate is not trusted, it has no TLS, or it rejects this client.
    #[error("the TLS handshake with {address} (expected name {name}) failed: {source}")]
    Tls {
        /// Host and port.
        address: String,
        /// The name that its certificate was checked for.
        name: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The server did not answer in time.
    #[error("{address} did not answer within {timeout:?}")]
    TimedOut {
        /// Host and port.
        address: String,
        /// The time that it had.
        timeout: Duration,
    },
    /// The server does not offer HTTP/2.
    #[error("{address} speaks TLS but not HTTP/2 (ALPN h2), which gRPC needs")]
    NoHttp2 {
        /// Host and port.
        address: String,
    },
}

/// The host and port of a gRPC server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
}

impl Target {
    /// Parses `https://<host>:<port>`.
    ///
    /// # Errors
    ///
    /// When it is anything else.
    pub fn parse(url: &str) -> Result<Self, InvalidEndpoint> {
        let invalid = |problem: &str| InvalidEndpoint { url: url.to_owned(), problem: problem.to_owned() };
        let uri: Uri = url.parse().map_err(|error| invalid(&format!("{error}")))?;
        if uri.scheme_str() != Some("https") {
            return Err(invalid("its scheme is not https, and TLS is required"));
        }
        let authority = uri.authority().ok_or_else(|| invalid("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("it has a user in it"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || url.ends_with('/') {
            return Err(invalid("it has a path or a query"));
        }
        let port = authority.port_u16().filter(|port| *port != 0).ok_or_else(|| invalid("it has no port"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        ServerName::try_from(host.as_str())
            .map_err(|_| invalid("its host is neither a DNS name nor an IP address"))?;
        Ok(Self { host, port })
    }

    /// Returns `host:port`.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// The address and the trust of a server.
#[derive(Clone, Debug)]
pub struct Connect {
    target: Target,
    name: ServerName<'static>,
    trust: Arc<Trust>,
}

impl Connect {
    /// Connects to `https://<host>:<port>`. Its certificate must be for that host and signed by an authority in
    /// `trust`.
    ///
    /// # Errors
    ///
    /// When `url` is anything else.
    pub fn new(url: &str, trust: impl Into<Arc<Trust>>) -> Result<Self, InvalidEndpoint> {
        let target = Target::parse(url)?;
        let name = server_name(url, &target.host)?;
        Ok(Self { target, name, trust: trust.into() })
    }

    /// Expects a certificate for `name` instead of the host; an empty `name` changes nothing.
    ///
    /// # Errors
    ///
    /// When `name` is neither a DNS name nor an IP address.
    pub fn with_server_name(self, name: &str) -> Result<Self, InvalidEndpoint> {
        if name.is_empty() {
            return Ok(self);
        }
        let name = server_name(name, name)?;
        Ok(Self { name, ..self })
    }

    /// Returns a channel that connects when it is first used, and again when the connection is lost.
    ///
    /// # Errors
    ///
    /// Never for a URL that [`new`](Self::new) has accepted.
    pub fn lazy(&self) -> Result<Channel, InvalidEndpoint> {
        let authority = self.target.authority();
        let invalid = |error: String| InvalidEndpoint { url: authority.clone(), problem: error };
        let origin: Uri =
            format!("https://{authority}").parse().map_err(|error| invalid(format!("{error}")))?;
        // The endpoint itself has no TLS: the connector does it, with the configuration of that moment.
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))
            .map_err(|error| invalid(error.to_string()))?
            .origin(origin)
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT);
        let connect = self.clone();
        Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let connect = connect.clone();
            async move { connect.connect(CONNECT_TIMEOUT).await.map(TokioIo::new) }
        })))
    }

    async fn connect(&self, timeout: Duration) -> Result<TlsStream<TcpStream>, ConnectError> {
        let address = self.target.authority();
        match tokio::time::timeout(timeout, self.handshake(&address)).await {
            Ok(result) => result,
            Err(_) => Err(ConnectError::TimedOut { address, timeout }),
        }
    }

    async fn handshake(&self, address: &str) -> Result<TlsStream<TcpStream>, ConnectError> {
        let config = self.trust.config()?;
        let tcp = |source| ConnectError::Tcp { address: address.to_owned(), source };
        let socket = TcpStream::connect((self.target.host.as_str(), self.target.port)).await.map_err(tcp)?;
        socket.set_nodelay(true).map_err(tcp)?;
        let stream =
            TlsConnector::from(config).connect(self.name.clone(), socket).await.map_err(|source| {
                let name = self.name.to_str().into_owned();
                ConnectError::Tls { address: address.to_owned(), name, source }
            })?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(ConnectError::NoHttp2 { address: address.to_owned() });
        }
        Ok(stream)
    }
}

fn server_name(url: &str, name: &str) -> Result<ServerName<'static>, InvalidEndpoint> {
    ServerName::try_from(name.to_owned()).map_err(|_| InvalidEndpoint {
        url: url.to_owned(),
        problem: format!("{name:?} is neither a DNS name nor an IP address"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_and_port_make_a_target() {
        for (url, authority) in [
            ("https://hooks.example:9443", "hooks.example:9443"),
            ("https://10.0.0.1:1", "10.0.0.1:1"),
            ("https://[fd00::1]:9443", "[fd00::1]:9443"),
        ] {
            assert_eq!(Target::parse(url).unwrap().authority(), authority);
        }
        for url in [
            "",
            "hooks.example:9443",
            "http://hooks.example:9443",
            "https://hooks.example",
            "https://hooks.example:0",
            "https://hooks.example:9443/",
            "https://hooks.example:9443/path",
            "https://hooks.example:9443?x",
            "https://me@hooks.example:9443",
            "https://:9443",
            "https://a b:1",
            "https://-:1",
            "https://x:99999",
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(error.contains("must be https://<host>:<port>"), "{url}: {error}");
        }
    }
}
