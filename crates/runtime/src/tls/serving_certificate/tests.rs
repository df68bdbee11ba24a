//! Rotation of the serving certificate.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;
use crate::tls::secret::CertificateSecret;

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
        self.point_to(version);
    }

    fn point_to(&self, version: &str) {
        symlink(version, self.path("..data_tmp")).unwrap();
        fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
    }

    fn source(&self) -> CertificateSource {
        CertificateSource::files(self.path("tls.crt"), self.path("tls.key"))
    }

    fn load(&self) -> ServingCertificate {
        load(self.source()).unwrap()
    }
}

fn load(source: CertificateSource) -> Result<ServingCertificate, ServingCertificateError> {
    ServingCertificate::load(source, TlsMetrics::default())
}

fn look_later(serving: &ServingCertificate) -> CertificateDer<'static> {
    let later = serving.state.lock().looked + LOOK_INTERVAL;
    serving.look(later);
    serving.leaf()
}

fn counted(serving: &ServingCertificate, outcome: &'static str) -> u64 {
    serving.metrics.reloads(outcome)
}

#[test]
fn a_swapped_volume_is_picked_up_once_a_second_at_most() {
    let (cert, key) = pair();
    let volume = Volume::new(&cert, &key);
    let serving = volume.load();
    let first = serving.leaf();
    let (cert, key) = pair();
    volume.swap("..2", &cert, &key);
    let too_soon = serving.state.lock().looked + LOOK_INTERVAL / 2;
    serving.look(too_soon);
    assert_eq!(serving.leaf(), first);
    let second = look_later(&serving);
    assert_ne!(second, first);
    assert_eq!(look_later(&serving), second);
    assert_eq!((counted(&serving, "success"), counted(&serving, "failure")), (1, 0));
}

#[test]
fn a_bad_pair_is_logged_once_and_the_old_one_stays() {
    let (cert, key) = pair();
    let volume = Volume::new(&cert, &key);
    let serving = volume.load();
    let first = serving.leaf();
    let (other, other_key) = pair();
    volume.swap("..2", &other, &key);
    for _ in 0..3 {
        assert_eq!(look_later(&serving), first);
    }
    assert_eq!(counted(&serving, "failure"), 1);
    volume.swap("..3", "rubbish", &other_key);
    assert_eq!(look_later(&serving), first);
    fs::remove_file(volume.path("..data")).unwrap();
    assert_eq!(look_later(&serving), first);
    assert_eq!(counted(&serving, "failure"), 3);
    symlink("..none", volume.path("..data")).unwrap();
    volume.swap("..4", &other, &other_key);
    assert_ne!(look_later(&serving), first);
    assert_eq!(counted(&serving, "success"), 1);
}

#[test]
fn a_changed_secret_is_served_and_a_bad_one_is_not() {
    let secret = CertificateSecret::default();
    let error = load(CertificateSource::Secret(secret.clone())).unwrap_err();
    assert!(error.to_string().contains("not read yet"), "{error}");
    let (cert, key) = pair();
    secret.update(&cert, &key);
    let serving = load(CertificateSource::Secret(secret.clone())).unwrap();
    let first = serving.leaf();
    let (other, other_key) = pair();
    secret.update(&other, &key);
    for _ in 0..3 {
        assert_eq!(look_later(&serving), first);
    }
    secret.update("rubbish", &other_key);
    assert_eq!(look_later(&serving), first);
    assert_eq!((counted(&serving, "success"), counted(&serving, "failure")), (0, 2));
    secret.update(&other, &other_key);
    assert_ne!(look_later(&serving), first);
    assert_eq!((counted(&serving, "success"), counted(&serving, "failure")), (1, 2));
}

#[test]
fn a_refused_pair_is_reported_until_a_usable_one_is_there() {
    let ((cert, key), (other, other_key)) = (pair(), pair());
    let volume = Volume::new(&cert, &key);
    let serving = volume.load();
    let refused = || {
        look_later(&serving);
        serving.metrics.is_refused()
    };
    assert!(!refused());
    volume.swap("..2", &other, &key);
    assert!(refused() && refused());
    // The files that are served are back.
    volume.point_to("..1");
    assert!(!refused());
    volume.swap("..3", &other, &key);
    assert!(refused());
    volume.swap("..4", &other, &other_key);
    assert!(!refused());
}

#[test]
fn the_error_says_what_is_wrong_with_the_first_pair() {
    let (cert, key) = pair();
    let (_, other_key) = pair();
    for (cert, key, words) in [
        (cert.as_str(), other_key.as_str(), "can't be served with the key"),
        ("", key.as_str(), "holds no certificate"),
        (cert.as_str(), "", "no usable PEM private key"),
    ] {
        let error = load(Volume::new(cert, key).source());
        assert!(error.as_ref().unwrap_err().to_string().contains(words), "{error:?}");
    }
    let error = load(CertificateSource::files("/nowhere/tls.crt", "/nowhere/tls.key")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/tls.crt"), "{error}");
    let secret = CertificateSecret::default();
    secret.update(&cert, &other_key);
    let error = load(CertificateSource::Secret(secret)).unwrap_err();
    assert!(error.to_string().contains("key in tls.key of Secret ns/a"), "{error}");
}
