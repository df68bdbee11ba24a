//! The serving certificates of services.

/// The serving certificate of a service.
#[derive(Debug)]
pub(super) enum ServingCertificate {
    /// The certificate chain, and the authorities that the service trusts (empty if there are none), as PEM.
    Found(Vec<u8>, Vec<u8>),
    /// There is no Secret with a certificate.
    Missing,
    /// The doctor is not allowed to read the Secret.
    Denied,
}

/// Returns the name of the Secret with the certificate of `service`.
pub(super) fn secret_of(service: &str) -> String {
    format!("{service}-tls")
}
