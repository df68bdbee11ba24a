//! The verifier of server certificates for certificates that users list: `caCertificates` of a hook, `caBundle` of a rule.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The listed certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerVerifierError {
    /// One of them can't be used as that of an authority.
    #[error("a certificate can't be used as an authority: {0}")]
    Authority(rustls::Error),
    /// There is none.
    #[error("no certificate can be used: {0}")]
    None(#[from] VerifierBuilderError),
}

/// Returns a verifier that trusts the listed certificates: each one is an authority, and is also accepted as the
/// server's own certificate. So a server can use a self-signed certificate that is its own authority, as `openssl req
/// -x509` creates it, like with clients in Go. Names and validity are checked in any case.
///
/// # Errors
/// When there is no certificate, or one that is not valid.
pub fn server_verifier(
    listed: Vec<CertificateDer<'static>>,
) -> Result<Arc<dyn ServerCertVerifier>, ServerVerifierError> {
    let mut roots = RootCertStore::empty();
    for certificate in &listed {
        roots.add(certificate.clone()).map_err(ServerVerifierError::Authority)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
    Ok(Arc::new(ListedCertificates { chains, listed }))
}

/// Verifies chains by webpki. webpki refuses the certificate of an authority as that of a server; this accepts it if it
/// is listed.
#[derive(Debug)]
struct ListedCertificates {
    chains: Arc<WebPkiServerVerifier>,
    listed: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for ListedCertificates {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.chains.verify_server_cert(shown, intermediates, name, ocsp_response, now);
        match verified {
            Err(error) if is_authority_as_server(&error) && self.listed.iter().any(|one| one == shown) => {
                check_self(shown, name, now)
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// True if webpki refuses a certificate only because it is that of an authority.
fn is_authority_as_server(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    other.0.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// Checks the certificate of a server that is its own authority: its name, its validity, and its purpose.
fn check_self(
    shown: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
    let invalid = |error: CertificateError| Err(rustls::Error::InvalidCertificate(error));
    let Ok((_, certificate)) = X509Certificate::from_der(shown) else {
        return invalid(CertificateError::BadEncoding);
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.validity().not_before.timestamp() {
        return invalid(CertificateError::NotValidYet);
    }
    if now > certificate.validity().not_after.timestamp() {
        return invalid(CertificateError::Expired);
    }
    match certificate.extended_key_usage() {
        Ok(None) => Ok(ServerCertVerified::assertion()),
        Ok(Some(purposes)) if purposes.value.any || purposes.value.server_auth => {
            Ok(ServerCertVerified::assertion())
        }
        Ok(Some(_)) => invalid(CertificateError::InvalidPurpose),
        Err(_) => invalid(CertificateError::BadEncoding),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// Returns a certificate as `openssl req -x509 -addext subjectAltName=DNS:localhost,IP:127.0.0.1` creates it.
    fn by_openssl(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 2, 1));
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    /// Verifies `shown` for `name` on a day of January 2026.
    fn verify(
        listed: &CertificateDer<'static>,
        shown: &CertificateDer<'static>,
        name: &str,
    ) -> Result<(), String> {
        let january_15 = UnixTime::since_unix_epoch(Duration::from_secs(1_768_435_200));
        let name = ServerName::try_from(name).unwrap();
        let verifier = server_verifier(vec![by_openssl(|_| {}), listed.clone()]).unwrap();
        let verified = verifier.verify_server_cert(shown, &[], &name, &[], january_15);
        verified.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_listed_self_signed_certificate_is_accepted() {
        let own = by_openssl(|_| {});
        for name in ["localhost", "127.0.0.1"] {
            verify(&own, &own, name).unwrap();
        }
        let for_servers = by_openssl(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        verify(&for_servers, &for_servers, "localhost").unwrap();
        // A self-signed certificate that is not an authority.
        let plain = by_openssl(|params| params.is_ca = IsCa::NoCa);
        verify(&plain, &plain, "localhost").unwrap();
    }

    #[test]
    fn a_self_signed_certificate_is_refused_unless_all_of_it_is_right() {
        let own = by_openssl(|_| {});
        let refused = |listed, shown, name: &str, words: &str| {
            let error = verify(listed, shown, name).unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        };
        refused(&own, &own, "hooks.example", "not valid for name");
        refused(&own, &own, "127.0.0.2", "not valid for name");
        // Another certificate with the same subject, which is not listed.
        let other = by_openssl(|_| {});
        refused(&own, &other, "localhost", "CaUsedAsEndEntity");
        let past = by_openssl(|params| params.not_after = date_time_ymd(2026, 1, 10));
        refused(&past, &past, "localhost", "expired");
        let future = by_openssl(|params| params.not_before = date_time_ymd(2026, 1, 20));
        refused(&future, &future, "localhost", "not valid yet");
        let for_clients = by_openssl(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        refused(&for_clients, &for_clients, "localhost", "InvalidPurpose");
    }

    #[test]
    fn nothing_is_trusted_without_a_certificate() {
        assert!(server_verifier(Vec::new()).is_err());
    }
}
