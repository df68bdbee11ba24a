//! The public certificate authorities, for hook servers with certificates of theirs.
//!
//! They are those of Mozilla's root programme, from a crate, so that `Cargo.lock` says which: a machine's own would differ from one
//! machine to the next, and the image with it.

use pem::{EncodeConfig, LineEnding, Pem};

/// Where programs look for them (Go's `crypto/x509` and the crate `openssl-probe` have lists of such places; this is in both). Another
/// file can be mounted there, or named by `SSL_CERT_FILE`.
pub(super) const PLACE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The file.
pub(super) fn pem() -> String {
    let certificates: Vec<Pem> = webpki_root_certs::TLS_SERVER_ROOT_CERTS
        .iter()
        .map(|certificate| Pem::new("CERTIFICATE", certificate.as_ref()))
        .collect();
    pem::encode_many_config(&certificates, EncodeConfig::new().set_line_ending(LineEnding::LF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_every_authority_and_can_be_read() {
        let read = pem::parse_many(pem()).expect("a file of certificates");
        let expected = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|root| root.as_ref());
        assert!(read.len() > 100, "{}", read.len());
        assert!(expected.eq(read.iter().map(Pem::contents)));
    }
}
