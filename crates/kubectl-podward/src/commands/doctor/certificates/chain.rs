//! Verifies a certificate as the API server does.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Returns the certificates of a PEM text.
///
/// # Errors
/// When it is not valid PEM.
pub(super) fn read(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("invalid PEM: {error}"))
}

/// Verifies `leaf` as a client that calls `name` and trusts the authorities in `bundles`.
///
/// # Errors
/// When the certificate is not accepted. The text is the end of a sentence that begins with the certificate.
pub(super) fn verify(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    bundles: &[&[u8]],
    name: &str,
    now: Timestamp,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundles.iter().filter_map(|bundle| read(bundle).ok()).flatten());
    if roots.is_empty() {
        return Err("cannot be verified: no caBundle contains an authority".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = verifier.build().map_err(|error| format!("cannot be verified: {error}"))?;
    let server =
        ServerName::try_from(name).map_err(|error| format!("cannot be verified for {name}: {error}"))?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap_or_default()));
    match verifier.verify_server_cert(leaf, intermediates, &server, &[], now) {
        Ok(_) => Ok(()),
        Err(Error::InvalidCertificate(error)) => Err(match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "is not valid yet: a clock is wrong".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("is not for {name}")
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "was not signed by the authority in the caBundle".to_owned()
            }
            other => format!("is not accepted for {name}: {other}"),
        }),
        Err(other) => Err(format!("is not accepted for {name}: {other}")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// The first of January 2030, and so many days.
    pub(in super::super) fn day(days: i64) -> Timestamp {
        Timestamp::from_second(1_893_456_000 + days * 86_400).unwrap()
    }

    /// Noon of that day.
    pub(in super::super) fn at(days: i64) -> Timestamp {
        Timestamp::from_second(day(days).as_second() + 43_200).unwrap()
    }

    pub(in super::super) struct Authority(CertifiedIssuer<'static, KeyPair>, String);

    fn valid(params: &mut CertificateParams, from: i64, to: i64) {
        let begin = date_time_ymd(2030, 1, 1);
        let days = |days: i64| Duration::from_secs(u64::try_from(days).unwrap() * 86_400);
        params.not_before = begin + days(from);
        params.not_after = begin + days(to);
    }

    impl Authority {
        /// Good from one day of 2030 to another.
        pub(in super::super) fn new(from: i64, to: i64) -> Self {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            valid(&mut params, from, to);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            let pem = issuer.pem();
            Self(issuer, pem)
        }

        pub(in super::super) fn pem(&self) -> &[u8] {
            self.1.as_bytes()
        }

        pub(in super::super) fn der(&self) -> CertificateDer<'static> {
            self.0.der().clone()
        }

        pub(in super::super) fn sign(&self, name: &str, from: i64, to: i64) -> String {
            let mut params = CertificateParams::new([name.to_owned()]).unwrap();
            valid(&mut params, from, to);
            params.signed_by(&KeyPair::generate().unwrap(), &self.0).unwrap().pem()
        }
    }

    #[test]
    fn without_an_authority_nothing_can_be_checked() {
        let authority = Authority::new(1, 300);
        let leaf = read(authority.sign("a.b.svc", 1, 90).as_bytes()).unwrap().remove(0);
        let found = verify(&leaf, &[], &[b"rubbish"], "a.b.svc", at(2)).unwrap_err();
        assert!(found.contains("no caBundle"), "{found}");
        assert_eq!(verify(&leaf, &[], &[authority.pem()], "a.b.svc", at(2)), Ok(()));
    }
}
