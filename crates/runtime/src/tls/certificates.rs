//! The serving certificate, read again when its files change.
//!
//! There is no file watcher: a Secret volume is rotated by swapping a symlink some directories above the file, which no watch on
//! the file sees. Instead each new connection may look (at most once a second) whether the paths lead to other files than before.
//! That costs two `stat` calls, and the API server keeps its connections open for long.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::stamp::Stamp;

/// How long a look at the files is good for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A certificate and its key could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// A file could not be looked at or read.
    #[error("could not read {path:?}; check that the certificate's Secret exists and is mounted there")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not PEM of what it should be.
    #[error("{path:?} holds no usable PEM {what}: {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
        /// Why.
        source: rustls_pki_types::pem::Error,
    },
    /// The certificate file has no certificate.
    #[error("{path:?} holds no certificate; it must be PEM, the server's certificate first, then the chain")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file of the authorities of client certificates can't be used.
    #[error("{path:?} can't be used to check client certificates: {problem}")]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// Certificate and key don't belong together, or are of an unknown kind.
    #[error("the certificate of {cert:?} can't be served with the key of {key:?}: {source}")]
    Unusable {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// What is counted of the certificate and its rotations. Clones share their figures.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    reloads: Family<[(&'static str, &'static str); 1], Counter>,
    expiry: Gauge,
}

impl TlsMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        for outcome in ["success", "failure"] {
            // From the start, so that an alert on a rate sees the first one too.
            drop(self.reloads.get_or_create(&[("outcome", outcome)]));
        }
        registry.register(
            "tls_certificate_reloads",
            "Times that new certificate files were read",
            self.reloads.clone(),
        );
        registry.register(
            "tls_certificate_expiry_timestamp_seconds",
            "When the certificate that is served expires, in seconds since 1970; 0 while there is none",
            self.expiry.clone(),
        );
    }

    fn serves(&self, leaf: &CertificateDer<'_>) {
        if let Ok((_, certificate)) = X509Certificate::from_der(leaf) {
            self.expiry.set(certificate.validity().not_after.timestamp());
        }
    }

    fn reloaded(&self, success: bool) {
        self.reloads.get_or_create(&[("outcome", if success { "success" } else { "failure" })]).inc();
    }
}

/// A certificate file and a key file, perhaps the authorities of client certificates, and the TLS configuration made of them. It always has one that works: new files that don't
/// are logged, counted, and tried again, while the old pair goes on being served.
#[derive(Debug)]
pub struct Certificates {
    files: Files,
    metrics: TlsMetrics,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

#[derive(Debug)]
struct State {
    config: Arc<ServerConfig>,
    leaf: CertificateDer<'static>,
    seen: Stamps,
    looked: Instant,
    /// The files that couldn't be used, so that each is complained about once.
    refused: Option<Stamps>,
}

/// Tells one state of the files from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamps([Option<Stamp>; 3]);

impl Certificates {
    /// Reads the PEM files `cert` (the server's certificate, then its chain) and `key`.
    ///
    /// # Errors
    ///
    /// When they can't be read, aren't PEM, or don't belong together.
    pub fn load(
        cert: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        metrics: TlsMetrics,
    ) -> Result<Self, CertificatesError> {
        Self::read(Files { cert: cert.into(), key: key.into(), client_ca: None }, metrics)
    }

    /// Also asks clients for a certificate, which may be missing, but must be good for one of the authorities in the PEM file
    /// `client_ca` when it is there. That file is read again when it changes, too.
    ///
    /// # Errors
    ///
    /// When a file can't be read, or holds no certificate.
    pub fn with_client_ca(self, client_ca: impl Into<PathBuf>) -> Result<Self, CertificatesError> {
        Self::read(Files { client_ca: Some(client_ca.into()), ..self.files }, self.metrics)
    }

    fn read(files: Files, metrics: TlsMetrics) -> Result<Self, CertificatesError> {
        let seen = files.stamps();
        let (config, leaf) = files.read()?;
        metrics.serves(&leaf);
        let state = Mutex::new(State { config, leaf, seen, looked: Instant::now(), refused: None });
        Ok(Self { files, metrics, state })
    }

    /// The configuration for a new connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.look(Instant::now());
        Arc::clone(&self.state.lock().config)
    }

    /// The certificate that new connections are shown, without its chain.
    pub(crate) fn leaf(&self) -> CertificateDer<'static> {
        self.state.lock().leaf.clone()
    }

    fn look(&self, now: Instant) {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.looked) < LOOK_INTERVAL {
            return;
        }
        state.looked = now;
        // Taken before reading: a change in between is then found by the next look.
        let found = self.files.stamps();
        if found == state.seen {
            return;
        }
        match self.files.read() {
            Ok((config, leaf)) => {
                self.metrics.reloaded(true);
                self.metrics.serves(&leaf);
                tracing::info!(cert = %self.files.cert.display(), "serving a new certificate");
                (state.config, state.leaf, state.seen, state.refused) = (config, leaf, found, None);
            }
            // Tried again at each look, as the other half of the pair may be still to come, but told only once.
            Err(error) if state.refused != Some(found) => {
                self.metrics.reloaded(false);
                tracing::error!("the new certificate is not used, the old one still is: {error}");
                state.refused = Some(found);
            }
            Err(_) => {}
        }
    }
}

impl Files {
    fn stamps(&self) -> Stamps {
        let client_ca = self.client_ca.as_deref().and_then(Stamp::of);
        Stamps([Stamp::of(&self.cert), Stamp::of(&self.key), client_ca])
    }

