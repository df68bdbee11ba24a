//! Watches of the Secrets and webhook configurations.

use std::fmt::Debug;
use std::pin::Pin;

use futures::stream::SelectAll;
use futures::{Stream, StreamExt};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::bundles::Bundles;
use crate::names::{AUTHORITY, MUTATING, SERVICES, VALIDATING, secret_of};
use crate::paths::EntryPaths;
use podward_core::webhook_path::WEBHOOK_PATH_SECRET;

/// The present state of an object, after a change. `None` if the object does not exist.
pub(crate) enum CertificateChange {
    Secret(String, Option<Box<Secret>>),
    Configuration(&'static str, Option<Bundles>),
}

pub(crate) type CertificateChanges = SelectAll<Pin<Box<dyn Stream<Item = CertificateChange> + Send>>>;

/// Returns the state of every Secret in `namespace` and of both webhook configurations, now and after each change.
pub(crate) fn watch_all(client: &Client, namespace: &str) -> CertificateChanges {
    let mut all = SelectAll::new();
    for name in SERVICES.iter().map(|service| secret_of(service)).chain([AUTHORITY.to_owned()]) {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let secret_name = name.clone();
        let changes = watch_object(api, &name)
            .map(move |secret| CertificateChange::Secret(secret_name.clone(), secret.map(Box::new)));
        all.push(changes.boxed());
    }
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let changes = watch_object(api, MUTATING)
        .map(|found| CertificateChange::Configuration(MUTATING, found.as_ref().map(Bundles::from)));
    all.push(changes.boxed());
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let changes = watch_object(api, VALIDATING)
        .map(|found| CertificateChange::Configuration(VALIDATING, found.as_ref().map(Bundles::from)));
    all.push(changes.boxed());
    all
}

/// The present state of an object with the secret of the webhook paths, after a change. `None` if the object does not
/// exist.
pub(crate) enum PathChange {
    Secret(Option<Box<Secret>>),
    Configuration(&'static str, Option<EntryPaths>),
}

/// Returns the state of the Secret of the webhook paths in `namespace` and of both webhook configurations, now and after
/// each change.
pub(crate) fn watch_paths(
    client: &Client,
    namespace: &str,
) -> SelectAll<Pin<Box<dyn Stream<Item = PathChange> + Send>>> {
    let mut all = SelectAll::new();
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = watch_object(api, WEBHOOK_PATH_SECRET);
    all.push(secret.map(|secret| PathChange::Secret(secret.map(Box::new))).boxed());
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let changes = watch_object(api, MUTATING)
        .map(|found| PathChange::Configuration(MUTATING, found.as_ref().map(EntryPaths::from)));
    all.push(changes.boxed());
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let changes = watch_object(api, VALIDATING)
        .map(|found| PathChange::Configuration(VALIDATING, found.as_ref().map(EntryPaths::from)));
    all.push(changes.boxed());
    all
}

/// Returns the object `name`, now and after each change. `None` while it does not exist.
fn watch_object<K>(api: Api<K>, name: &str) -> impl Stream<Item = Option<K>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher::watch_object(api, name).default_backoff().filter_map(|found| async move {
        found
            .inspect_err(|error| {
                tracing::warn!(
                    %error,
                    "the watch of a Secret or webhook configuration failed; it is started again with back-off"
                );
            })
            .ok()
    })
}
