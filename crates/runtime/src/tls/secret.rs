//! The Secret with a service's certificate, followed by a watch.
//!
//! A mounted Secret would do too, but the kubelet updates its files up to a minute and a half late. That is long for a
//! certificate that must be replaced now. And a pod that mounts a Secret which does not exist yet does not start.

use std::fmt;
use std::sync::Arc;

use anyhow::bail;
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::pem::Pem;

/// The keys of the Secret that are read, all of which it must have.
const KEYS: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// The last complete version of a Secret; nothing until [`follow`](Self::follow) has read one. Clones share it.
#[derive(Clone, Default)]
pub struct CertificateSecret {
    latest: Arc<Mutex<Option<Arc<SecretPem>>>>,
}

/// The contents of a Secret, all of the same version.
pub(super) struct SecretPem {
    /// `namespace/name`.
    name: String,
    version: u64,
    contents: [Vec<u8>; 3],
}

impl SecretPem {
    pub(super) fn certificate(&self) -> Pem {
        self.pem(0)
    }

    pub(super) fn key(&self) -> Pem {
        self.pem(1)
    }

    pub(super) fn authorities(&self) -> Pem {
        self.pem(2)
    }

    fn pem(&self, index: usize) -> Pem {
        let origin = format!("{} of Secret {}", KEYS[index], self.name);
        Pem { origin, bytes: self.contents[index].clone() }
    }
}

impl fmt::Debug for CertificateSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key.
        f.debug_struct("CertificateSecret").field("version", &self.version()).finish()
    }
}

impl CertificateSecret {
    pub(super) fn latest(&self) -> Option<Arc<SecretPem>> {
        self.latest.lock().clone()
    }

    pub(super) fn version(&self) -> Option<u64> {
        self.latest.lock().as_ref().map(|latest| latest.version)
    }

    /// Watches the Secret `name` until `stop`. Returns once a complete version was read, so it waits for a Secret that
    /// does not exist yet.
    ///
    /// A Secret that is deleted or lacks `tls.crt`, `tls.key` or `ca.crt` changes nothing.
    ///
    /// # Errors
    ///
    /// When `stop` comes before the first complete version.
    pub async fn follow(
        &self,
        client: Client,
        namespace: &str,
        name: &str,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let full_name = format!("{namespace}/{name}");
        let mut changes = Box::pin(watcher::watch_object(api, name).default_backoff());
        loop {
            match stop.run_until_cancelled(changes.next()).await.flatten() {
                Some(found) => {
                    if self.observe(&full_name, found) {
                        break;
                    }
                }
                None => bail!("stopped while waiting for Secret {full_name}"),
            }
        }
        let secret = self.clone();
        tokio::spawn(async move {
            while let Some(found) = stop.run_until_cancelled(changes.next()).await.flatten() {
                secret.observe(&full_name, found);
            }
        });
        Ok(())
    }

    /// Stores a new version. Returns true if there is one, be it this one or an earlier one.
    fn observe(&self, name: &str, found: Result<Option<Secret>, watcher::Error>) -> bool {
        match found {
            Ok(Some(secret)) => self.store(name, secret),
            Ok(None) => tracing::warn!(
                "Secret {name} does not exist; waiting for the lifecycle-controller (--certificates) or cert-manager"
            ),
            Err(error) => tracing::warn!("could not watch Secret {name}, trying again: {error}"),
        }
        self.latest.lock().is_some()
    }

    fn store(&self, name: &str, secret: Secret) {
        let mut data = secret.data.unwrap_or_default();
        let mut missing = Vec::new();
        let contents = KEYS.map(|key| {
            let ByteString(content) = data.remove(key).unwrap_or_default();
            if content.is_empty() {
                missing.push(key);
            }
            content
        });
        if !missing.is_empty() {
            return tracing::warn!("Secret {name} lacks {}; waiting for it", missing.join(", "));
        }
        let mut latest = self.latest.lock();
        let version = match &*latest {
            // A write that changes only metadata is no new version.
            Some(latest) if latest.contents == contents => return,
            Some(latest) => latest.version + 1,
            None => 1,
        };
        *latest = Some(Arc::new(SecretPem { name: name.to_owned(), version, contents }));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::tls) fn secret(certificate: &str, key: &str) -> Secret {
        let authority = ByteString(b"authority".to_vec());
        let [certificate, key] = [certificate, key].map(|text| ByteString(text.as_bytes().to_vec()));
        let data = json!({"tls.crt": certificate, "tls.key": key, "ca.crt": authority});
        serde_json::from_value(json!({"metadata": {}, "data": data})).unwrap()
    }

    impl CertificateSecret {
        pub(in crate::tls) fn update(&self, certificate: &str, key: &str) -> bool {
            self.observe("ns/a", Ok(Some(secret(certificate, key))))
        }
    }

    #[test]
    fn all_keys_change_at_once_and_only_for_complete_ones() {
        let watched = CertificateSecret::default();
        assert!(!watched.observe("ns/a", Ok(None)));
        assert!(!watched.update("one", ""), "half a Secret");
        assert!(watched.latest().is_none() && watched.version().is_none());
        for (certificate, key, version) in [("one", "first", 1), ("two", "second", 2)] {
            assert!(watched.update(certificate, key));
            let latest = watched.latest().unwrap();
            let pem = [latest.certificate(), latest.key(), latest.authorities()];
            let texts = pem.each_ref().map(|pem| String::from_utf8(pem.bytes.clone()).unwrap());
            assert_eq!(texts, [certificate, key, "authority"]);
            assert_eq!(pem[1].origin, "tls.key of Secret ns/a");
            assert_eq!(watched.version(), Some(version));
        }
        for nothing in [None, Some(secret("", "")), Some(secret("two", "second"))] {
            assert!(watched.observe("ns/a", Ok(nothing)));
        }
        assert_eq!(watched.version(), Some(2), "nothing changed");
        assert!(!format!("{watched:?}").contains("second"), "no keys in logs");
    }
}
