//! Checks whether the process's own TLS server serves.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{AlertDescription, ClientConfig};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::ServingCertificate;

/// The server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum SelfCheckError {
    /// The TCP connection or the TLS handshake failed, or the connection ended.
    #[error("could not talk to our own TLS port {address}: {source}")]
    Talk {
        /// The port.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The server did not answer in time.
    #[error("our own TLS port {address} did not answer within {timeout:?}")]
    TimedOut {
        /// The port.
        address: SocketAddr,
        /// The time that it had.
        timeout: Duration,
    },
    /// Another process listens on the port.
    #[error("our own TLS port {address} answers with something that is not HTTP/1.1")]
    NotHttp {
        /// The port.
        address: SocketAddr,
    },
    /// TLS can't be set up.
    #[error("could not set up a TLS client: {0}")]
    Setup(#[from] rustls::Error),
}

/// Connects to the server at `bound` by TLS, checks that it shows `certificate`, and waits for any HTTP response.
///
/// # Errors
///
/// When one of these fails, or takes longer than `timeout`.
pub async fn self_check(
    bound: SocketAddr,
    certificate: &Arc<ServingCertificate>,
    timeout: Duration,
) -> Result<(), SelfCheckError> {
    let address = reachable(bound);
    match tokio::time::timeout(timeout, ask(address, certificate)).await {
        Ok(result) => result,
        Err(_) => Err(SelfCheckError::TimedOut { address, timeout }),
    }
}

/// Returns the address to connect to: the loopback address for a server that listens on all addresses.
fn reachable(bound: SocketAddr) -> SocketAddr {
    match bound.ip().is_unspecified() {
        // Also for [::], because IPv6 may be disabled on the interfaces of a pod.
        true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), bound.port()),
        false => bound,
    }
}

async fn ask(address: SocketAddr, certificate: &Arc<ServingCertificate>) -> Result<(), SelfCheckError> {
    let talk = |source| SelfCheckError::Talk { address, source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = OwnCertificate {
        certificate: Arc::clone(certificate),
        algorithms: provider.signature_verification_algorithms,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let socket = TcpStream::connect(address).await.map_err(talk)?;
    let name = ServerName::IpAddress(address.ip().into());
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.map_err(talk)?;
    if certificate.requires_clients() {
        // The process has no client certificate. That the server asks for one shows that it serves; it has shown its
        // own before that.
        return match stream.read(&mut [0]).await {
            Err(error) if asks_for_certificate(&error) => Ok(()),
            Err(error) => Err(talk(error)),
            Ok(_) => Err(SelfCheckError::NotHttp { address }),
        };
    }
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: self-check\r\nconnection: close\r\n\r\n")
        .await
        .map_err(talk)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head).await.map_err(talk)?;
    if &head == b"HTTP/1.1" { Ok(()) } else { Err(SelfCheckError::NotHttp { address }) }
}

/// Returns true if the server has refused the connection because the client has no certificate.
fn asks_for_certificate(error: &std::io::Error) -> bool {
    let alert = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    matches!(alert, Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)))
}

/// Trusts the serving certificate alone. Its names and dates are not checked.
#[derive(Debug)]
struct OwnCertificate {
    certificate: Arc<ServingCertificate>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for OwnCertificate {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *shown == self.certificate.leaf() {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General("the port shows a certificate that is not ours".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
