//! Which servers are believed.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor};

use crate::tls::Stamp;

/// Authorities, or what we show of ourselves, that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTrust {
    /// A file can't be read.
    #[error("could not read {path:?}; check that it is mounted there")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No certificates, or none that can be used.
    #[error("{what} can't be used: {problem}")]
    Unusable {
        /// What was read.
        what: String,
        /// What is wrong.
        problem: String,
    },
}

/// Who a server's certificate must be signed by, and perhaps the certificate that we show it.
#[derive(Debug)]
pub struct Trust {
    authorities: Authorities,
    identity: Option<(PathBuf, PathBuf)>,
    state: Mutex<Option<Loaded>>,
}

/// What was made of the files in these states.
#[derive(Debug)]
struct Loaded {
    stamps: Vec<Option<Stamp>>,
    config: Arc<ClientConfig>,
}

#[derive(Debug)]
enum Authorities {
    File(PathBuf),
    Pem(String),
    System,
}

impl Trust {
    /// The authorities in a PEM file, which is looked at for each new connection and read again when it has changed.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::of(Authorities::File(path.into()))
    }

    /// The authorities in a PEM text; those of the system when it is empty.
    #[must_use]
    pub fn pem(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::of(if text.is_empty() { Authorities::System } else { Authorities::Pem(text) })
    }

    fn of(authorities: Authorities) -> Self {
        Self { authorities, identity: None, state: Mutex::default() }
    }

    /// Also shows the server a certificate: PEM files of it (then its chain) and of its key, read again when they change.
    #[must_use]
    pub fn with_identity(self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { identity: Some((cert.into(), key.into())), ..self }
    }

    /// The TLS configuration for a new connection. It offers HTTP/2 alone.
    ///
    /// # Errors
    /// When a file can't be read or used, and never could be; later, the last good one is used, and the fault logged.
    pub fn config(&self) -> Result<Arc<ClientConfig>, InvalidTrust> {
        let mut state = self.state.lock();
        // Taken before reading: a change in between is then found the next time.
        let stamps = self.stamps();
        if let Some(loaded) = state.as_ref().filter(|loaded| loaded.stamps == stamps) {
            return Ok(Arc::clone(&loaded.config));
        }
        match (self.read(), state.as_ref()) {
            (Ok(config), _) => {
                let config = Arc::new(config);
                *state = Some(Loaded { stamps, config: Arc::clone(&config) });
                Ok(config)
            }
            (Err(error), Some(loaded)) => {
                tracing::error!("the old authorities are still used: {error}");
                Ok(Arc::clone(&loaded.config))
            }
            (Err(error), None) => Err(error),
        }
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let authorities = match &self.authorities {
            Authorities::File(path) => Some(path),
            Authorities::Pem(_) | Authorities::System => None,
        };
        let identity = self.identity.iter().flat_map(|(cert, key)| [cert, key]);
        authorities.into_iter().chain(identity).map(|path| Stamp::of(path)).collect()
    }

    fn read(&self) -> Result<ClientConfig, InvalidTrust> {
        let roots = match &self.authorities {
            Authorities::File(path) => roots(&read(path)?, &format!("{path:?}"))?,
            Authorities::Pem(text) => roots(text.as_bytes(), "the PEM text of the authorities")?,
            Authorities::System => system_roots()?,
        };
        let unusable = |error: rustls::Error| InvalidTrust::Unusable {
            what: "the TLS configuration".to_owned(),
            problem: error.to_string(),
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates(&read(cert)?, &format!("{cert:?}"))?;
                let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| {
                    InvalidTrust::Unusable { what: format!("{key:?}"), problem: error.to_string() }
                })?;
                builder.with_client_auth_cert(chain, private).map_err(unusable)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, InvalidTrust> {
    fs::read(path).map_err(|source| InvalidTrust::Read { path: path.clone(), source })
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, InvalidTrust> {
    let unusable = |problem: String| InvalidTrust::Unusable { what: what.to_owned(), problem };
    let found: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(format!("it is not PEM: {error}")))?;
    if found.is_empty() {
        return Err(unusable("it holds no certificate (a PEM block BEGIN CERTIFICATE)".to_owned()));
    }
    Ok(found)
}

fn roots(pem: &[u8], what: &str) -> Result<RootCertStore, InvalidTrust> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, what)? {
        roots.add(certificate).map_err(|error| InvalidTrust::Unusable {
            what: what.to_owned(),
            problem: format!("one of its certificates is no authority: {error}"),
        })?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, InvalidTrust> {
    system_anchors().map(|anchors| RootCertStore { roots: anchors.to_vec() })
}

/// The authorities of the system. They are read once: a hundred files of them, for each of a thousand connections to servers that
/// are checked against them, would leave no time for anything else.
///
/// # Errors
/// When there are none; then they are looked for again the next time.
pub fn system_anchors() -> Result<&'static [TrustAnchor<'static>], InvalidTrust> {
    static ANCHORS: OnceLock<Vec<TrustAnchor<'static>>> = OnceLock::new();
    if let Some(anchors) = ANCHORS.get() {
        return Ok(anchors);
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let problem = match found.errors.first() {
            Some(error) => error.to_string(),
            None => "the system has none; give the certificate of the authority".to_owned(),
        };
        return Err(InvalidTrust::Unusable { what: "the authorities of the system".to_owned(), problem });
    }
    Ok(ANCHORS.get_or_init(|| roots.roots))
}
