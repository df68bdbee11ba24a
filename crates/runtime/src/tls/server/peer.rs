//! The types that the server and its connections share.

use std::net::SocketAddr;

use rustls_pki_types::CertificateDer;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct TlsPeer {
    /// Its address.
    pub address: SocketAddr,
    /// Its certificate, checked against the authorities of [`ServingCertificate::with_client_ca`](crate::tls::ServingCertificate::with_client_ca); `None` if it has
    /// sent none.
    pub certificate: Option<CertificateDer<'static>>,
}
