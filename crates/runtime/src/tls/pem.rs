//! PEM text, parsed and checked.

use std::path::PathBuf;

use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// PEM text can't be read or used.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// A file can't be read.
    #[error("could not read {path:?}: {source}; check that its Secret exists and is mounted there")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The watch of a Secret has not read it yet.
    #[error("the Secret of --tls-secret was not read yet")]
    NotRead,
    /// The text is not PEM of the expected kind.
    #[error("{origin} holds no usable PEM {expected}: {source}")]
    Invalid {
        /// The file, or the key of a Secret.
        origin: String,
        /// `certificate` or `private key`.
        expected: &'static str,
        /// The parser's error.
        source: rustls_pki_types::pem::Error,
    },
    /// The text has no certificate.
    #[error("{origin} holds no certificate; it must have a PEM block BEGIN CERTIFICATE")]
    Empty {
        /// The file, or the key of a Secret.
        origin: String,
    },
    /// A certificate can't be used as that of an authority.
    #[error("{origin} has a certificate that can't be used as an authority: {source}")]
    Authority {
        /// The file, or the key of a Secret.
        origin: String,
        /// The reason.
        source: rustls::Error,
    },
    /// The text is not UTF-8.
    #[error("{origin} is not text: {source}")]
    NotText {
        /// The file, or the key of a Secret.
        origin: String,
        /// The position of the first wrong byte.
        source: std::string::FromUtf8Error,
    },
}

/// PEM text and where it comes from. It may be a private key, so it has no `Debug`.
pub(crate) struct Pem {
    /// For errors: a path in quotes, or `tls.crt of Secret ns/name`.
    pub(crate) origin: String,
    pub(crate) bytes: Vec<u8>,
}

impl Pem {
    /// Returns the certificates, of which there is at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let found: Vec<_> = CertificateDer::pem_slice_iter(&self.bytes)
            .collect::<Result<_, _>>()
            .map_err(|source| self.invalid("certificate", source))?;
        if found.is_empty() {
            return Err(PemError::Empty { origin: self.origin.clone() });
        }
        Ok(found)
    }

    pub(crate) fn private_key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|source| self.invalid("private key", source))
    }

    /// Returns the certificates as authorities.
    pub(crate) fn authorities(&self) -> Result<RootCertStore, PemError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let add = roots.add(certificate);
            add.map_err(|source| PemError::Authority { origin: self.origin.clone(), source })?;
        }
        Ok(roots)
    }

    pub(crate) fn into_text(self) -> Result<String, PemError> {
        let Self { origin, bytes } = self;
        String::from_utf8(bytes).map_err(|source| PemError::NotText { origin, source })
    }

    fn invalid(&self, expected: &'static str, source: rustls_pki_types::pem::Error) -> PemError {
        PemError::Invalid { origin: self.origin.clone(), expected, source }
    }
}
