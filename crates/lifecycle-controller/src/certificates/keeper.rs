//! Keeps the Secrets of certificates and the webhooks' `caBundle` as they should be.

use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::stream::SelectAll;
use futures::{Stream, StreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::authority::{Authority, Lifetimes};
use super::bundles::Bundles;
use super::pem::Pair;

/// The authority's Secret.
const AUTHORITY: &str = "podward-ca";
/// Services that have a certificate, each in the Secret `<service>-tls`.
const SERVICES: [&str; 4] =
    ["mutating-webhook", "validating-webhook", "lifecycle-controller", "traffic-controller"];
const MUTATING: &str = "podward-mutating";
const VALIDATING: &str = "podward-validating";
/// A look after a failure; all looks are at least this often, should a watch have missed something.
const TRY_AGAIN: Duration = Duration::from_secs(5);
const AT_LEAST: Duration = Duration::from_secs(3600);
const DEADLINE: Duration = Duration::from_secs(10);
const MANAGER: &str = "lifecycle-controller";

/// Keeps certificates for the services of a namespace.
///
/// Any number of replicas may do this at once: what is to be done follows from what is stored and the time alone, and every write is
/// refused if another one came first.
pub(crate) struct Keeper {
    client: Client,
    namespace: String,
    lifetimes: Lifetimes,
    secrets: HashMap<String, Option<Secret>>,
    bundles: HashMap<&'static str, Option<Bundles>>,
}

/// Something is as it was not before.
enum News {
    Secret(String, Option<Box<Secret>>),
    Configuration(&'static str, Option<Bundles>),
}

type AllNews = SelectAll<Pin<Box<dyn Stream<Item = News> + Send>>>;

/// Why something could not be kept.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("could not {what}: {source}")]
    Api { what: String, source: Box<kube::Error> },
    #[error("could not {what}: no answer from the API server within {DEADLINE:?}")]
    TimedOut { what: String },
    #[error("{0}")]
    Certificate(String),
}

impl Error {
    /// Whether somebody else wrote first. The watch brings what it was.
    fn is_conflict(&self) -> bool {
        matches!(self, Error::Api { source, .. } if is_code(source, 409))
    }
}

impl Keeper {
    pub(crate) fn new(client: Client, namespace: &str, lifetimes: Lifetimes) -> Self {
        let (secrets, bundles) = (HashMap::new(), HashMap::new());
        Keeper { client, namespace: namespace.to_owned(), lifetimes, secrets, bundles }
    }

    /// Keeps them until `stop`.
    pub(crate) async fn keep(mut self, stop: CancellationToken) {
        let mut news = self.news();
        let mut failed = false;
        loop {
            let wake = if self.knows_all() {
                match self.look().await {
                    Ok(wake) => {
                        if std::mem::take(&mut failed) {
                            tracing::info!("certificates are kept again");
                        }
                        wake
                    }
                    Err(error) => {
                        if error.is_conflict() {
                            tracing::debug!("certificates: another replica was first: {error}");
                        } else {
                            failed = true;
                            tracing::warn!(
                                "certificates: {error}; tried again in {TRY_AGAIN:?}; what was made before goes on being served"
                            );
                        }
                        TRY_AGAIN.mul_f64(0.5 + fastrand::f64())
                    }
                }
            } else {
                AT_LEAST
            };
            tokio::select! {
                () = stop.cancelled() => return,
                Some(new) = news.next() => self.take(new),
                () = tokio::time::sleep(wake) => {}
            }
            // What came at the same time is one look.
            while let Some(Some(new)) = futures::FutureExt::now_or_never(news.next()) {
                self.take(new);
            }
        }
    }

    fn news(&self) -> AllNews {
        let mut all = SelectAll::new();
        for name in SERVICES.iter().map(|service| secret_of(service)).chain([AUTHORITY.to_owned()]) {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
            let of = name.clone();
            let news = objects(api, &name).map(move |secret| News::Secret(of.clone(), secret.map(Box::new)));
            all.push(news.boxed());
        }
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let bundles = |found: Option<MutatingWebhookConfiguration>| found.map(|found| Bundles::from(&found));
        all.push(
            objects(api, MUTATING).map(move |found| News::Configuration(MUTATING, bundles(found))).boxed(),
        );
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let bundles =
            |found: Option<ValidatingWebhookConfiguration>| found.map(|found| Bundles::from(&found));
        all.push(
            objects(api, VALIDATING)
                .map(move |found| News::Configuration(VALIDATING, bundles(found)))
                .boxed(),
        );
        all
    }

    fn take(&mut self, news: News) {
        match news {
            News::Secret(name, secret) => drop(self.secrets.insert(name, secret.map(|secret| *secret))),
            News::Configuration(name, bundles) => drop(self.bundles.insert(name, bundles)),
        }
    }

    fn knows_all(&self) -> bool {
        self.secrets.len() == SERVICES.len() + 1 && self.bundles.len() == 2
    }

    /// Does what is to be done; gives the time until there may be more. A write changes what is known at once, so that the next look
    /// doesn't make it again.
    async fn look(&mut self) -> Result<Duration, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let authority = self.authority(now).await?;
        let mut next = authority.look_again(self.lifetimes).map_err(Error::Certificate)?;
        // Before anything that it signs is shown.
        self.trust(&authority).await?;
        for service in SERVICES {
            next = next.min(self.service(service, &authority, now).await?);
        }
        let wait = Duration::from_secs(next.saturating_sub(now).max(1)).min(AT_LEAST);
        // Replicas don't all do it at the same moment: whoever is first does it for all.
        Ok(wait.mul_f64(1.0 + fastrand::f64() / 50.0))
    }

    async fn authority(&mut self, now: u64) -> Result<Authority, Error> {
        let stored = self.secrets.get(AUTHORITY).and_then(Option::as_ref);
        let of = |service: &&str| self.text(&secret_of(service), "ca.crt");
        let by_services: String = SERVICES.iter().filter_map(of).collect();
        let (authority, why) = match stored.map(|stored| read_authority(stored, now)) {
            Some(Ok(authority)) => {
                let new = authority.replaced(self.lifetimes, &by_services, now);
                match new.map_err(Error::Certificate)? {
                    None => return Ok(authority),
                    Some(new) if new.current == authority.current && new.next == authority.next => {
                        (new, "others are trusted besides it, or no longer".to_owned())
                    }
                    Some(new) => (new, "its time comes to an end".to_owned()),
                }
            }
            not => {
                // Services may have lost their Secrets and go on with what they had: the API server knows yet whose that is.
                let by_all = by_services + &self.trusted_by_api_server();
                let new = Authority::new(self.lifetimes, now, &by_all).map_err(Error::Certificate)?;
                (new, not.and_then(Result::err).unwrap_or_else(|| "there was none".to_owned()))
            }
        };
        tracing::info!(secret = AUTHORITY, "the authority changes: {why}");
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

    /// Gives when its certificate is to be renewed.
    async fn service(&mut self, service: &str, authority: &Authority, now: u64) -> Result<u64, Error> {
        let secret = secret_of(service);
        let names = self.names(service);
        let stored = match (self.text(&secret, "tls.crt"), self.text(&secret, "tls.key")) {
            (Some(certificate), Some(key)) => Some(Pair { certificate, key }),
            _ => None,
        };
        let why = match &stored {
            Some(pair) => authority.why_renew(pair, &names, self.lifetimes, now),
            None => Some("there was none".to_owned()),
        };
        let pair = match (stored, why) {
            (Some(pair), None) => {
                if self.text(&secret, "ca.crt").as_deref() != Some(&authority.trusted) {
                    self.write(&secret, &[("ca.crt", authority.trusted.clone())]).await?;
                }
                pair
            }
            (_, why) => {
                let pair = authority.sign(&names, self.lifetimes, now).map_err(Error::Certificate)?;
                tracing::info!(secret, "a new certificate: {}", why.unwrap_or_default());
                let data = [
                    ("tls.crt", pair.certificate.clone()),
                    ("tls.key", pair.key.clone()),
                    ("ca.crt", authority.trusted.clone()),
                ];
                self.write(&secret, &data).await?;
                pair
            }
        };
        super::pem::facts_of(&pair.certificate).map(|facts| facts.renewal()).map_err(Error::Certificate)
    }

    /// Has the API server believe the webhooks that show a certificate of `authority`.
    async fn trust(&mut self, authority: &Authority) -> Result<(), Error> {
        for name in [MUTATING, VALIDATING] {
            let Some(Some(bundles)) = self.bundles.get(name) else { continue };
            let Some(patch) = bundles.patch(&authority.trusted) else { continue };
            tracing::info!(configuration = name, "the API server is told whom to trust");
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

    async fn patch<K>(&self, name: &str, patch: Value) -> Result<Option<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let what = format!("write the caBundle of webhook configuration {name}");
        match timely(what, api.patch(name, &params, &Patch::Strategic(patch))).await {
            Ok(new) => Ok(Some(new)),
            Err(Error::Api { source, .. }) if is_code(&source, 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes `data` into the Secret, if it still is what is known of it.
    async fn write(&mut self, name: &str, data: &[(&str, String)]) -> Result<(), Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let data: Value = data.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
        let known = self.secrets.get(name).and_then(Option::as_ref);
        let written = match known {
            Some(known) => {
                let version = known.resource_version();
                let patch = json!({"metadata": {"resourceVersion": version}, "stringData": data});
                let params =
                    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
                timely(format!("write Secret {name}"), api.patch(name, &params, &Patch::Merge(patch))).await?
            }
            None => {
                let labels =
                    json!({"app.kubernetes.io/part-of": "podward", "app.kubernetes.io/managed-by": MANAGER});
                let secret = json!({
                    "metadata": {"name": name, "labels": labels}, "type": type_of(name), "stringData": data,
                });
                let secret = serde_json::from_value(secret)
                    .map_err(|error| Error::Certificate(format!("could not make Secret {name}: {error}")))?;
                let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                timely(format!("create Secret {name}"), api.create(&params, &secret)).await?
            }
        };
        self.secrets.insert(name.to_owned(), Some(written));
        Ok(())
    }

    fn text(&self, secret: &str, key: &str) -> Option<String> {
        self.secrets.get(secret)?.as_ref().and_then(|secret| text(secret, key))
    }

    fn names(&self, service: &str) -> Vec<String> {
        let namespace = &self.namespace;
        vec![
            format!("{service}.{namespace}.svc"),
            service.to_owned(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ]
    }
}

fn secret_of(service: &str) -> String {
    format!("{service}-tls")
}

/// The authority's has more than one key.
fn type_of(secret: &str) -> &'static str {
    if secret == AUTHORITY { "Opaque" } else { "kubernetes.io/tls" }
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let ByteString(bytes) = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.clone()).ok().filter(|text| !text.is_empty())
}

fn read_authority(secret: &Secret, now: u64) -> Result<Authority, String> {
    let pair = |certificate, key| {
        text(secret, certificate).zip(text(secret, key)).map(|(certificate, key)| Pair { certificate, key })
    };
    let current = pair("tls.crt", "tls.key").ok_or("it had no tls.crt or tls.key")?;
    let trusted = text(secret, "ca.crt").unwrap_or_else(|| current.certificate.clone());
    let authority = Authority { current, next: pair("next.crt", "next.key"), trusted };
    authority.why_useless(now).map_or(Ok(authority), Err)
}

/// The object `name`, now and after each change; `None` while there is none.
fn objects<K>(api: Api<K>, name: &str) -> impl Stream<Item = Option<K>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher::watch_object(api, name).default_backoff().filter_map(|found| async move {
        found
            .inspect_err(
                |error| tracing::warn!(%error, "watch of a Secret or webhook configuration; taken up again"),
            )
            .ok()
    })
}

async fn timely<T>(what: String, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::Api { what, source: Box::new(source) }),
        Err(_) => Err(Error::TimedOut { what }),
    }
}

fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