    fn read(&self) -> Result<(Arc<ServerConfig>, CertificateDer<'static>), CertificatesError> {
        let (cert, key) = (&self.cert, &self.key);
        let (cert_pem, key_pem) = (content(cert)?, content(key)?);
        let chain = certificates(cert, &cert_pem)?;
        let leaf =
            chain.first().cloned().ok_or_else(|| CertificatesError::Empty { path: cert.to_owned() })?;
        let private = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|source| CertificatesError::Parse {
            path: key.to_owned(),
            what: "private key",
            source,
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = match &self.client_ca {
            Some(path) => client_verifier(path, &provider)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let config = server_config(chain, private, verifier, provider).map_err(|source| {
            CertificatesError::Unusable { cert: cert.to_owned(), key: key.to_owned(), source }
        })?;
        Ok((Arc::new(config), leaf))
    }
}

fn content(path: &Path) -> Result<Vec<u8>, CertificatesError> {
    fs::read(path).map_err(|source| CertificatesError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|source| CertificatesError::Parse {
        path: path.to_owned(),
        what: "certificate",
        source,
    })
}

fn client_verifier(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CertificatesError> {
    let unusable = |problem: String| CertificatesError::ClientCa { path: path.to_owned(), problem };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, &content(path)?)? {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable(error.to_string()))
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
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    /// A directory laid out as the kubelet lays out a Secret volume.
    struct Volume(tempfile::TempDir);

    impl Volume {
        fn new(cert: &str, key: &str) -> Self {
            let volume = Self(tempfile::tempdir().unwrap());
            volume.write("..1", cert, key);
            symlink("..1", volume.path("..data")).unwrap();
            for name in ["tls.crt", "tls.key"] {
                symlink(format!("..data/{name}"), volume.path(name)).unwrap();
            }
            volume
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, version: &str, cert: &str, key: &str) {
            fs::create_dir(self.path(version)).unwrap();
            fs::write(self.path(version).join("tls.crt"), cert).unwrap();
            fs::write(self.path(version).join("tls.key"), key).unwrap();
        }

        fn swap(&self, version: &str, cert: &str, key: &str) {
            self.write(version, cert, key);
            symlink(version, self.path("..data_tmp")).unwrap();
            fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
        }

        fn load(&self) -> Certificates {
            Certificates::load(self.path("tls.crt"), self.path("tls.key"), TlsMetrics::default()).unwrap()
        }
    }

    fn look_later(certificates: &Certificates) -> CertificateDer<'static> {
        let later = certificates.state.lock().looked + LOOK_INTERVAL;
        certificates.look(later);
        certificates.leaf()
    }

    fn counted(certificates: &Certificates, outcome: &'static str) -> u64 {
        certificates.metrics.reloads.get_or_create(&[("outcome", outcome)]).get()
    }

    #[test]
    fn a_swapped_volume_is_picked_up_once_a_second_at_most() {
        let (cert, key) = pair();
        let volume = Volume::new(&cert, &key);
        let certificates = volume.load();
        let first = certificates.leaf();
        let (cert, key) = pair();
        volume.swap("..2", &cert, &key);
        let too_soon = certificates.state.lock().looked + LOOK_INTERVAL / 2;
        certificates.look(too_soon);
        assert_eq!(certificates.leaf(), first);
        let second = look_later(&certificates);
        assert_ne!(second, first);
        assert_eq!(look_later(&certificates), second);
        assert_eq!((counted(&certificates, "success"), counted(&certificates, "failure")), (1, 0));
    }

    #[test]
    fn a_bad_pair_is_told_once_and_the_old_one_stays() {
        let (cert, key) = pair();
        let volume = Volume::new(&cert, &key);
        let certificates = volume.load();
        let first = certificates.leaf();
        let (other, other_key) = pair();
        volume.swap("..2", &other, &key);
        for _ in 0..3 {
            assert_eq!(look_later(&certificates), first);
        }
        assert_eq!(counted(&certificates, "failure"), 1);
        volume.swap("..3", "rubbish", &other_key);
        assert_eq!(look_later(&certificates), first);
        fs::remove_file(volume.path("..data")).unwrap();
        assert_eq!(look_later(&certificates), first);
        assert_eq!(counted(&certificates, "failure"), 3);
        symlink("..none", volume.path("..data")).unwrap();
        volume.swap("..4", &other, &other_key);
        assert_ne!(look_later(&certificates), first);
        assert_eq!(counted(&certificates, "success"), 1);
    }

    #[test]
    fn says_what_is_wrong_with_the_first_pair() {
        let (cert, key) = pair();
        let (_, other_key) = pair();
        for (cert, key, words) in [
            (cert.as_str(), other_key.as_str(), "can't be served with the key"),
            ("", key.as_str(), "holds no certificate"),
            (cert.as_str(), "", "no usable PEM private key"),
        ] {
            let volume = Volume::new(cert, key);
            let error =
                Certificates::load(volume.path("tls.crt"), volume.path("tls.key"), TlsMetrics::default());
            assert!(error.as_ref().unwrap_err().to_string().contains(words), "{error:?}");
        }
        let error =
            Certificates::load("/nowhere/tls.crt", "/nowhere/tls.key", TlsMetrics::default()).unwrap_err();
        assert!(error.to_string().contains("/nowhere/tls.crt"), "{error}");
    }
}
