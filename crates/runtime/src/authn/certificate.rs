//! The user of a client certificate.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Identity;

/// Kubernetes adds every authenticated user to this group.
const AUTHENTICATED: &str = "system:authenticated";

/// The certificate has no user.
#[derive(Debug, thiserror::Error)]
pub enum InvalidCertificateUser {
    /// The certificate can't be parsed.
    #[error("the certificate can't be parsed: {0}")]
    Unreadable(String),
    /// The certificate has no user name.
    #[error("the certificate's subject has no common name, which is the user name")]
    NoName,
    /// The certificate has several user names, of which programs choose different ones.
    #[error("the certificate's subject has several common names; the user name has to be the only one")]
    ManyNames,
}

/// The user of a client certificate, and its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateUser {
    /// The user.
    pub identity: Identity,
    /// The end of its validity, in seconds since the Unix epoch. A connection may outlive it.
    not_after: i64,
}

impl CertificateUser {
    /// Returns the user of `certificate`, whose signature has been checked. The subject's common name is the user, its
    /// organisations are the groups (Kubernetes documentation, "X509 client certificates").
    ///
    /// # Errors
    ///
    /// When it can't be parsed, or has no common name, or several.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, InvalidCertificateUser> {
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|error| InvalidCertificateUser::Unreadable(error.to_string()))?;
        let subject = parsed.subject();
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().ok().filter(|text| !text.is_empty()).map(ToOwned::to_owned)
        };
        let mut names = subject.iter_common_name();
        let user = names.next().and_then(text).ok_or(InvalidCertificateUser::NoName)?;
        if names.next().is_some() {
            return Err(InvalidCertificateUser::ManyNames);
        }
        let mut groups: Vec<String> = subject.iter_organization().filter_map(text).collect();
        groups.push(AUTHENTICATED.to_owned());
        let identity = Identity { user, groups, ..Identity::default() };
        Ok(Self { identity, not_after: parsed.validity().not_after.timestamp() })
    }

    pub(super) fn has_expired(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        i64::try_from(now).is_ok_and(|now| now > self.not_after)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(name: &[(DnType, &str)], year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in name {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn common_name_and_organisation_are_user_and_group() {
        let shown = certificate(&[(DnType::CommonName, "jane"), (DnType::OrganizationName, "sre")], 4000);
        let user = CertificateUser::of(&shown).unwrap();
        assert_eq!(
            (user.identity.user.as_str(), user.identity.groups.as_slice()),
            ("jane", &["sre".to_owned(), AUTHENTICATED.to_owned()][..])
        );
        assert!(!user.has_expired());
        assert!(
            CertificateUser::of(&certificate(&[(DnType::CommonName, "jane")], 2021)).unwrap().has_expired()
        );
    }

    #[test]
    fn a_certificate_with_two_names_has_no_user() {
        let same = DnType::CustomDnType(vec![2, 5, 4, 3]);
        let shown = certificate(&[(DnType::CommonName, "admin"), (same, "bob")], 4000);
        assert!(matches!(CertificateUser::of(&shown), Err(InvalidCertificateUser::ManyNames)));
    }

    #[test]
    fn a_certificate_without_a_name_has_no_user() {
        let shown = certificate(&[(DnType::OrganizationName, "sre")], 4000);
        assert!(matches!(CertificateUser::of(&shown), Err(InvalidCertificateUser::NoName)));
        let rubbish = CertificateDer::from(vec![1, 2, 3]);
        assert!(matches!(CertificateUser::of(&rubbish), Err(InvalidCertificateUser::Unreadable(_))));
    }
}
