//! The public certificate authorities. They let Podward connect to hook servers whose certificates these authorities
//! issued.
//!
//! They are those of Mozilla's root programme and come from a crate, so that `Cargo.lock` pins them. The file of the
//! build machine would make the image depend on the machine.

use pem::{EncodeConfig, LineEnding, Pem};

/// The path at which programs look for the authorities. The lists of such paths in Go's `crypto/x509` and in the crate
/// `openssl-probe` both contain it. Users can mount another file there or set `SSL_CERT_FILE`.
pub(super) const PATH: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Returns the content of the file.
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
