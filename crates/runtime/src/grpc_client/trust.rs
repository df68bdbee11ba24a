//! The authorities that servers are checked against, and the certificate that servers are shown.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::TrustAnchor;

use crate::tls::{AuthoritySource, CertificateSource, PemError, SourceVersion};

/// Authorities or a client certificate that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTrust {
    /// The PEM text can't be read or used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The system has no authorities that can be used.
    #[error("the authorities of the system can't be used: {problem}")]
    System {
        /// The reason.
        problem: String,
    },
    /// The client certificate and its key don't belong together, or are of an unknown kind.
    #[error("the TLS configuration can't be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The authorities that a server's certificate must be signed by, and maybe the certificate that the server is shown.
#[derive(Debug)]
pub struct Trust {
    /// `None` stands for the authorities of the system.
    authorities: Option<AuthoritySource>,
    identity: Option<CertificateSource>,
    state: Mutex<Option<LoadedTrust>>,
}

/// The TLS configuration made of these versions of the sources.
#[derive(Debug)]
struct LoadedTrust {
    version: [Option<SourceVersion>; 2],
    config: Arc<ClientConfig>,
}

impl Trust {
    /// Trusts the authorities in `authorities`. Its version is compared for each new connection, and a new version is
    /// used at once.
    #[must_use]
    pub fn new(authorities: AuthoritySource) -> Self {
        Self { authorities: Some(authorities), identity: None, state: Mutex::default() }
    }

    /// Trusts the authorities in a PEM file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(AuthoritySource::File(path.into()))
    }

    /// Trusts the authorities in a PEM text; those of the system if it is empty.
    #[must_use]
    pub fn pem(text: impl Into<String>) -> Self {
        let text = text.into();
        let authorities = (!text.is_empty()).then_some(AuthoritySource::Pem(text));
        Self { authorities, identity: None, state: Mutex::default() }
    }

    /// Also shows the server a certificate.
    #[must_use]
    pub fn with_identity(self, identity: CertificateSource) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Returns the TLS configuration for a new connection. It offers HTTP/2 alone.
    ///
    /// # Errors
    ///
    /// When a source can't be read or used, and never could be. Later, the error is logged and the last good
    /// configuration is used.
    pub fn config(&self) -> Result<Arc<ClientConfig>, InvalidTrust> {
        let mut state = self.state.lock();
        // Taken before reading: the next connection then finds a change in between.
        let version = [
            self.authorities.as_ref().map(AuthoritySource::version),
            self.identity.as_ref().map(CertificateSource::version),
        ];
        if let Some(loaded) = state.as_ref().filter(|loaded| loaded.version == version) {
            return Ok(Arc::clone(&loaded.config));
        }
        match (self.read(), state.as_ref()) {
            (Ok(config), _) => {
                let config = Arc::new(config);
                *state = Some(LoadedTrust { version, config: Arc::clone(&config) });
                Ok(config)
            }
            (Err(error), Some(loaded)) => {
                tracing::error!("the new authorities are not used, the old ones stay in use: {error}");
                Ok(Arc::clone(&loaded.config))
            }
            (Err(error), None) => Err(error),
        }
    }

    fn read(&self) -> Result<ClientConfig, InvalidTrust> {
        let roots = match &self.authorities {
            Some(authorities) => authorities.read()?.authorities()?,
            None => RootCertStore { roots: system_anchors()?.to_vec() },
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (certificate, key) = identity.read()?;
                builder.with_client_auth_cert(certificate.certificates()?, key.private_key()?)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

/// Returns the authorities of the system. They are read once: there are more than a hundred files, too many to read for
/// each connection.
///
/// # Errors
///
/// When there are none. The next call then looks again.
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
        return Err(InvalidTrust::System { problem });
    }
    Ok(ANCHORS.get_or_init(|| roots.roots))
}
