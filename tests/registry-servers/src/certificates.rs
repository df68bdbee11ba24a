//! Certificates of a test.

use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority, and a certificate that it has issued for `127.0.0.1` and `localhost`, for servers and clients.
#[derive(Debug)]
pub struct TestCertificates {
    /// The certificate of the authority, in PEM.
    pub authority: String,
    /// The certificate, in PEM.
    pub certificate: String,
    /// Its private key, in PEM.
    pub key: String,
}

impl TestCertificates {
    /// Makes them.
    ///
    /// # Errors
    /// Fails if rcgen does.
    pub fn new() -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
        Ok(Self { authority: issuer.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Writes them to `ca.pem`, `cert.pem` and `key.pem`.
    pub(crate) fn write_into(&self, dir: &Path) -> Result<()> {
        for (name, text) in
            [("ca.pem", &self.authority), ("cert.pem", &self.certificate), ("key.pem", &self.key)]
        {
            std::fs::write(dir.join(name), text).with_context(|| format!("write {name}"))?;
        }
        Ok(())
    }
}
