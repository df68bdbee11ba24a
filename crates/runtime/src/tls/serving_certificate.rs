//! The serving certificate, replaced when its source changes.
//!
//! There is no file watcher: a mounted Secret is updated by swapping a symlink some directories above the file, and a
//! watch of the file does not see that. Instead each new connection compares the version of the source, at most once a
//! second. For files that costs two `stat` calls, and the API server keeps its connections open for long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::client_names::NamedClients;
use super::metrics::TlsMetrics;
use super::pem::PemError;
use super::source::{AuthoritySource, CertificateSource, SourceVersion};
use crate::connections::ConnectionMetrics;

/// The source is compared at most once in this time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A certificate and its key can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServingCertificateError {
    /// The certificate or its key can't be read.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The authorities of client certificates can't be used.
    #[error("{origin} can't be used to check client certificates: {problem}")]
    ClientCa {
        /// The file.
        origin: String,
        /// The reason.
        problem: String,
    },
    /// The certificate and the key don't belong together, or are of an unknown kind.
    #[error("the certificate in {certificate} can't be served with the key in {key}: {source}")]
    Unusable {
        /// The file of the certificate, or the key of a Secret.
        certificate: String,
        /// The file of the private key, or the key of a Secret.
        key: String,
        /// The reason.
        source: rustls::Error,
    },
}

/// The TLS configuration of a server, made of a certificate and its key, and maybe of the authorities of client
/// certificates.
///
/// It always has a configuration that works. A new certificate that can't be used is logged, counted, and tried again,
/// and the old one stays in use.
#[derive(Debug)]
pub struct ServingCertificate {
    sources: Sources,
    metrics: TlsMetrics,
    state: Mutex<ServingState>,
}

#[derive(Debug)]
struct Sources {
    certificate: CertificateSource,
    client_ca: Option<AuthoritySource>,
    /// The names of the clients that may connect. `None`: clients need no certificate.
    required: Option<Arc<[String]>>,
}

#[derive(Debug)]
struct ServingState {
    config: Arc<ServerConfig>,
    leaf: CertificateDer<'static>,
    version: Versions,
    looked: Instant,
    /// The version that can't be used, so that each is logged once.
    rejected: Option<Versions>,
}

/// The versions of the certificate and of the authorities of client certificates.
type Versions = (SourceVersion, Option<SourceVersion>);

impl ServingCertificate {
    /// Reads a certificate and its key.
    ///
    /// # Errors
    ///
    /// When they can't be read, are not PEM, or don't belong together.
    pub fn load(
        certificate: CertificateSource,
        metrics: TlsMetrics,
    ) -> Result<Self, ServingCertificateError> {
        Self::read(Sources { certificate, client_ca: None, required: None }, metrics)
    }

    /// Also requests a certificate from clients. A client may have none. One that it shows must be signed by an
    /// authority in `client_ca`.
    ///
    /// # Errors
    ///
    /// When a source can't be read, or holds no certificate.
    pub fn with_client_ca(self, client_ca: AuthoritySource) -> Result<Self, ServingCertificateError> {
        Self::read(Sources { client_ca: Some(client_ca), ..self.sources }, self.metrics)
    }

    /// Refuses connections of clients without a certificate that is signed by an authority in `client_ca` and has one of
    /// `names` as its common name, a DNS name or a URI.
    ///
    /// # Errors
    ///
    /// When a source can't be read, or holds no certificate.
    pub fn with_required_clients(
        self,
        client_ca: AuthoritySource,
        names: &[String],
    ) -> Result<Self, ServingCertificateError> {
        let required = Some(names.into());
        Self::read(Sources { client_ca: Some(client_ca), required, ..self.sources }, self.metrics)
    }

    /// Returns true if clients need a certificate.
    pub(super) fn requires_clients(&self) -> bool {
        self.sources.required.is_some()
    }

    fn read(sources: Sources, metrics: TlsMetrics) -> Result<Self, ServingCertificateError> {
        let version = sources.version();
        let (config, leaf) = sources.read()?;
        metrics.serving(&leaf);
        let state =
            Mutex::new(ServingState { config, leaf, version, looked: Instant::now(), rejected: None });
        Ok(Self { sources, metrics, state })
    }

    /// Returns the configuration for a new connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.look(Instant::now());
        Arc::clone(&self.state.lock().config)
    }

    /// Returns the metrics of the connections that it serves.
    pub(super) fn connection_metrics(&self) -> ConnectionMetrics {
        self.metrics.connections()
    }

    /// Returns the certificate that new connections are shown, without its chain.
    pub(crate) fn leaf(&self) -> CertificateDer<'static> {
        self.state.lock().leaf.clone()
    }

    fn look(&self, now: Instant) {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.looked) < LOOK_INTERVAL {
            return;
        }
        state.looked = now;
        // Taken before reading: the next look then finds a change in between.
        let found = self.sources.version();
        if found == state.version {
            if state.rejected.take().is_some() {
                self.metrics.restored();
            }
            return;
        }
        match self.sources.read() {
            Ok((config, leaf)) => {
                self.metrics.reloaded(true);
                self.metrics.serving(&leaf);
                tracing::info!("serving a new certificate");
                (state.config, state.leaf, state.version, state.rejected) = (config, leaf, found, None);
            }
            // Tried again at each look, because the other file may be still to come, but logged once.
            Err(error) if state.rejected != Some(found) => {
                self.metrics.reloaded(false);
                tracing::error!("the new certificate is not used, the old one stays in use: {error}");
                state.rejected = Some(found);
            }
            Err(_) => {}
        }
    }
}

impl Sources {
    fn version(&self) -> Versions {
        (self.certificate.version(), self.client_ca.as_ref().map(AuthoritySource::version))
    }

    fn read(&self) -> Result<(Arc<ServerConfig>, CertificateDer<'static>), ServingCertificateError> {
        let (certificate, key) = self.certificate.read()?;
        let chain = certificate.certificates()?;
        let empty = || PemError::Empty { origin: certificate.origin.clone() };
        let leaf = chain.first().cloned().ok_or_else(empty)?;
        let private = key.private_key()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = match &self.client_ca {
            Some(client_ca) => client_verifier(client_ca, self.required.as_ref(), &provider)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let config = server_config(chain, private, verifier, provider).map_err(|source| {
            ServingCertificateError::Unusable { certificate: certificate.origin, key: key.origin, source }
        })?;
        Ok((Arc::new(config), leaf))
    }
}

fn client_verifier(
    client_ca: &AuthoritySource,
    required: Option<&Arc<[String]>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, ServingCertificateError> {
    let pem = client_ca.read()?;
    let unusable =
        |problem: String| ServingCertificateError::ClientCa { origin: pem.origin.clone(), problem };
    let roots = pem.authorities().map_err(|error| unusable(error.to_string()))?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if required.is_some() { builder } else { builder.allow_unauthenticated() };
    let verifier = builder.build().map_err(|error| unusable(error.to_string()))?;
    Ok(match required {
        Some(names) => Arc::new(NamedClients::new(verifier, Arc::clone(names))),
        None => verifier,
    })
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    verifier: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
) -> Result<ServerConfig, rustls::Error> {
    let pair = CertifiedKey::from_der(chain, key, &provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(pair)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests;
