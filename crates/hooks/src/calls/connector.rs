//! TLS connections to hook servers.

use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use podward_runtime::address_policy::{GuardedConnector, GuardedDialer};
use podward_runtime::grpc_client::system_anchors;
use podward_runtime::tls::server_verifier;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Uri;
use tower::Service;

use crate::calls::credentials::ClientPair;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
/// The longest time that a connection takes.
pub(crate) const LONGEST_CONNECT: Duration =
    Duration::from_secs(CONNECT_TIMEOUT.as_secs() + HANDSHAKE_TIMEOUT.as_secs());

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Clone)]
enum TcpConnector {
    Open(HttpConnector),
    /// Connects only to addresses that the address policy allows.
    Guarded(GuardedConnector),
}

/// Connects to one hook server. The connection itself has TLS, so that the verifier of certificates is our own.
#[derive(Clone)]
pub(crate) struct HookConnector {
    tcp: TcpConnector,
    tls: TlsConnector,
    name: ServerName<'static>,
}

#[derive(Debug, thiserror::Error)]
#[error("the TLS handshake took longer than {HANDSHAKE_TIMEOUT:?}")]
struct SlowHandshake;

#[derive(Debug, thiserror::Error)]
#[error("the server speaks TLS but not HTTP/2 (ALPN h2), which gRPC needs")]
struct NoHttp2;

impl HookConnector {
    /// Returns a connector that trusts `ca_certificates` (PEM; the authorities of the system if empty), expects a
    /// certificate for `name`, and presents `identity`. A `dialer` decides which addresses are connected to.
    ///
    /// # Errors
    /// When one of them can't be used.
    pub(crate) fn new(
        ca_certificates: &str,
        name: &str,
        identity: Option<&ClientPair>,
        dialer: Option<GuardedDialer>,
    ) -> Result<Self, BoxError> {
        let open = || {
            let mut tcp = HttpConnector::new();
            tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
            tcp.set_keepalive(Some(TCP_KEEPALIVE));
            tcp.set_nodelay(true);
            tcp
        };
        let tcp = match dialer {
            Some(dialer) => TcpConnector::Guarded(GuardedConnector::new(dialer, CONNECT_TIMEOUT)),
            None => TcpConnector::Open(open()),
        };
        let tls = TlsConnector::from(Arc::new(config(ca_certificates, identity)?));
        Ok(Self { tcp, tls, name: ServerName::try_from(name.to_owned())? })
    }
}

fn config(ca_certificates: &str, identity: Option<&ClientPair>) -> Result<ClientConfig, BoxError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = if ca_certificates.is_empty() {
        builder.with_root_certificates(RootCertStore { roots: system_anchors()?.to_vec() })
    } else {
        let listed = CertificateDer::pem_slice_iter(ca_certificates.as_bytes()).collect::<Result<_, _>>()?;
        builder.dangerous().with_custom_certificate_verifier(server_verifier(listed)?)
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = CertificateDer::pem_slice_iter(&pair.certificate).collect::<Result<_, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&pair.key)?)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

impl Service<Uri> for HookConnector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.tcp {
            TcpConnector::Open(tcp) => tcp.poll_ready(context).map_err(Into::into),
            TcpConnector::Guarded(tcp) => tcp.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tcp: BoxFuture<'static, Result<TokioIo<TcpStream>, BoxError>> = match &mut self.tcp {
            TcpConnector::Open(tcp) => tcp.call(uri).err_into().boxed(),
            TcpConnector::Guarded(tcp) => tcp.call(uri).err_into().boxed(),
        };
        let (tls, name) = (self.tls.clone(), self.name.clone());
        async move {
            let handshake = tls.connect(name, tcp.await?.into_inner());
            let stream =
                tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await.map_err(|_| SlowHandshake)??;
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return Err(NoHttp2.into());
            }
            Ok(TokioIo::new(stream))
        }
        .boxed()
    }
}
