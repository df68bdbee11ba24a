//! Client certificates of named clients, without which a handshake fails.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Accepts certificates that another verifier accepts, if they have one of the names.
pub(super) struct NamedClients {
    inner: Arc<dyn ClientCertVerifier>,
    names: Arc<[String]>,
}

impl NamedClients {
    /// `inner` checks the signature. It must require a certificate.
    pub(super) fn new(inner: Arc<dyn ClientCertVerifier>, names: Arc<[String]>) -> Self {
        Self { inner, names }
    }
}

impl fmt::Debug for NamedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedClients").field("names", &self.names).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for NamedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        true
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(certificate, intermediates, now)?;
        if has_one_of(certificate, &self.names) {
            return Ok(verified);
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Returns true if the common name, a DNS name or a URI of `certificate` is one of `names`.
fn has_one_of(certificate: &CertificateDer<'_>, names: &[String]) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    let is_named = |text: &str| names.iter().any(|name| name == text);
    if parsed.subject().iter_common_name().any(|name| name.as_str().is_ok_and(is_named)) {
        return true;
    }
    let Ok(alternative) = parsed.subject_alternative_name() else { return false };
    let general = alternative.iter().flat_map(|extension| &extension.value.general_names);
    general.into_iter().any(|name| match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => is_named(name),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn common_names_dns_names_and_uris_are_compared_whole() {
        let mut params = CertificateParams::new(vec!["api.example.com".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        let uri = "spiffe://cluster.local/apiserver";
        params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let has = |name: &str| has_one_of(made.der(), &["other".to_owned(), name.to_owned()]);
        for name in ["kube-apiserver", "api.example.com", uri] {
            assert!(has(name), "{name}");
        }
        for name in ["kube", "kube-apiserver2", "example.com", "*.example.com", "spiffe://cluster.local", ""]
        {
            assert!(!has(name), "{name}");
        }
        assert!(!has_one_of(made.der(), &[]));
        assert!(!has_one_of(&CertificateDer::from(vec![1, 2, 3]), &["kube-apiserver".to_owned()]));
    }
}
