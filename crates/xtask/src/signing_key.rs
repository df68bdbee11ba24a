//! The key that signs releases.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

/// A private key of the elliptic curve P-256, the kind that cosign makes and verifies.
#[derive(Debug)]
pub(crate) struct SigningKey(Arc<dyn rustls::sign::SigningKey>);

impl SigningKey {
    /// Reads the key from a PEM file (PKCS #8 or SEC 1, not encrypted).
    ///
    /// # Errors
    /// When the file cannot be read or holds another kind of key.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let pem = std::fs::read(file).with_context(|| format!("read the signing key {}", file.display()))?;
        Self::of_pem(&pem).with_context(|| {
            format!(
                "{} is no key that can sign: give an unencrypted PEM file with a P-256 key",
                file.display()
            )
        })
    }

    fn of_pem(pem: &[u8]) -> Result<Self> {
        let key = PrivateKeyDer::from_pem_slice(pem)?;
        let key = any_ecdsa_type(&key)?;
        key.choose_scheme(&[SCHEME]).context("it is a key of another curve")?;
        Ok(Self(key))
    }

    /// Returns the signature of the SHA-256 digest of `message` (ASN.1).
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        let signer = self.0.choose_scheme(&[SCHEME]).context("find the key's way to sign")?;
        signer.sign(message).context("sign")
    }
}

const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
    use rustls::crypto::ring::default_provider;

    use super::*;

    /// Returns a new key, and the pair of keys that it belongs to.
    pub(crate) fn new_key() -> (SigningKey, KeyPair) {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        (SigningKey::of_pem(pair.serialize_pem().as_bytes()).unwrap(), pair)
    }

    /// Returns whether `signature` is one of `message` by the key of `pair`.
    pub(crate) fn is_signed(pair: &KeyPair, message: &[u8], signature: &[u8]) -> bool {
        let known = default_provider().signature_verification_algorithms.mapping;
        let (_, algorithms) = known.iter().find(|(scheme, _)| *scheme == SCHEME).unwrap();
        algorithms[0].verify_signature(pair.public_key_raw(), message, signature).is_ok()
    }

    #[test]
    fn a_signature_is_of_its_message() {
        let (key, pair) = new_key();
        let signature = key.sign(b"a message").unwrap();
        assert!(is_signed(&pair, b"a message", &signature));
        assert!(!is_signed(&pair, b"another message", &signature));
    }

    #[test]
    fn other_keys_are_rejected() {
        let other = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
        for pem in ["", "nonsense", &other] {
            assert!(SigningKey::of_pem(pem.as_bytes()).is_err(), "{pem}");
        }
        let error = SigningKey::read(Path::new("/no/such/key.pem")).unwrap_err();
        assert!(format!("{error:#}").contains("read the signing key /no/such/key.pem"));
    }
}
