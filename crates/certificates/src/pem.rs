//! Reads certificates.

use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate and its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CertificatePair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl std::fmt::Debug for CertificatePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the key, which must not be logged.
        f.debug_struct("CertificatePair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The fields of a certificate that Podward reads. Times are seconds since 1970.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFacts {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
    /// DNS names, sorted.
    pub(crate) names: Vec<String>,
}

impl CertificateFacts {
    /// Returns the time of the renewal: two thirds of the lifetime have passed.
    pub(crate) fn renewal(&self) -> u64 {
        self.not_after.saturating_sub(self.not_after.saturating_sub(self.not_before) / 3)
    }

    /// Returns the time `time` after the start of the validity.
    pub(crate) fn begins_after(&self, time: Duration) -> u64 {
        self.not_before.saturating_add(time.as_secs())
    }
}

/// Reads the first certificate of `pem`.
///
/// # Errors
/// Fails with a description if the text or the certificate cannot be read.
pub(crate) fn facts_of(pem: &str) -> Result<CertificateFacts, String> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| format!("the PEM text contains no certificate: {error}"))?;
    let (_, certificate) = X509Certificate::from_der(&der)
        .map_err(|error| format!("the certificate cannot be read: {error}"))?;
    let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
    let validity = certificate.validity();
    let alternative = certificate
        .subject_alternative_name()
        .map_err(|error| format!("the names of the certificate cannot be read: {error}"))?;
    let mut names: Vec<String> = alternative
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    names.sort();
    Ok(CertificateFacts {
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        not_before: seconds(validity.not_before.timestamp()),
        not_after: seconds(validity.not_after.timestamp()),
        names,
    })
}

/// Splits `pem` into its certificates, each as PEM.
pub(crate) fn split(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    pem.split_inclusive(END)
        .filter_map(|part| {
            part.find("-----BEGIN CERTIFICATE-----").map(|begin| format!("{}\n", &part[begin..]))
        })
        .collect()
}
