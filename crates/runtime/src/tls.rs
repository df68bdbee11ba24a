//! HTTPS by rustls: a certificate that may be rotated while serving, HTTP/1.1 keep-alive and HTTP/2 by ALPN, bounds on what a
//! client can hold, and a shutdown that loses no request.

mod certificates;
mod secret;
mod self_check;
mod server;
mod stamp;

pub use certificates::{Certificates, CertificatesError, TlsMetrics};
pub use secret::keep_as_files;
pub use self_check::{SelfCheckError, self_check};
pub use server::{BindError, Peer, ServeReport, ServerLimits, TlsServer};
pub(crate) use stamp::Stamp;
