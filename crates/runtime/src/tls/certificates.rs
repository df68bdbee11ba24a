//! The serving certificate, read again when its files change.
//!
//! There is no file watcher: a Secret volume is rotated by swapping a symlink some directories above the file, which no watch on
//! the file sees. Instead each new connection may look (at most once a second) whether the paths lead to other files than before.
//! That costs two `stat` calls, and the API server keeps its connections open for long.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

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

/// What is counted of the certificate's rotations. Clones share their figures.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    reloads: Family<[(&'static str, &'static str); 1], Counter>,
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
    }

    fn reloaded(&self, success: bool) {
        self.reloads.get_or_create(&[("outcome", if success { "success" } else { "failure" })]).inc();
    }
}

/// A certificate file and a key file, and the TLS configuration made of them. It always has one that works: new files that don't
/// are logged, counted, and tried again, while the old pair goes on being served.
#[derive(Debug)]
pub struct Certificates {
    cert: PathBuf,
    key: PathBuf,
    metrics: TlsMetrics,
    state: Mutex<State>,
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

/// Tells one state of the two files from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamps([Option<Stamp>; 2]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        // Follows symlinks: that is how a swapped `..data` shows.
        fs::metadata(path).ok().map(|metadata: Metadata| Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

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
        let (cert, key) = (cert.into(), key.into());
        let seen = stamps(&cert, &key);
        let (config, leaf) = read(&cert, &key)?;
        let state = Mutex::new(State { config, leaf, seen, looked: Instant::now(), refused: None });
        Ok(Self { cert, key, metrics, state })
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
        let found = stamps(&self.cert, &self.key);
        if found == state.seen {
            return;
        }
        match read(&self.cert, &self.key) {
            Ok((config, leaf)) => {
                self.metrics.reloaded(true);
                tracing::info!(cert = %self.cert.display(), "serving a new certificate");
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

fn stamps(cert: &Path, key: &Path) -> Stamps {
    Stamps([Stamp::of(cert), Stamp::of(key)])
}

fn read(cert: &Path, key: &Path) -> Result<(Arc<ServerConfig>, CertificateDer<'static>), CertificatesError> {
    let content = |path: &Path| {
        fs::read(path).map_err(|source| CertificatesError::Read { path: path.to_owned(), source })
    };
    let (cert_pem, key_pem) = (content(cert)?, content(key)?);
    let unparsed = |path: &Path, what| {
        let path = path.to_owned();
        move |source| CertificatesError::Parse { path, what, source }
    };
    let chain = CertificateDer::pem_slice_iter(&cert_pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(unparsed(cert, "certificate"))?;
    let leaf = chain.first().cloned().ok_or_else(|| CertificatesError::Empty { path: cert.to_owned() })?;
    let private = PrivateKeyDer::from_pem_slice(&key_pem).map_err(unparsed(key, "private key"))?;
    let config = server_config(chain, private).map_err(|source| CertificatesError::Unusable {
        cert: cert.to_owned(),
        key: key.to_owned(),
        source,
    })?;
    Ok((Arc::new(config), leaf))
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pair = CertifiedKey::from_der(chain, key, &provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
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
