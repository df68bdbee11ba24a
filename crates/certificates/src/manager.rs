//! Keeps the Secrets with certificates and the `caBundle` of the webhooks up to date.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use podward_runtime::retry::{ApiCallError, api_call, spread};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::authority::Authority;
use crate::bundles::Bundles;
use crate::changes::{CertificateChange, watch_all};
use crate::lifetimes::Lifetimes;
use crate::names::{AUTHORITY, MUTATING, SERVICES, VALIDATING, dns_names, secret_of, type_of};
use crate::pem::{CertificatePair, facts_of};
use crate::upkeep::{MAX_INTERVAL, Upkeep, keep_up};

pub(crate) const FIELD_MANAGER: &str = "lifecycle-controller";

/// Returns the labels of the Secrets.
pub(crate) fn labels() -> Value {
    json!({"app.kubernetes.io/part-of": "podward", "app.kubernetes.io/managed-by": FIELD_MANAGER})
}

/// Creates and renews the certificates for the services of a namespace.
///
/// Any number of replicas may run it at the same time. Each decision depends only on the stored objects and the time,
/// and the API server rejects a write if the object has changed.
pub struct CertificateManager {
    client: Client,
    namespace: String,
    lifetimes: Lifetimes,
    secrets: HashMap<String, Option<Secret>>,
    bundles: HashMap<&'static str, Option<Bundles>>,
}

/// The reason why an object could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("could not {what}: {source}")]
    Api { what: String, source: ApiCallError },
    #[error("{0}")]
    Certificate(String),
}

impl CertificateManager {
    /// Returns the manager of the Secrets in `namespace`. Start it with [`CertificateManager::run`].
    #[must_use]
    pub fn new(client: Client, namespace: &str, lifetimes: Lifetimes) -> Self {
        let (secrets, bundles) = (HashMap::new(), HashMap::new());
        CertificateManager { client, namespace: namespace.to_owned(), lifetimes, secrets, bundles }
    }

    /// Keeps the objects up to date until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let changes = watch_all(&self.client, &self.namespace);
        keep_up(self, changes, stop).await;
    }

    async fn authority(&mut self, now: u64) -> Result<Authority, CertificateError> {
        let stored = self.secrets.get(AUTHORITY).and_then(Option::as_ref);
        let of = |service: &&str| self.text(&secret_of(service), "ca.crt");
        let by_services: String = SERVICES.iter().filter_map(of).collect();
        let (authority, why) = match stored.map(|stored| read_authority(stored, now)) {
            Some(Ok(authority)) => {
                let new = authority.replaced(self.lifetimes, &by_services, now);
                match new.map_err(CertificateError::Certificate)? {
                    None => return Ok(authority),
                    Some(new) if new.current == authority.current && new.next == authority.next => {
                        (new, "the list of trusted authorities has changed".to_owned())
                    }
                    Some(new) => (new, "it expires soon, or its successor signs from now on".to_owned()),
                }
            }
            unusable => {
                // A service may have lost its Secret and continue with its old certificate. The webhook configurations
                // still name the authority of that certificate.
                let by_all = by_services + &self.trusted_by_api_server();
                let new =
                    Authority::new(self.lifetimes, now, &by_all).map_err(CertificateError::Certificate)?;
                (new, unusable.and_then(Result::err).unwrap_or_else(|| "there is none".to_owned()))
            }
        };
        tracing::info!(secret = AUTHORITY, "writing the authority: {why}");
        let mut data = vec![
            ("tls.crt", authority.current.certificate.clone()),
            ("tls.key", authority.current.key.clone()),
            ("ca.crt", authority.trusted.clone()),
        ];
        let next = authority.next.clone();
        data.push(("next.crt", next.as_ref().map(|next| next.certificate.clone()).unwrap_or_default()));
        data.push(("next.key", next.map(|next| next.key).unwrap_or_default()));
        self.write(AUTHORITY, &data).await?;
        Ok(authority)
    }

    fn trusted_by_api_server(&self) -> String {
        self.bundles.values().flatten().map(Bundles::text).collect()
    }

    /// Brings the certificate of `service` up to date. Returns the time of its renewal, in seconds since 1970.
    async fn service(
        &mut self,
        service: &str,
        authority: &Authority,
        now: u64,
    ) -> Result<u64, CertificateError> {
        let secret = secret_of(service);
        let names = dns_names(service, &self.namespace);
        let stored = match (self.text(&secret, "tls.crt"), self.text(&secret, "tls.key")) {
            (Some(certificate), Some(key)) => Some(CertificatePair { certificate, key }),
            _ => None,
        };
        let why = match &stored {
            Some(pair) => authority.renewal_reason(pair, &names, self.lifetimes, now),
            None => Some("there is none".to_owned()),
        };
        let pair = match (stored, why) {
            (Some(pair), None) => {
                if self.text(&secret, "ca.crt").as_deref() != Some(&authority.trusted) {
                    self.write(&secret, &[("ca.crt", authority.trusted.clone())]).await?;
                }
                pair
            }
            (_, why) => {
                let pair =
                    authority.sign(&names, self.lifetimes, now).map_err(CertificateError::Certificate)?;
                tracing::info!(secret, "writing a new certificate: {}", why.unwrap_or_default());
                let data = [
                    ("tls.crt", pair.certificate.clone()),
                    ("tls.key", pair.key.clone()),
                    ("ca.crt", authority.trusted.clone()),
                ];
                self.write(&secret, &data).await?;
                pair
            }
        };
        facts_of(&pair.certificate).map(|facts| facts.renewal()).map_err(CertificateError::Certificate)
    }

    /// Writes the authorities that the API server trusts to the webhook configurations.
    async fn trust(&mut self, authority: &Authority) -> Result<(), CertificateError> {
        for name in [MUTATING, VALIDATING] {
            let Some(Some(bundles)) = self.bundles.get(name) else { continue };
            let Some(patch) = bundles.patch(&authority.trusted) else { continue };
            tracing::info!(configuration = name, "writing the caBundle");
            let new = if name == MUTATING {
                self.patch::<MutatingWebhookConfiguration>(name, patch).await?.map(|new| Bundles::from(&new))
            } else {
                self.patch::<ValidatingWebhookConfiguration>(name, patch)
                    .await?
                    .map(|new| Bundles::from(&new))
            };
            self.bundles.insert(name, new);
        }
        Ok(())
    }

    async fn patch<K>(&self, name: &str, patch: Value) -> Result<Option<K>, CertificateError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let what = format!("write the caBundle of webhook configuration {name}");
        match call(what, api.patch(name, &params, &Patch::Strategic(patch))).await {
            Ok(new) => Ok(Some(new)),
            Err(CertificateError::Api { source, .. }) if source.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes `data` to the Secret `name`. Fails with a conflict if the Secret has changed.
    async fn write(&mut self, name: &str, data: &[(&str, String)]) -> Result<(), CertificateError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let data: Value = data.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
        let known = self.secrets.get(name).and_then(Option::as_ref);
        let written = match known {
            Some(known) => {
                let version = known.resource_version();
                let patch = json!({"metadata": {"resourceVersion": version}, "stringData": data});
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                call(format!("write Secret {name}"), api.patch(name, &params, &Patch::Merge(patch))).await?
            }
            None => {
                let secret = json!({
                    "metadata": {"name": name, "labels": labels()}, "type": type_of(name), "stringData": data,
                });
                let secret = serde_json::from_value(secret).map_err(|error| {
                    CertificateError::Certificate(format!("could not create Secret {name}: {error}"))
                })?;
                let params =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                call(format!("create Secret {name}"), api.create(&params, &secret)).await?
            }
        };
        self.secrets.insert(name.to_owned(), Some(written));
        Ok(())
    }

    fn text(&self, secret: &str, key: &str) -> Option<String> {
        self.secrets.get(secret)?.as_ref().and_then(|secret| text(secret, key))
    }
}

