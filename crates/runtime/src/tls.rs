//! HTTPS by rustls: a certificate that can be rotated while serving, HTTP/1.1 keep-alive and HTTP/2 by ALPN, limits on
//! what a client can hold, and a shutdown that loses no request.

mod args;
mod client_args;
mod client_names;
mod file_version;
mod metrics;
mod pem;
mod secret;
mod self_check;
mod server;
mod server_verifier;
mod serving_certificate;
mod source;

pub use crate::connections::ConnectionProof;
pub use args::{CertificateArgs, PeerArgs};
pub use client_args::ReviewClientArgs;
pub(crate) use file_version::FileVersion;
pub use metrics::TlsMetrics;
pub use pem::PemError;
pub use secret::CertificateSecret;
pub use self_check::{SelfCheckError, self_check};
pub use server::{BindError, ServeReport, ServerLimits, TlsPeer, TlsServer};
pub use server_verifier::{ServerVerifierError, server_verifier};
pub use serving_certificate::{ServingCertificate, ServingCertificateError};
pub(crate) use source::SourceVersion;
pub use source::{AuthoritySource, CertificateSource};
