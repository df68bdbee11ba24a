//! The places that certificates, keys and authorities are read from: files, or the watched Secret.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file_version::FileVersion;
use super::pem::{Pem, PemError};
use super::secret::{CertificateSecret, SecretPem};

/// The source of a certificate and its private key.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Two PEM files. They are read again when they change.
    Files {
        /// The certificate, then its chain.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// `tls.crt` and `tls.key` of a Secret.
    Secret(CertificateSecret),
}

/// The source of the certificates of authorities.
#[derive(Clone, Debug)]
pub enum AuthoritySource {
    /// A PEM file. It is read again when it changes.
    File(PathBuf),
    /// `ca.crt` of a Secret.
    Secret(CertificateSecret),
    /// PEM text.
    Pem(String),
}

/// Tells one version of a source from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceVersion {
    File(Option<FileVersion>),
    Files([Option<FileVersion>; 2]),
    /// `None` while the Secret was not read yet.
    Secret(Option<u64>),
    Fixed,
}

impl CertificateSource {
    /// The PEM files `certificate` (with its chain) and `key`.
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self::Files { certificate: certificate.into(), key: key.into() }
    }

    pub(crate) fn version(&self) -> SourceVersion {
        match self {
            Self::Files { certificate, key } => {
                SourceVersion::Files([FileVersion::of(certificate), FileVersion::of(key)])
            }
            Self::Secret(secret) => SourceVersion::Secret(secret.version()),
        }
    }

    /// Returns the certificate with its chain, and the key. Those of a Secret are of the same version of it.
    pub(crate) fn read(&self) -> Result<(Pem, Pem), PemError> {
        match self {
            Self::Files { certificate, key } => Ok((file(certificate)?, file(key)?)),
            Self::Secret(secret) => {
                let read = read_secret(secret)?;
                Ok((read.certificate(), read.key()))
            }
        }
    }
}

impl AuthoritySource {
    /// Returns the PEM text as it is now.
    ///
    /// # Errors
    ///
    /// When the file can't be read or is not UTF-8, or the Secret was not read yet.
    pub fn text(&self) -> Result<String, PemError> {
        self.read()?.into_text()
    }

    pub(crate) fn version(&self) -> SourceVersion {
        match self {
            Self::File(path) => SourceVersion::File(FileVersion::of(path)),
            Self::Secret(secret) => SourceVersion::Secret(secret.version()),
            Self::Pem(_) => SourceVersion::Fixed,
        }
    }

    pub(crate) fn read(&self) -> Result<Pem, PemError> {
        match self {
            Self::File(path) => file(path),
            Self::Secret(secret) => Ok(read_secret(secret)?.authorities()),
            Self::Pem(text) => Ok(Pem {
                origin: "the PEM text of the authorities".to_owned(),
                bytes: text.as_bytes().to_vec(),
            }),
        }
    }
}

fn file(path: &Path) -> Result<Pem, PemError> {
    let bytes = fs::read(path).map_err(|source| PemError::Read { path: path.to_owned(), source })?;
    Ok(Pem { origin: format!("{path:?}"), bytes })
}

fn read_secret(secret: &CertificateSecret) -> Result<Arc<SecretPem>, PemError> {
    secret.latest().ok_or(PemError::NotRead)
}