impl Upkeep for CertificateManager {
    type Change = CertificateChange;
    type Error = CertificateError;
    const WHAT: &str = "certificates";
    const MEANWHILE: &str = "services keep their certificates";

    fn apply(&mut self, change: CertificateChange) {
        match change {
            CertificateChange::Secret(name, secret) => {
                drop(self.secrets.insert(name, secret.map(|secret| *secret)))
            }
            CertificateChange::Configuration(name, bundles) => drop(self.bundles.insert(name, bundles)),
        }
    }

    fn knows_all(&self) -> bool {
        self.secrets.len() == SERVICES.len() + 1 && self.bundles.len() == 2
    }

    async fn reconcile(&mut self) -> Result<Duration, CertificateError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let authority = self.authority(now).await?;
        let mut next = authority.next_change(self.lifetimes).map_err(CertificateError::Certificate)?;
        // Before a service presents a certificate that it signs.
        self.trust(&authority).await?;
        for service in SERVICES {
            next = next.min(self.service(service, &authority, now).await?);
        }
        let wait = Duration::from_secs(next.saturating_sub(now).max(1)).min(MAX_INTERVAL);
        // Spread, so that one replica writes first and the others find the result.
        Ok(spread(wait, 0.02))
    }

    fn is_conflict(error: &CertificateError) -> bool {
        matches!(error, CertificateError::Api { source, .. } if source.is_conflict())
    }
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let ByteString(bytes) = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.clone()).ok().filter(|text| !text.is_empty())
}

fn read_authority(secret: &Secret, now: u64) -> Result<Authority, String> {
    let pair = |certificate, key| {
        text(secret, certificate)
            .zip(text(secret, key))
            .map(|(certificate, key)| CertificatePair { certificate, key })
    };
    let current = pair("tls.crt", "tls.key").ok_or("it has no tls.crt or tls.key")?;
    let trusted = text(secret, "ca.crt").unwrap_or_else(|| current.certificate.clone());
    let authority = Authority { current, next: pair("next.crt", "next.key"), trusted };
    authority.unusable_reason(now).map_or(Ok(authority), Err)
}

async fn call<T>(what: String, call: impl Future<Output = kube::Result<T>>) -> Result<T, CertificateError> {
    api_call(call).await.map_err(|source| CertificateError::Api { what, source })
}
